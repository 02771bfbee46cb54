"""`TokenSource`: a corpus that is tokenized already, in files that are read in place, see `token_formats`."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence

import numpy as np

from ul2_tasks.files.listing import list_files
from ul2_tasks.scalars import as_python, check_split, is_integer
from ul2_tasks.sources.base import DataSource, kept
from ul2_tasks.store.read import Store
from ul2_tasks.store.token_formats import TOKENS, weights_beside

KEEP = "keep"
_LOOKED_AT = 256  # documents, to see how they end


class TokenSource(DataSource):
    """Documents of tokens, which are read in place, as a token store is.

    The tokens are the tokenizer's own ids; a corpus of them is registered with the vocabulary that they were made with. Where
    every document ends with EOD, as after `preprocess_data.py --append-eod`, it is taken off, because a denoiser's examples have
    EOS where they end; with `separate_documents` it stays, and has to be there.
    """

    text_key = "text"  # as descriptions of it have, though it has no fields

    def __init__(
        self,
        format: str,
        split_to_prefixes: Mapping[str, str | Sequence[str]],
        eod: int | str | None = None,
        dtype: str | None = None,
        loss_weight_key: str | Sequence[str] | Mapping[str, str | Sequence[str]] | None = None,
    ):
        """Takes for each split files of one of `TOKENS`, or globs or folders of such; of Megatron's the common beginning of a pair.

        `eod` is the token that ends each document and is taken off, one of the tokenizer's own ids; "keep" takes nothing off. By
        default it is the vocabulary's EOS, if all documents end with it. `dtype` is that of the tokens of flat files.
        `loss_weight_key` are the files of weights, see `token_formats.weights_beside`, of the one split or of each.
        """
        eod = as_python(eod)
        if not (eod is None or eod == KEEP or is_integer(eod, at_least=0)):
            raise ValueError(f"eod must be an id of the tokenizer, 'keep', or None for the vocabulary's EOS, got {eod!r}.")
        super().__init__(split_to_prefixes)
        self.format = format
        self._prefixes = {
            split: [prefixes] if isinstance(prefixes, str | os.PathLike) else list(prefixes)
            for split, prefixes in split_to_prefixes.items()
        }
        self._eod, self._dtype, self.loss_weight_key = eod, dtype, loss_weight_key

    def __repr__(self) -> str:
        return f"TokenSource({self.format!r}, {self._prefixes}{self._changed})"

    def contents(self, split: str) -> str:
        """The tokens of a split, wherever they lie, see `Store.contents`, and what is taken off."""
        weights = self.weights(split)
        return f"{self.store(split).contents}{self._changed}{f', weights {weights.contents}' if weights else ''}"

    @property
    def _changed(self) -> str:
        """The settings that are not the default, in words."""
        settings = {"eod": self._eod, "dtype": self._dtype, "loss_weight_key": self.loss_weight_key}
        return "".join(f", {name}={value!r}" for name, value in settings.items() if value is not None)

    @property
    def any_number_of_shards(self) -> bool:
        return True

    def list_shards(self, split: str) -> Sequence[str]:
        return self.store(split).prefixes

    def count(self, split: str) -> int:
        return self.store(split).documents

    def patterns(self, split: str) -> list[str]:
        """What names the files of a split; those of pairs without their endings."""
        check_split(split, self.splits, self)
        endings = TOKENS[self.format].files
        found = [os.path.expanduser(str(prefix)) for prefix in self._prefixes[split]]
        return [path.removesuffix(endings[0]).removesuffix(endings[-1]) for path in found]

    @kept
    def store(self, split: str) -> Store:
        """The documents of a split, EOD included."""
        eod = self._eod if isinstance(self._eod, int) else None
        said = dataclasses.replace(TOKENS[self.format], dtype=self._dtype, eod=eod)
        return Store.open(said.names(self.patterns(split)), said)

    @kept
    def weights(self, split: str) -> Store | None:
        """The weights of these documents' tokens; None where all are 1."""
        named, store = self.loss_weight_key, self.store(split)
        named = named[split] if isinstance(named, Mapping) else named
        if named is None:
            return None
        files = list_files([named] if isinstance(named, str | os.PathLike) else named)
        if len(files) != len(store.prefixes):
            raise ValueError(f"loss_weight_key must name a file for each of {len(store.prefixes)} of tokens, got {len(files)}.")
        return Store.open(*weights_beside(files, store.prefixes, store.format))

    @kept
    def documents(self, split: str, ids: int, eos: int | None) -> Store:
        """The documents of a split without EOD, once they are checked against a vocabulary.

        `ids` is how many ids the tokenizer has, and `eos` its own id of EOS, or None. Some hundred documents, spread over the
        split, are checked: the vocabulary has all their ids, and each ends with the `eod` that was given. The ids of all others are
        checked where they are read.
        """
        store = self.store(split).ending_with(None, ids)
        numbers = np.unique(np.linspace(0, store.documents - 1, min(store.documents, _LOOKED_AT)).astype(np.int64))
        tokens, lengths = store.read_documents(numbers)
        if not len(tokens):
            raise ValueError(f"{self!r} has no token in split {split!r}. Name another split.")
        if self._eod == KEEP:
            return store
        last = tokens[np.cumsum(lengths)[lengths > 0] - 1]
        eod = eos if self._eod is None else self._eod
        if eod is None or not ((last == eod).any() if store.format.cuts_documents else (last == eod).all()):
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
