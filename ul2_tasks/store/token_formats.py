"""The formats of files of tokens that are read in place, and where the documents of each lie. To add one is to name it in `TOKENS`.

In all of them documents lie back to back. A format lists the files that patterns name, and has a function that gives the `Index` of
one of them; how they are read, shared out and checked is the same for all. Tokens in records, such as in a column of Parquet, are
read as texts are, see `sources.formats`.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import os
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.csv

from ul2_tasks.files.listing import list_files, stamps
from ul2_tasks.files.opening import CORRUPT, open_file
from ul2_tasks.files.systems import exists, is_local, names_in, open_to_read, place, read, size
from ul2_tasks.scalars import is_integer
from ul2_tasks.store.arrays import open_reader
from ul2_tasks.store.index import Index, read_index

_AT_A_TIME = 1 << 24  # tokens in which ends are looked for


@dataclasses.dataclass(frozen=True)
class TokenFormat:
    """A format of files of tokens.

    Attributes:
        names: lists the names of files that patterns name; of Megatron's, what is common to those of a pair.
        index: says where the documents of a file lie, by its name and this format.
        files: what follows the name in the names of all of its files.
        cuts_documents: whether a document may go on in the next file, so that it does not end with EOD.
        dtype, eod: those of files that do not say them; else None.
    """

    names: Callable[[Sequence[str]], list[str]]
    index: Callable[[str, TokenFormat], Index]
    files: tuple[str, ...] = ("",)
    cuts_documents: bool = False
    dtype: str | None = None
    eod: int | None = None

    def read(self, name: str) -> Index:
        """Where the documents of a file lie."""
        return self.index(name, self)


def _megatron_names(patterns: Sequence[str]) -> list[str]:
    return [path.removesuffix(".idx") for path in list_files([f"{pattern}.idx" for pattern in patterns])]


def _megatron(prefix: str, format: TokenFormat) -> Index:
    return read_index(f"{prefix}.idx")


def _without(patterns: Sequence[str], endings: tuple[str, ...]) -> list[str]:
    """The files that patterns name, without those beside the files of tokens."""
    return [path for path in list_files(patterns) if not path.endswith(endings)]


def _datatrove(name: str, format: TokenFormat) -> Index:
    """The ends of documents, uint64, are in NAME.index; the tokenizer and the bytes of a token in line 1 of NAME.metadata."""
    path, metadata = f"{name}.index", f"{name}.metadata"
    if not exists(path):
        raise ValueError(f"{path} must be beside {name}, got none. Copy it, or read 'flat:{name}' with dtype and eod.")
    ends = open_reader(path)("<u8", 0, size(path) // 8).astype(np.int64)
    said = read(metadata).decode().split("\n")[0] if exists(metadata) else ""
    made_with, _, width = said.rpartition("|")
    dtype = np.dtype(f"<u{width}") if width in ("2", "4") else _dtype_of_size(name, size(name), ends)
    return Index(path, name, dtype, len(ends), ends, made_with=made_with)


def _dtype_of_size(name: str, size: int, ends: np.ndarray) -> np.dtype:
    tokens = int(ends[-1:].sum())
    if size not in (2 * tokens, 4 * tokens):
        raise ValueError(f"{name} must have 2 or 4 bytes for each of the {tokens} tokens of its index, got {size}. Copy both.")
    return np.dtype("<u2" if size == 2 * tokens else "<u4")


def _npy_header(name: str, what: str, kinds: str) -> tuple[np.dtype | None, int]:
    """The dtype of a file of .npy, of one of these kinds, and where its values begin; None and 0 of any other file."""
    with open_to_read(name) as file:
        if file.read(8) != b"\x93NUMPY\1\0":
            return None, 0
        _, is_by_columns, dtype = np.lib.format.read_array_header_1_0(file)
        if is_by_columns or dtype.kind not in kinds or dtype != dtype.newbyteorder("<"):
            raise ValueError(f"{name} must have {what}, little-endian and row after row, got {dtype}. Write them so.")
        return dtype, file.tell()


def _flat(name: str, format: TokenFormat) -> Index:
    """Dolma's NAME.csv.gz says the first token and the end of each document, if it is there; else each ends with EOD."""
    dtype, begin = _npy_header(name, "integers", "iu")
    dtype = dtype or (np.dtype(format.dtype).newbyteorder("<") if format.dtype else None)
    path = f"{os.path.splitext(name)[0]}.csv.gz"
    if exists(path):
        ends = _ends_in_table(path)
        return Index(path, name, dtype or _dtype_of_size(name, size(name), ends), len(ends), ends, begin=begin)
    if dtype is None or format.eod is None:
        missing = "dtype" if dtype is None else "eod"
        raise ValueError(
            f"{missing} must be that of {name}, as no {path} is beside it, got None. Pass open_source(.., {missing}=..)."
        )
    tokens = (size(name) - begin) // dtype.itemsize
    starts = range(0, tokens, _AT_A_TIME)
    blocks = (open_reader(name)(dtype, begin + start * dtype.itemsize, min(_AT_A_TIME, tokens - start)) for start in starts)
    ends = np.concatenate(
        [np.zeros(0, np.int64), *(np.flatnonzero(each == format.eod) + start + 1 for start, each in zip(starts, blocks))]
    )
    if left := tokens - int(ends[-1:].sum()):
        raise ValueError(f"{name} must end with {format.eod}, got {left} tokens after the last. Pass the id that ends documents.")
    return Index(name, name, dtype, len(ends), ends, begin=begin)


