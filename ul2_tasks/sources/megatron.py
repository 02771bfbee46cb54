"""`MegatronSource`: a corpus that is tokenized already, in pairs of `.bin` and `.idx` files as Megatron-LM writes them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

import numpy as np

from ul2_tasks.files.listing import list_files
from ul2_tasks.scalars import as_python, check_split, is_integer
from ul2_tasks.sources.base import DataSource, kept
from ul2_tasks.store.read import Store

PREFIX = "megatron:"
KEEP = "keep"
_LOOKED_AT = 256  # documents, to see how they end


class MegatronSource(DataSource):
    """Documents of tokens, which are read in place, as a token store is.

    The tokens are the tokenizer's own ids; a corpus of them is registered with the vocabulary that they were made with. Where
    every document ends with EOD, as after `preprocess_data.py --append-eod`, it is taken off, because a denoiser's examples have
    EOS where they end; with `separate_documents` it stays, and has to be there.
    """

    def __init__(self, split_to_prefixes: Mapping[str, str | Sequence[str]], eod: int | str | None = None):
        """Takes for each split the common beginning of PREFIX.bin and PREFIX.idx, or a glob of such, or a list of these.

        `eod` is the token that ends each document and is taken off, one of the tokenizer's own ids; "keep" takes nothing off. By
        default it is the vocabulary's EOS, if all documents end with it.
        """
        eod = as_python(eod)
        if not (eod is None or eod == KEEP or is_integer(eod, at_least=0)):
            raise ValueError(f"eod must be an id of the tokenizer, 'keep', or None for the vocabulary's EOS, got {eod!r}.")
        super().__init__(split_to_prefixes)
        self._prefixes = {
            split: [prefixes] if isinstance(prefixes, str | os.PathLike) else list(prefixes)
            for split, prefixes in split_to_prefixes.items()
        }
        self._eod = eod

    def __repr__(self) -> str:
        return f"MegatronSource({self._prefixes}{self._changed})"

    def contents(self, split: str) -> str:
        """The tokens of a split, wherever they lie, see `Store.contents`, and what is taken off."""
        return f"{self.store(split).contents}{self._changed}"

    @property
    def _changed(self) -> str:
        """The setting that is not the default, in words."""
        return "" if self._eod is None else f", eod={self._eod!r}"

    @property
    def any_number_of_shards(self) -> bool:
        return True

    def list_shards(self, split: str) -> Sequence[str]:
        return self.store(split).prefixes

    def count(self, split: str) -> int:
        return self.store(split).documents

    def patterns(self, split: str) -> list[str]:
        """What names the pairs of a split, without their endings."""
        check_split(split, self.splits, self)
        return [os.path.expanduser(str(prefix)).removesuffix(".bin").removesuffix(".idx") for prefix in self._prefixes[split]]

    @kept
    def store(self, split: str) -> Store:
        """The documents of a split, EOD included."""
        paths = list_files([f"{prefix}.idx" for prefix in self.patterns(split)])
        return Store.open([path.removesuffix(".idx") for path in paths])

    @kept
    def documents(self, split: str, ids: int, eos: int | None) -> Store:
        """The documents of a split without EOD, once they are checked against a vocabulary.

        `ids` is how many ids the tokenizer has, and `eos` its own id of EOS, or None. Some hundred documents, spread over the
        split, are checked: the vocabulary has all their ids, and each ends with the `eod` that was given.
        """
        store = self.store(split)
        numbers = np.unique(np.linspace(0, store.documents - 1, min(store.documents, _LOOKED_AT)).astype(np.int64))
        tokens, lengths = store.read_documents(numbers)
        if not len(tokens):
            raise ValueError(f"{self!r} has no token in split {split!r}. Name another split.")
        wrong = tokens[(tokens < 0) | (tokens >= ids)]
        if len(wrong):
            raise ValueError(
                f"{self!r} must have the tokenizer's ids 0 to {ids - 1}, got {wrong[0]}. Register it with the vocabulary that"
                " tokenized it."
            )
        if self._eod == KEEP:
            return store
        last = tokens[np.cumsum(lengths)[lengths > 0] - 1]
        eod = eos if self._eod is None else self._eod
        if eod is None or not (last == eod).all():
            if self._eod is None and (eod is None or not (last == eod).any()):
                return store
            if self._eod is None:
                raise ValueError(
                    f"the documents of {self!r} must all end with EOD, or none, got {(last == eod).sum()} of {len(last)} that end"
                    f" with {eod}, such as of parts that were written in two ways. Pass eod='keep', or read two corpora."
                )
            raise ValueError(
                f"eod must be the id that ends each document of {self!r}, such as {last[last != eod][0]}, got {eod}. Pass that"
                " id, or 'keep'."
            )
        return store.ending_with(int(eod))
