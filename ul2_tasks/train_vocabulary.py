"""Trains the default vocabulary on the embedded corpus: `python -m ul2_tasks.train_vocabulary OUTPUT.model`.

Training is deterministic: one thread, no sampling, and no path in the model. The same corpus and the same release of
`sentencepiece` give the same pieces with the same scores. What can differ: the corpus is Python's own documentation, so
another version of Python has another text, and another vocabulary comes of it. The one that ships was made by the
Python and the sentencepiece that `data/default.json` names, and that file has the corpus's SHA-256.
"""

from __future__ import annotations

import hashlib
import io
import json
import pathlib
import platform
import sys

import sentencepiece

from ul2_tasks.corpora import embedded_documents
from ul2_tasks.denoisers import T5GEMMA2

VOCABULARY_SIZE = 4096
NUM_SENTINELS = 256


def train() -> bytes:
    """A serialized unigram model: pad 0, EOS 1, unknown 2, then sentinels and modes, then bytes, then the pieces of the text."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(embedded_documents()),
        model_writer=model,
        model_type="unigram",
        vocab_size=VOCABULARY_SIZE,
        pad_id=0,
        eos_id=1,
        unk_id=2,
        bos_id=-1,
        # Control pieces, not user-defined ones: a text that spells "<extra_id_0>" never becomes a sentinel.
        control_symbols=[f"<extra_id_{n}>" for n in range(NUM_SENTINELS)] + sorted({denoiser.mode for denoiser in T5GEMMA2}),
        byte_fallback=True,  # no text is unknown
        normalization_rule_name="nmt_nfkc",  # as T5's
        max_sentence_length=1 << 20,
        num_threads=1,
        minloglevel=1,
    )
    return model.getvalue()


def provenance() -> dict[str, str]:
    """What the pieces depend on."""
    return {
        "python": platform.python_version(),
        "sentencepiece": sentencepiece.__version__,
        "corpus_sha256": hashlib.sha256("\0".join(embedded_documents()).encode()).hexdigest(),
    }


def main(output: str) -> None:
    path = pathlib.Path(output)
    path.write_bytes(train())
    path.with_suffix(".json").write_text(json.dumps(provenance(), indent=2) + "\n")
    print(f"wrote {path} and {path.with_suffix('.json')}; use it with seqio.SentencePieceVocabulary({str(path)!r})")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m ul2_tasks.train_vocabulary OUTPUT.model")
    main(sys.argv[1])
