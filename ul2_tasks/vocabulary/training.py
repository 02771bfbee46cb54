"""Trains a SentencePiece vocabulary with sentinels and modes on any documents.

Training is deterministic: it uses one thread, does not sample, and writes no path into the model. The same documents in the
same order and the same release of `sentencepiece` give the same bytes.

Memory is bounded, because documents after a number of characters are not read. So give them shuffled if their order means
anything. A unigram model is slow to train on text that repeats itself, such as a letter ten thousand times: leave such text
out, or train a BPE model, which is fast on it.

By default text is kept as it is. Every character comes back from its tokens, except U+2581, with which sentencepiece writes a
space. White space is treated like any other text. A run of spaces, a line feed or indentation becomes few pieces if it is
frequent in the corpus; white space that is rare, such as a tab, becomes its bytes. No space is added in front of a text,
because a text that begins with a space could not be told from it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import os
import platform
import re
from collections.abc import Iterable, Iterator, Sequence

import sentencepiece
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from ul2_tasks.files.atomic import removed_on_failure, write_atomically
from ul2_tasks.files.systems import exists
from ul2_tasks.vocabulary.pieces import DEFAULT_SENTINELS, PRESET_MODES, special_names

MODEL_TYPES = ("unigram", "bpe")
IDENTITY = "identity"
NORMALIZATIONS = (IDENTITY, "nfkc", "nmt_nfkc", "nfkc_cf", "nmt_nfkc_cf")
MAX_CHARACTERS = 100_000_000  # training on so many takes some gigabytes

_WHITE_SPACE_IS_TEXT = {"remove_extra_whitespaces": False, "add_dummy_prefix": False, "allow_whitespace_only_pieces": True}
_SENTENCE = 4000  # characters; the cost of training a unigram grows with the square of the repetitions within one sentence
_SENTENCE_BYTES = 1 << 20  # sentencepiece leaves out longer sentences; none is longer here
_TO_LAST_SPACE = re.compile(r".*\s", re.DOTALL)
_RESERVED = "\u2585"  # sentencepiece leaves out sentences with this character


@dataclasses.dataclass
class Corpus:
    """How much of the documents was read."""

    documents: int = 0
    characters: int = 0
    replaced: int = 0
    """How many characters U+2585, which sentencepiece reserves, became spaces."""
    whole: bool = True
    """Whether all documents were read."""
    sha256: str = ""
    """SHA-256 of the documents that were read, with a zero byte between two."""


def train(
    documents: Iterable[str],
    *,
    size: int = 32_000,
    model_type: str = "unigram",
    sentinels: int = DEFAULT_SENTINELS,
    modes: Sequence[str] = PRESET_MODES,
    normalization: str = IDENTITY,
    max_characters: int = MAX_CHARACTERS,
) -> bytes:
    """Trains a SentencePiece model, and returns it serialized. Shows its progress on stderr.

    Its ids are 0 for padding, 1 for EOS, 2 for unknown, then sentinels `<extra_id_0>` .., modes, the 256 bytes, and the pieces of
    the text. Sentinels and modes are control pieces, to which no text is encoded. Nothing is encoded to unknown, because
    characters that are no pieces become bytes. No text that is read is left out: long documents are split between words, and
    the character that sentencepiece reserves, U+2585, becomes a space.

    Reading stops at the first document that begins after `max_characters` characters, which bounds memory. `size` is how many ids
    the vocabulary has in all, and `model_type` "unigram" or "bpe". `normalization` is "identity", or one of sentencepiece's rules:
    "nfkc", "nfkc_cf" (which also folds case), "nmt_nfkc" (T5's) and "nmt_nfkc_cf", which also turn line feeds and tabs into spaces.
    Each rule, except "identity", reduces runs of spaces to one, and removes spaces at the ends of a text. Too few different pieces
    for this size, or too many different characters, raise a ValueError.
    """
    return _train(documents, size, model_type, sentinels, modes, normalization=normalization, max_characters=max_characters)[0]


def train_to_file(
    documents: Iterable[str],
    output: str,
    *,
    size: int = 32_000,
    model_type: str = "unigram",
    sentinels: int = DEFAULT_SENTINELS,
    modes: Sequence[str] = PRESET_MODES,
    normalization: str = IDENTITY,
    max_characters: int = MAX_CHARACTERS,
) -> str:
    """Trains as `train` does. Writes the model to OUTPUT.model, and its origin (arguments, versions, SHA-256) to OUTPUT.json.

    Returns what was read and how to use the model, in words to print. An output that does not end in .model, exists already, or is
    in a folder that does not exist raises a ValueError before a document is read.
    """
    output = str(output)
    described = f"{output.removesuffix('.model')}.json"
    _check_output(output, described)
    model, corpus = _train(
        documents, size, model_type, sentinels, modes, normalization=normalization, max_characters=max_characters
    )
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
    with removed_on_failure(described, where=output):
        write_atomically(described, json.dumps(provenance, indent=2) + "\n")
        write_atomically(output, model)
    return "\n".join(
        [f"wrote {output} and {described}: {size:,} pieces", *_described(corpus), *_kept(normalization), "", _usage(output)]
    )


def _check_output(output: str, described: str) -> None:
    if not output.endswith(".model"):
        raise ValueError(f"output must be a file that ends in .model, got {output!r}.")
    for path in (output, described):
        if exists(path):
            raise ValueError(f"output must be a new file, but {path} exists. Name another output, or remove the file.")
    folder = os.path.dirname(output)
    if folder and "://" not in folder and not os.path.isdir(folder):  # a remote folder need not exist before its first file
        raise ValueError(f"output must be in a folder that exists, got {folder!r}. Make it, or name another output.")


def _train(
    documents: Iterable[str],
    size: int,
    model_type: str,
    sentinels: int,
    modes: Sequence[str],
    *,
    normalization: str,
    max_characters: int,
) -> tuple[bytes, Corpus]:
    if model_type not in MODEL_TYPES:
        raise ValueError(f"model_type must be one of {MODEL_TYPES}, got {model_type!r}.")
    if normalization not in NORMALIZATIONS:
        raise ValueError(f"normalization must be one of {NORMALIZATIONS}, got {normalization!r}.")
    names = special_names(sentinels, modes)
    corpus, sentences = Corpus(), []
    columns = SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("reading")
        for sentence in _sentences(documents, max_characters, corpus):
            sentences.append(sentence)
            progress.update(task, description=f"reading: {corpus.documents:,} documents, {corpus.characters:,} characters")
        if not sentences:
            raise ValueError(f"the corpus must have text to train on, got {corpus.documents} documents, all of them empty.")
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
        # Control pieces, because a text that spells "<extra_id_0>" would be encoded to a user-defined piece.
        control_symbols=list(names),
        byte_fallback=True,  # no text is encoded to unknown
        normalization_rule_name=normalization,
        **(_WHITE_SPACE_IS_TEXT if normalization == IDENTITY else {}),
        max_sentence_length=_SENTENCE_BYTES,
        num_threads=1,
        minloglevel=1,
    )
    return model.getvalue()


def _sentences(documents: Iterable[str], max_characters: int, corpus: Corpus) -> Iterator[str]:
    """Yields the documents in sentences that sentencepiece accepts, and counts in `corpus` what was read."""
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
    """Splits a long document into sentences: after white space or, where there is none, between any two characters."""
    start = 0
    while len(document) - start > _SENTENCE:
        words = _TO_LAST_SPACE.match(document, start, start + _SENTENCE)
        end = words.end() if words else start + _SENTENCE
        yield document[start:end]
        start = end
    if start < len(document):
        yield document[start:]


def _in_one_sentence(error: RuntimeError, size: int, corpus: Corpus) -> ValueError:
    """The error for users. Of sentencepiece's two complaints about the size it says what to do."""
    text = f"the text ({corpus.documents:,} documents, {corpus.characters:,} characters)"
    if too_large := re.search(r"Vocabulary size too high .*<= (\d+)", str(error)):
        return ValueError(
            f"size must be at most {too_large[1]}, the pieces that {text} has, got {size}. Pass that size, or more text."
        )
    if too_small := re.search(r"smaller than required_chars\. \d+ vs (\d+)", str(error)):
        least = f"{too_small[1]}, the special pieces, the bytes and the characters of {text}"
        return ValueError(f"size must be at least {least}, got {size}. Pass a larger size, or fewer sentinels.")
    return ValueError(f"sentencepiece could not train on {text}: {error}")


def _described(corpus: Corpus) -> Iterator[str]:
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
