"""Trains a SentencePiece vocabulary with sentinels and mode tokens, from which every text comes back as it was.

At a tiny size, on the built-in corpus:

    python recipes/train_vocabulary.py

At a real size, on JSON Lines or on text files, each of which is a document. Give them shuffled, because reading stops after so many
characters; training on 100 million takes some gigabytes, and minutes:

    python recipes/train_vocabulary.py 'corpus/*.jsonl.gz' --size 32000 --output my.model

Look at: the round trip, which ends with "nothing is lost". The same files and release of sentencepiece give the same bytes. The
vocabulary that comes with this package is that of `--size 4096 --normalization nmt_nfkc --sentinels 256`.
"""

import argparse
import io
import json
import re
from collections.abc import Iterable, Iterator

import fsspec
import sentencepiece

import ul2_tasks

PARTS = re.compile(r".{1,4000}(?=\s|\Z)|.{1,4000}", re.DOTALL)  # of a text, between words where it has some
MODES = ("[R]", "[S]", "[X]")
KEPT = {"remove_extra_whitespaces": False, "add_dummy_prefix": False, "allow_whitespace_only_pieces": True}


def documents(paths: list[str], key: str) -> Iterator[str]:
    """The texts of files, or of the built-in corpus."""
    if not paths:
        yield from ul2_tasks.embedded_documents()
    for path in paths:
        for file in fsspec.open_files(path, "rt", compression="infer", encoding="utf-8"):
            with file as lines:
                yield from (json.loads(line)[key] for line in lines) if ".json" in file.path else [lines.read()]


def sentences(texts: Iterable[str], most: int) -> Iterator[str]:
    """Short parts of texts, up to so many characters. sentencepiece leaves out long sentences, and all that have U+2585."""
    read = 0
    for text in texts:
        if read >= most:
            break
        read += len(text)
        yield from PARTS.findall(text.replace("\u2585", " "))


def train(texts: Iterable[str], size: int, model_type="unigram", sentinels=256, modes=MODES, normalization="identity") -> bytes:
    """A model of `size` ids: padding 0, EOS 1, unknown 2, sentinels, modes, the 256 bytes, and pieces of the text."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts),
        model_writer=model,
        model_type=model_type,
        vocab_size=size,
        pad_id=0,
        eos_id=1,
        unk_id=2,
        bos_id=-1,
        # Control pieces: a text that spells "<extra_id_0>" is encoded to a user-defined piece, and to no control piece.
        control_symbols=[*(f"<extra_id_{number}>" for number in range(sentinels)), *modes],
        byte_fallback=True,  # no text is encoded to unknown
        normalization_rule_name=normalization,
        **(KEPT if normalization == "identity" else {}),
        max_sentence_length=1 << 20,
        num_threads=1,  # so that the bytes are the same each time
        minloglevel=1,
    )
    return model.getvalue()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("files", nargs="*", help="JSON Lines, or text files")
    parser.add_argument("--key", default="text", help="the field of the text")
    parser.add_argument("--size", type=int, default=2000)
    parser.add_argument("--sentinels", type=int, default=256)
    parser.add_argument("--normalization", default="identity", help="nmt_nfkc is T5's")
    parser.add_argument("--model_type", default="unigram", help="or bpe")
    parser.add_argument("--characters", type=int, default=100_000_000)
    parser.add_argument("--output", default="my.model")
    args = parser.parse_args()
    found = sentences(documents(args.files, args.key), args.characters)
    with open(args.output, "xb") as file:  # which is new
        file.write(train(found, args.size, args.model_type, args.sentinels, normalization=args.normalization))
    lost = ul2_tasks.check_round_trip(ul2_tasks.open_vocabulary(args.output))
    print(f"wrote {args.output}: {args.size} ids;", "; ".join(lost) or "nothing is lost")
