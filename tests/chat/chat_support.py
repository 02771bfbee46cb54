"""The tokenizer file of o200k, made of a package that has it; and conversations that many tests use."""

import gzip
import importlib.util
import pathlib

import numpy as np
import pytest

from ul2_tasks.chat.examples import Stops
from ul2_tasks.chat.harmony import HarmonyRenderer
from ul2_tasks.chat.objective import Objective
from ul2_tasks.chat.segments import as_arrays
from ul2_tasks.chat.supervision import Supervision
from ul2_tasks.export.formats import PAIRS as COLUMNS
from ul2_tasks.store.read import Store
from ul2_tasks.tokenizers.o200k import FILE, O200kVocabulary

GOLDEN = [
    {"role": "user", "content": "What is 2+2?"},
    {"role": "assistant", "channel": "analysis", "content": "Easy."},
    {"role": "assistant", "channel": "final", "content": "4."},
]


def o200k_file(folder: pathlib.Path) -> pathlib.Path:
    """Writes the file into a folder; skips the test where the package that has it is not installed."""
    found = importlib.util.find_spec("bpe_openai")  # never imported
    if found is None:
        pytest.skip("no package has o200k_base.tiktoken; pip install --no-deps bpe-openai==0.1.4")
    packed = pathlib.Path(next(iter(found.submodule_search_locations))) / "data" / f"{FILE}.gz"
    file = folder / FILE
    file.write_bytes(gzip.decompress(packed.read_bytes()))
    return file


def harmony(file) -> HarmonyRenderer:
    pytest.importorskip("tiktoken")
    return HarmonyRenderer(O200kVocabulary(file))


def stops(renderer) -> Stops:
    return Stops(renderer.final_stop, renderer.keeps_history)


def read(renderer, conversations, budget=None, format="chat", **supervision) -> list[dict]:
    """The examples of conversations, one by one, with lists for values."""
    arrays = as_arrays([renderer.render(messages) for messages in conversations], renderer.eod)
    budgets = {"tokens": budget} if format == "chat" else dict(zip(("inputs", "targets"), budget or (None, None)))
    examples = Objective(format, Supervision(**supervision), stops(renderer)).made_of(arrays, budgets)
    bounds = {key: np.cumsum(lengths)[:-1] for key, lengths in examples.lengths.items()}
    split = {key: np.split(values, bounds[key]) for key, values in examples.values.items()}
    number = len(examples.conversations)
    return [{key: split[key][place].tolist() for key in split} for place in range(number)]


def read_shard(where: str, shard: str) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """The tokens, masks and loss groups of a shard of an export, [tokens] each, and the length of each sequence."""
    stores = {column: Store.open([f"{where}/{shard}_{column}"]) for column in COLUMNS}
    of_each = {column: store.read_documents(np.arange(store.documents)) for column, store in stores.items()}
    return {column: values for column, (values, _) in of_each.items()}, of_each["tokens"][1]