def _ends_in_table(path: str) -> np.ndarray:
    """Where documents end, by the first two columns, in which each begins where the one before ends."""
    columns = pa.csv.ConvertOptions(include_columns=["f0", "f1"], column_types={"f0": pa.int64(), "f1": pa.int64()})
    try:
        with open_file(path) as file:
            options = pa.csv.ReadOptions(autogenerate_column_names=True), pa.csv.ParseOptions(newlines_in_values=True)
            starts, ends = (column.to_numpy() for column in pa.csv.read_csv(file, *options, columns).columns)
    except CORRUPT as error:
        raise ValueError(f"{path} must be a table of documents, got another file: {error}. Write or copy it again.") from error
    if starts[0] or (starts[1:] != ends[:-1]).any():
        raise ValueError(f"{path} must have documents that follow each other, got a gap. Write or copy it again.")
    return ends


# litData's numbers of dtypes of PyTorch and NumPy.
_DTYPES = {
    "no_header_tensor": {11: "u1", 12: "i1", 13: "<i2", 14: "<i2", 15: "<i4", 16: "<i4", 17: "<i8", 18: "<i8", 20: "<u2"},
    "no_header_numpy": dict(enumerate(("i1", "<i2", "<i4", "<i8", "u1", "<u2", "<u4", "<u8"))),
}


def _litdata_names(patterns: Sequence[str]) -> list[str]:
    found = []
    for path in list_files([place(pattern, "index.json") for pattern in patterns]):
        folder, listed = os.path.dirname(path), _litdata_index(path, stamps([path])[0])[1]
        if other := listed.keys() ^ {name for name in names_in(folder) if name.endswith(".bin")}:
            raise ValueError(f"{path} must list the chunks beside it, got others, such as {min(other)}. Copy the folder again.")
        found += [place(folder, name) for name in listed]
    return found


@functools.lru_cache(maxsize=64)
def _litdata_index(path: str, stamp: str) -> tuple[np.dtype, dict[str, tuple[int, int]]]:
    """The dtype of tokens, and the documents and tokens of each chunk."""
    try:
        found = json.loads(read(path))
        config, (kind, _, number) = found["config"], found["config"]["data_format"][0].partition(":")
        chunks = {chunk["filename"]: (chunk["chunk_size"], chunk["dim"]) for chunk in found["chunks"]}
        if (
            config["compression"]
            or config["encryption"]
            or not all(is_integer(each, 0) for pair in chunks.values() for each in pair)
        ):
            raise ValueError(config)
        return np.dtype(_DTYPES[kind][int(number)]), chunks
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise ValueError(
            f"{path} must be of chunks of tokens alone, neither compressed nor encrypted, got others. Write them by"
            " optimize(.., item_loader=TokensLoader()) of tensors of integers, or write Parquet."
        ) from error


def _litdata(name: str, format: TokenFormat) -> Index:
    """A chunk has the number n of its documents, uint32, and at which byte each begins, and the last ends, [n + 1] uint32."""
    path = place(os.path.dirname(name), "index.json")
    dtype, chunks = _litdata_index(path, stamps([path])[0])
    documents, tokens = chunks[os.path.basename(name)]
    begin = 4 * (documents + 2)
    header = open_reader(name)("<u4", 0, documents + 2).astype(np.int64) if size(name) >= begin else np.zeros(2, np.int64)
    ends = (header[2:] - begin) // dtype.itemsize
    if (*header[:2], ends[-1:].sum()) != (documents, begin, tokens):
        raise ValueError(f"{name} must have {documents} documents and {tokens} tokens, as {path} says, got others. Copy both.")
    return Index(path, name, dtype, documents, ends, begin=begin)


def weights_beside(files: Sequence[str], names: Sequence[str], format: TokenFormat) -> tuple[list[str], TokenFormat]:
    """Files with the weights of tokens in the loss, one for each file of tokens, and how they are read, see `Store.open`.

    A file has one number for each token: bool or uint8, of 0 and 1, or float32, which is read by its bits, as int32. It is .npy, or
    has nothing but the numbers.
    """
    files, names = ([os.path.abspath(each) if is_local(each) else each for each in of] for of in (files, names))
    return files, TokenFormat(list, functools.partial(_weights, of=dict(zip(files, names)), tokens=format))


def _weights(file: str, format: TokenFormat, of: Mapping[str, str], tokens: TokenFormat) -> Index:
    index = tokens.read(of[file])
    dtype, begin = _npy_header(file, "weights, bool, uint8 or float32", "buf")
    dtype = dtype or np.dtype({index.tokens: "u1", 4 * index.tokens: "<f4"}.get(size(file), "V1"))
    if dtype not in ("bool", "u1", "<f4"):
        raise ValueError(
            f"{file} must have a weight for each of the {index.tokens} tokens of {of[file]}, bool, uint8 or float32, got"
            f" {size(file)} bytes of {dtype}. Write it so."
        )
    return Index(file, file, np.dtype("<i4" if dtype == "<f4" else "u1"), index.documents, np.cumsum(index.lengths), begin=begin)


MEGATRON = TokenFormat(_megatron_names, _megatron, (".idx", ".bin"))
TOKENS: Mapping[str, TokenFormat] = {
    "megatron": MEGATRON,
    "datatrove": TokenFormat(functools.partial(_without, endings=(".index", ".metadata", ".loss")), _datatrove, (".index", "")),
    "flat": TokenFormat(functools.partial(_without, endings=(".csv.gz", ".json")), _flat, cuts_documents=True),
    "litdata": TokenFormat(_litdata_names, _litdata),
}
