"""Trains a SentencePiece vocabulary with sentinels and modes on any documents.

Training is deterministic: one thread, no sampling, and no path in the model. The same documents in the same order and
the same release of `sentencepiece` give the same bytes. Documents beyond a number of characters are not read, so that
memory is bounded: give them shuffled, if their order means anything. A unigram is slow on text that repeats itself, such
as a letter ten thousand times: leave that out, or train a BPE, which is not.

By default text is kept as it is: every character comes back from its tokens, but U+2581, which is how sentencepiece writes a
space. White space is text as any other: a run of spaces, a line feed or indentation is as few pieces as the corpus has earned it,
and what it has not, such as a tab, is its bytes. None is put in front of a text, or one at its start could not be told from it.

`python -m ul2_tasks.train_vocabulary OUTPUT.model` trains the vocabulary that ships with this package again. Its corpus
is Python's own documentation, so another version of Python has another text, and another vocabulary comes of it. The
one that ships was made by the Python and the sentencepiece that `data/default.json` names, and that file has the
corpus's SHA-256.
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import os
import platform
import re
import sys
from collections.abc import Iterable, Iterator, Sequence

import sentencepiece
import tensorflow as tf
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from ul2_tasks.memory import embedded_documents
from ul2_tasks.vocabularies import special_names

DEFAULT_SIZE = 4096  # of the vocabulary that ships
MODEL_TYPES = ("unigram", "bpe")
IDENTITY = "identity"
NORMALIZATIONS = (IDENTITY, "nfkc", "nmt_nfkc", "nfkc_cf", "nmt_nfkc_cf")
MAX_CHARACTERS = 100_000_000  # takes some gigabytes to train on

_WHITE_SPACE_IS_TEXT = {"remove_extra_whitespaces": False, "add_dummy_prefix": False, "allow_whitespace_only_pieces": True}
_SENTENCE = 4000  # characters; what training a unigram costs grows with the square of what repeats within one sentence
_SENTENCE_BYTES = 1 << 20  # sentencepiece leaves out longer ones: here there are none
_TO_LAST_SPACE = re.compile(r".*\s", re.DOTALL)
_RESERVED = "\u2585"  # sentencepiece leaves out a sentence that has one


@dataclasses.dataclass
class Corpus:
    """What was read of the documents."""

    documents: int = 0
    characters: int = 0
    replaced: int = 0
    """Characters U+2585, which sentencepiece reserves; a space stands for each."""
    whole: bool = True
    """Whether all documents were read."""
    sha256: str = ""
    """Of the documents that were read, with a zero byte between two."""


def train(
    documents: Iterable[str],
    *,
    size: int = 32_000,
    model_type: str = "unigram",
    sentinels: int = 256,
    modes: Sequence[str] = ("[R]", "[S]", "[X]"),
    normalization: str = IDENTITY,
    max_characters: int = MAX_CHARACTERS,
) -> bytes:
    """A serialized SentencePiece model: pad 0, EOS 1, unknown 2, then sentinels and modes, then bytes, then the pieces of the text.

    Sentinels `<extra_id_0>` .. and modes are control pieces, which no text becomes. Nothing is unknown: bytes stand for
    characters that are no pieces. All text that is read counts: long documents are cut between words, and the character
    that sentencepiece reserves, U+2585, is taken for a space. Shows its progress on stderr.

    Args:
        documents: texts; those after the first `max_characters` characters are not read.
        size: how many pieces, with all of the above.
        model_type: "unigram" or "bpe".
        sentinels, modes: how many, and the names.
        normalization: "identity", or one of sentencepiece's rules: "nfkc", "nfkc_cf" (without case), and "nmt_nfkc" and
            "nmt_nfkc_cf", which also make line feeds and tabs spaces. With each of the rules runs of spaces become one, and those
            at a text's ends none; "nmt_nfkc" is T5's.
        max_characters: bounds memory; one document more is read whole.

    Raises:
        ValueError: there is no text; the text has too few different pieces for this size, or too many characters;
            another model type or normalization; bad names.
    """
    return _train(documents, size, model_type, sentinels, modes, normalization, max_characters)[0]


def train_to_file(
    documents: Iterable[str],
    output: str,
    *,
    size: int = 32_000,
    model_type: str = "unigram",
    sentinels: int = 256,
    modes: Sequence[str] = ("[R]", "[S]", "[X]"),
    normalization: str = IDENTITY,
    max_characters: int = MAX_CHARACTERS,
) -> str:
    """Trains as `train`, and writes the model and, beside it, what it was made of and by: OUTPUT.model and OUTPUT.json.

    Args:
        output: "OUTPUT.model", local or remote.
        documents, size, model_type, sentinels, modes, normalization, max_characters: see `train`.

    Returns:
        What was read, and how to use the model, to be printed.

    Raises:
        ValueError: see `train`; the output does not end in .model, is there already, or is in a folder that is not there. That
            is found before a document is read.
    """
    output = str(output)
    described = f"{output.removesuffix('.model')}.json"
    _check_output(output, described)
    model, corpus = _train(documents, size, model_type, sentinels, modes, normalization, max_characters)
    provenance = {
        "python": platform.python_version(),
        "sentencepiece": sentencepiece.__version__,
        "corpus_sha256": corpus.sha256,
        "documents": corpus.documents,
        "characters": corpus.characters,
        "size": size,
        "model_type": model_type,
        "sentinels": sentinels,
        "modes": list(modes),
        "normalization": normalization,
        "model_sha256": hashlib.sha256(model).hexdigest(),
    }
    for path, content in ((output, model), (described, json.dumps(provenance, indent=2).encode() + b"\n")):
        with tf.io.gfile.GFile(path, "wb") as file:
            file.write(content)
    return "\n".join(
        [f"wrote {output} and {described}: {size:,} pieces", *_told(corpus), *_kept(normalization), "", _usage(output)]
    )


def _check_output(output: str, described: str) -> None:
    if not output.endswith(".model"):
        raise ValueError(f"the output is {output!r}, expected a file that ends in .model")
    for path in (output, described):
        if tf.io.gfile.exists(path):
            raise ValueError(f"{path} is there already, and is not written over; name another output, or remove it")
    folder = os.path.dirname(output)
    if folder and "://" not in folder and not os.path.isdir(folder):  # a remote folder is there once it has a file
        raise ValueError(f"there is no folder {folder!r} for the output; make it, or name another output")


def _train(
    documents: Iterable[str],
    size: int,
    model_type: str,
    sentinels: int,
    modes: Sequence[str],
    normalization: str,
    max_characters: int,
) -> tuple[bytes, Corpus]:
    if model_type not in MODEL_TYPES:
        raise ValueError(f"model_type is {model_type!r}, expected one of {MODEL_TYPES}")
    if normalization not in NORMALIZATIONS:
        raise ValueError(f"normalization is {normalization!r}, expected one of {NORMALIZATIONS}")
    names = special_names(sentinels, modes)
    corpus, sentences = Corpus(), []
    columns = SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("reading")
        for sentence in _sentences(documents, max_characters, corpus):
            sentences.append(sentence)
            progress.update(task, description=f"reading: {corpus.documents:,} documents, {corpus.characters:,} characters")
        if not sentences:
            raise ValueError(f"there is no text to train on: {corpus.documents} documents, all of them empty")
        progress.update(task, description=f"training on {corpus.documents:,} documents, {corpus.characters:,} characters")
        try:
            return _fit(sentences, size, model_type, names, normalization), corpus
        except RuntimeError as error:
            raise _in_one_sentence(error, size, corpus) from error


def _fit(sentences: Sequence[str], size: int, model_type: str, names: Sequence[str], normalization: str) -> bytes:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sentences),
        model_writer=model,
        model_type=model_type,
        vocab_size=size,
        pad_id=0,
        eos_id=1,
        unk_id=2,
        bos_id=-1,
        # Control pieces, not user-defined ones: a text that spells "<extra_id_0>" never becomes a sentinel.
        control_symbols=list(names),
        byte_fallback=True,  # no text is unknown
        normalization_rule_name=normalization,
        **(_WHITE_SPACE_IS_TEXT if normalization == IDENTITY else {}),
        max_sentence_length=_SENTENCE_BYTES,
        num_threads=1,
        minloglevel=1,
    )
    return model.getvalue()


def _sentences(documents: Iterable[str], max_characters: int, corpus: Corpus) -> Iterator[str]:
    """The documents as sentencepiece takes all of them; `corpus` counts along."""
    digest = hashlib.sha256()
    for document in documents:
        if corpus.characters >= max_characters:
            corpus.whole = False
            break
        digest.update(("\0" if corpus.documents else "").encode() + document.encode())
        corpus.documents += 1
        corpus.characters += len(document)
        corpus.replaced += document.count(_RESERVED)
        yield from _sentences_of(document.replace(_RESERVED, " "))
    corpus.sha256 = digest.hexdigest()


def _sentences_of(document: str) -> Iterator[str]:
    """A document cut after white space, or where there is none between two characters, so that no sentence is too long."""
    start = 0
    while len(document) - start > _SENTENCE:
        words = _TO_LAST_SPACE.match(document, start, start + _SENTENCE)
        end = words.end() if words else start + _SENTENCE
        yield document[start:end]
        start = end
    if start < len(document):
        yield document[start:]


def _in_one_sentence(error: RuntimeError, size: int, corpus: Corpus) -> ValueError:
    """Sentencepiece's two complaints about the size as what to do; anything else as it is."""
    text = f"the text ({corpus.documents:,} documents, {corpus.characters:,} characters)"
    if too_large := re.search(r"Vocabulary size too high .*<= (\d+)", str(error)):
        return ValueError(f"size is {size}, but {text} has pieces for at most {too_large[1]}; give that size, or more text")
    if too_small := re.search(r"smaller than required_chars\. \d+ vs (\d+)", str(error)):
        least = f"the special pieces, the bytes and the characters of {text} are {too_small[1]} already"
        return ValueError(f"size is {size}, but {least}; give a larger size, or fewer sentinels")
    return ValueError(f"sentencepiece could not train on {text}: {error}")


def _told(corpus: Corpus) -> Iterator[str]:
    yield f"read {corpus.documents:,} documents, {corpus.characters:,} characters" + ("" if corpus.whole else ", and no more")
    if corpus.replaced:
        yield f"took {corpus.replaced:,} characters U+2585, which sentencepiece reserves, for spaces"


def _kept(normalization: str) -> Iterator[str]:
    if normalization == IDENTITY:
        yield "text is kept as it is: its tokens give every character back, but U+2581, which comes back as a space"
    else:
        yield f"text is normalized ({normalization}): its tokens give the normalized text back"


def _usage(output: str) -> str:
    return f"""Use it in Python:
  ul2_tasks.register("my", source, {output!r})
in gin, after ul2.gin:
  VOCABULARY = @ul2_tasks.open_vocabulary()
  ul2_tasks.open_vocabulary.spec = {output!r}
on the command line:
  ul2 show my --corpus .. --vocabulary {output}"""


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m ul2_tasks.train_vocabulary OUTPUT.model")
    print(train_to_file(embedded_documents(), sys.argv[1], size=DEFAULT_SIZE, normalization="nmt_nfkc"))
