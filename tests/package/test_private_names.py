"""The private names of other packages that this one uses: each is listed here with its use, and is still there.

Where a new release of TensorFlow, SeqIO or t5x makes one of these tests fail, the table says what the name was needed for.
"""

import ast
import pathlib
import re

REPOSITORY = pathlib.Path(__file__).parents[2]
FILES = [*REPOSITORY.glob("ul2_tasks/**/*.py")]

# What is read, with the file that does, and why there is no public name for it.
READ = {
    # the check that a mixture's tasks have the same features, with which SeqIO's get_dataset begins
    ("_check_compatible_features", "ul2_tasks/tasks/providers.py"),
    # that a SentencePiece vocabulary of SeqIO's tokenizes by another library
    ("_use_fast_tokenizer", "ul2_tasks/tasks/vocabulary.py"),
    # which attention a model of Transformers runs, and so which masks it takes (tests/pytorch/test_packed_training.py)
    ("_attn_implementation", "ul2_tasks/pytorch/packed_attention.py"),
    # the columns that Trainer keeps; it asks each batch for those of label_names (tests/denoisers/test_loss_weights.py)
    ("_signature_columns", "ul2_tasks/pytorch/group_trainer.py"),
    # what t5x's models leave to those that are made of them, the pass through the network; and what a checkpoint is restored with
    ("_compute_logits", "ul2_tasks/t5x/losses.py"),
    ("_partitioner", "ul2_tasks/t5x/initial_checkpoint.py"),
    # the place of a sample in the stream, to read masks there, and what fills one up (tests/pytorch/test_megatron_dataset.py)
    ("_query_document_sample_shuffle_indices", "ul2_tasks/pytorch/megatron.py"),
    ("_pad_token_id", "ul2_tasks/pytorch/megatron.py"),
    # Numba's cache of a function, which otherwise sees the function's own file alone
    ("_cache", "ul2_tasks/compiled.py"),
    ("_cache_path", "ul2_tasks/compiled.py"),
    ("_impl", "ul2_tasks/compiled.py"),
    # what Hugging Face's Dataset is known by, and the steps of an IterableDataset (tests/sources/test_dataset_objects.py)
    ("_fingerprint", "ul2_tasks/sources/dataset_objects.py"),
    ("_ex_iterable", "ul2_tasks/sources/dataset_objects.py"),
}


def is_private(name: str) -> bool:
    return bool(re.fullmatch(r"_[a-zA-Z]\w*[a-zA-Z]", name))


def read_in(path: pathlib.Path) -> set[str]:
    """The private names that a file reads, as attributes, by `getattr`, and as modules."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute):
            found.add(node.attr)
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("getattr", "hasattr", "setattr"):
            found |= {node.args[1].value} if isinstance(node.args[1], ast.Constant) else set()
        elif isinstance(node, ast.Import | ast.ImportFrom):
            module = getattr(node, "module", None)
            found |= {module} if module else {alias.name for alias in node.names}
    return {name for name in found if is_private(name) or name.startswith("tensorflow.python")}


def defined_in(path: pathlib.Path) -> set[str]:
    defined = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            defined.add(node.name)
        elif isinstance(getattr(node, "ctx", None), ast.Store) and getattr(getattr(node, "value", None), "id", "self") == "self":
            defined.add(getattr(node, "id", getattr(node, "attr", "")))
    return defined


def test_the_list_is_whole():
    own = set().union(*map(defined_in, FILES)) | {"_asdict", "_fields", "_replace"}  # these three are a named tuple's
    read = {(name, str(path.relative_to(REPOSITORY))) for path in FILES for name in read_in(path) - own}
    assert read == READ
