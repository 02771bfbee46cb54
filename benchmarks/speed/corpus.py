"""Writes the corpus of this benchmark: `python corpus.py TOKENS` in an empty folder.

Documents of lognormal lengths, 800 tokens on average, made by joining paragraphs of the embedded corpus, drawn with a fixed
seed; lines of 16 text files, `corpus/*.txt`. Prints as JSON how many documents and characters.
"""

import json
import pathlib
import sys

import numpy as np

from ul2_tasks import default_vocabulary
from ul2_tasks.sources.memory import embedded_documents

FILES = 16
MEAN_DOCUMENT = 800
MAX_DOCUMENT = 65536  # t5's recipe cuts longer ones, and drops the rest


def draw_documents(tokens: int) -> list[str]:
    random = np.random.default_rng(0)
    lengths = random.lognormal(np.log(MEAN_DOCUMENT) - 1 / 2, 1, size=max(FILES, tokens // MEAN_DOCUMENT))
    vocabulary = default_vocabulary()
    paragraphs = [(text, len(vocabulary.encode(text))) for text in embedded_documents()]
    return [document(paragraphs, min(int(length), MAX_DOCUMENT), random) for length in lengths]


def document(paragraphs: list[tuple[str, int]], tokens: int, random: np.random.Generator) -> str:
    texts = []
    while tokens > 0:
        text, text_tokens = paragraphs[random.integers(len(paragraphs))]
        if text_tokens > tokens:
            words = text.split()
            text = " ".join(words[: max(1, round(len(words) * tokens / text_tokens))])
        texts.append(text)
        tokens -= text_tokens
    return " ".join(texts)


def main() -> None:
    documents = draw_documents(int(sys.argv[1]))
    folder = pathlib.Path("corpus")
    folder.mkdir()
    for file in range(FILES):
        (folder / f"{file:02}.txt").write_text("\n".join(documents[file::FILES]) + "\n")
    print(json.dumps({"documents": len(documents), "characters": sum(map(len, documents))}))


if __name__ == "__main__":
    main()
