"""`open_source`: where documents come from, by a short specification."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ul2_tasks.sources.base import DataSource, RecordSource, TfdsName, as_source
from ul2_tasks.sources.dataset_objects import DatasetSource, datasets_by_split
from ul2_tasks.sources.file_source import Files, FileSource
from ul2_tasks.sources.files import Layout
from ul2_tasks.sources.hugging_face import HuggingFaceSource
from ul2_tasks.sources.memory import embedded_corpus
from ul2_tasks.sources.splits import HashSplit
from ul2_tasks.sources.tokens import TokenSource
from ul2_tasks.store.token_formats import TOKENS

if TYPE_CHECKING:
    from ul2_tasks.sources.dataset_objects import Datasets


def open_source(
    spec: DataSource | Files | Mapping[str, Files] | Datasets | Any,
    *,
    text_key: str | None = None,
    loss_weight_key: str | Sequence[str] | None = None,
    group_by: str | None = None,
    id_key: str | None = None,
    validation: float | None = None,
    format: str | None = None,
    documents: str | None = None,
    eod: int | str | None = None,
    dtype: str | None = None,
    as_json: bool = False,
) -> DataSource:
    """Returns a source of documents, for the argument `source` of `register`. Opens no file.

    (One exception: for text files without `documents` it reads some of them, so that the error shows what each choice gives.)

    Args:
        spec: one of
            files: a path, a glob, a folder, or a list of such; local, or of any file system of fsspec (gs://..);
                compressed (.gz .bz2 .xz .zst) or not. They are the split `train`. A dictionary gives the files of each split.
            "hf:NAME", "hf:NAME:CONFIG" or "hf:FOLDER": a dataset of Hugging Face's `datasets`, streamed.
            "tfds:NAME": a dataset of TensorFlow Datasets, such as "tfds:c4/en:3.1.0".
            "megatron:PREFIX": tokens, in PREFIX.bin and PREFIX.idx; a glob of such, a list, or a dictionary by split.
            "datatrove:FILES", "flat:FILES", "litdata:FOLDER": tokens in other files, in the same ways.
            "embedded": the built-in corpus, Python's `help()` topics.
            a `Dataset` or `IterableDataset` of `datasets`, which is the split `train`; or a `DatasetDict` or dictionary of them.
            any `seqio.DataSource`, once SeqIO is imported.
        text_key: the field, column or feature that holds the text, or lists of ids of tokens; by default "text". An open source has
            its own.
        loss_weight_key: the field with the weights of tokens in the loss, see `Mixture`. Of "flat:" and the like the files of the
            weights, a path, a glob or a list, in the order of those of the tokens: bool, uint8 or float32, in .npy or without a
            header of the `dtype` "float32".
        group_by: the field by which records are grouped, see `Mixture`.
        id_key: the field that holds the document's id, a text, bytes or an integer. `validation` and the count of conversations
            use it; by default the text itself is the id.
        validation: the fraction of documents that becomes the split `validation`. A hash of the id decides, so that a document is
            in the same split on every machine and in every order.
        format: of files, "text", "jsonl", "csv", "parquet", "arrow", "tfrecord", "tar" or "mds"; by default what their names end
            with.
        documents: the documents of text files: "line", "file", or "paragraph", which ends at blank lines. Text files need it, and
            other files do not support it.
        eod: of "megatron:" and the like, the token that ends each document and is removed; see `TokenSource`.
        dtype: of the tokens of "flat:" files, or of those in a field of bytes: "uint16", "uint32", "int32" or "int64".
        as_json: of files, of "hf:" and of `datasets`, whether documents are conversations, as `register_chat` reads them: a value
            that is not a text, such as a list of messages, becomes JSON text, and the id may be in the JSON of `metadata_json`,
            too.

    Raises:
        ValueError: an argument has another value, is missing, or does not apply to this source; `validation` is given, but the
            source already has a split of that name.
    """
    spec = TfdsName(spec.removeprefix("tfds:")) if isinstance(spec, str) and spec.startswith("tfds:") else spec
    own = as_source(spec, text_key or "text", id_key)
    opened_with = getattr(own, "text_key", None)
    if own and text_key not in (None, opened_with):
        raise ValueError(f"text_key must be that of the open source {own}, {opened_with!r}, got {text_key!r}. Leave it out.")
    if own and loss_weight_key not in (None, getattr(own, "loss_weight_key", None)):
        raise ValueError(f"loss_weight_key must be that of the open source {own}, got {loss_weight_key!r}. Leave it out.")
    if own and group_by not in (None, own.group_by):
        raise ValueError(f"group_by must be that of the open source {own}, got {group_by!r}. Leave it out.")
    if id_key is not None and validation is None and (own or not as_json):
        raise ValueError(f"id_key must be left out without validation, got {id_key!r}. Pass validation, too, or leave out id_key.")
    if dtype not in (None, "uint16", "uint32", "int32", "int64"):
        raise ValueError(f"dtype must be that of the tokens, 'uint16', 'uint32', 'int32' or 'int64', got {dtype!r}.")
    named, text_key = None if text_key == "text" else text_key, text_key or opened_with or "text"
    if tokens := _tokens(spec):
        _check_left_out(spec, "files of tokens", validation=validation, format=format, documents=documents, text_key=named)
        _check_left_out(spec, "files of tokens", group_by=group_by)
        _check_left_out(spec, "files that say it themselves", dtype=dtype if tokens[0] != "flat" else None)
        return TokenSource(*tokens, eod, dtype, loss_weight_key)
    _check_left_out(spec, f"sources without a prefix of tokens, {' '.join(f'{name}:' for name in TOKENS)}", eod=eod)
    held, text = datasets_by_split(spec), spec if isinstance(spec, str) else ""
    kind, colon, name = text.partition(":")
    layout = Layout(format, documents, text_key, id_key, as_json, dtype, loss_weight_key, group_by)  # type: ignore[arg-type]
    if own or held or text == "embedded" or (kind == "hf" and colon):  # a folder may be called "hf"
        _check_left_out(spec, "sources that are not files", format=format, documents=documents, dtype=dtype)
    if own:
        source: DataSource = own
    elif held:
        source = DatasetSource(held, layout)
    elif text == "embedded":
        _check_left_out(spec, "the built-in corpus", text_key=named, loss_weight_key=loss_weight_key, group_by=group_by)
        source = embedded_corpus()
    elif kind == "hf" and colon:
        path, _, config = name.partition(":")
        if not path:
            raise ValueError(f"source must be 'hf:NAME', 'hf:NAME:CONFIG' or 'hf:FOLDER', got {spec!r}.")
        source = HuggingFaceSource(path, config or None, layout)
    elif spec and isinstance(spec, str | os.PathLike | Sequence | Mapping) and not isinstance(spec, bytes):
        source = FileSource(spec if isinstance(spec, Mapping) else {"train": spec}, layout)
    else:
        raise ValueError(
            "source must be files ('corpus/*.jsonl.gz', a folder, a list of such, or a dictionary of them by split), 'hf:NAME',"
            " 'tfds:NAME', 'megatron:PREFIX', 'embedded', a Dataset of the package datasets, or a seqio.DataSource, got"
            f" {_in_a_line(spec)}."
        )
    if not own:
        source.loss_weight_key, source.group_by = loss_weight_key, group_by
    if validation is None:
        return source
    if not isinstance(source, RecordSource):
        raise ValueError(f"validation must be left out for tokens, which have their own splits, got {validation!r} for {source!r}.")
    split = HashSplit(source, validation, text_key=text_key, id_key=id_key, as_json=as_json)
    split.loss_weight_key, split.group_by = source.loss_weight_key, source.group_by
    if source.knows_splits:
        split.check_splits()
    return split


def _tokens(spec: object) -> tuple[str, dict[str, list[str]]] | None:
    """The format and the files of each split of a specification of tokens; of anything else None. A mixture is refused."""
    by_split = spec if isinstance(spec, Mapping) else {"train": spec}
    names: dict[str, list[Any]] = {
        split: list(each) if isinstance(each, list | tuple) else [each] for split, each in by_split.items()
    }
    kinds = {next((kind for kind in TOKENS if str(name).startswith(f"{kind}:")), "") for each in names.values() for name in each}
    if not any(kinds):
        return None
    if len(kinds) > 1:
        raise ValueError(
            f"source must be either text or tokens of one format, got {spec!r}. Register each of them separately, and mix them."
        )
    (kind,) = kinds
    return kind, {split: [name.removeprefix(f"{kind}:") for name in each] for split, each in names.items()}


def _check_left_out(spec: object, what: str, **arguments: object) -> None:
    for name, value in arguments.items():
        if value is not None:
            raise ValueError(f"{name} must be left out for {what}, got {value!r} with the source {_in_a_line(spec)}.")


def _in_a_line(spec: object) -> str:
    """The `repr`, of which that of a Dataset has several lines."""
    return " ".join(repr(spec).split()) if datasets_by_split(spec) else repr(spec)
