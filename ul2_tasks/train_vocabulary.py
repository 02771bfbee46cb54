"""Trains the vocabulary that ships with this package again: `python -m ul2_tasks.train_vocabulary OUTPUT.model`.

Its corpus is Python's own documentation. Another version of Python has another text, and so gives another vocabulary.
`data/default.json` names the Python and the sentencepiece that made the one that ships, and holds the SHA-256 of its corpus.
For a vocabulary of your own use `ul2 vocab train`.
"""

import sys

from ul2_tasks.sources.memory import embedded_documents
from ul2_tasks.vocabulary.training import train_to_file

_SIZE = 4096

if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m ul2_tasks.train_vocabulary OUTPUT.model")
    print(train_to_file(embedded_documents(), sys.argv[1], size=_SIZE, normalization="nmt_nfkc"))
