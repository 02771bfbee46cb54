"""Rows of texts and images as a PyTorch dataset: shared out to processes and workers, and resumed at a number."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from ul2_tasks.cached import cached_property
from ul2_tasks.extras import needs
from ul2_tasks.image_rows.custom import ElementKind, marks_of
from ul2_tasks.image_rows.index import ImageRows
from ul2_tasks.image_rows.recipe import Recipe, Source
from ul2_tasks.image_rows.special_tokens import SpecialTokenConfig
from ul2_tasks.pytorch.states import check_same, state_of
from ul2_tasks.scalars import is_integer
from ul2_tasks.tokenizers.base import Vocabulary
from ul2_tasks.tokenizers.special_ids import as_vocabulary

with needs("ImageTextDataset", "torch"):
    import torch

    from ul2_tasks.pytorch.passes import Resumable
    from ul2_tasks.pytorch.processes import given_process

_RUN = 32  # consecutive rows of a reader: so it reads the records of few pools that others read, too


class _Reading(Iterator[dict[str, Any]]):
    """The rows that one of several readers reads, of all from a number on, in lockstep with the others.

    Rows are read in blocks, in which reader r has the r-th run of consecutive rows. Of 3 readers, with runs of 4:

        reads    0 1 2    3 4 5    6 7 8    9 10 11    12 ..
        rows     0 4 8    1 5 9    2 6 10   3 7  11    12 ..

    Read n, and those n + 1, n + 2 .. of the other readers, are at one time. So `number`, how many reads there were of all readers,
    says which rows they were, with the `start` of its block, and the number of `readers` that share it. From the next block on the
    readers are those that are here.
    """

    def __init__(self, rows: ImageRows, reader: int, readers: int, chosen: int | None):
        """`chosen` is the epoch that the user has chosen."""
        self.rows, self._chosen = rows, chosen
        self._reader, self._readers = reader, readers
        self._number, self._block = 0, (0, readers)

    def __next__(self) -> dict[str, Any]:
        while True:
            self._block = self._block_of(self._number)[:2]
            index = self._row_of(self._number + self._reader)
            if self.rows.available(index + 1) <= index:
                if self._reader == 0:
                    self.rows.end()
                self._number = len(self.rows)
                raise StopIteration
            row = self.rows.read(index)
            self._number += self._readers
            if row is not None:
                return {name: torch.from_numpy(value) if isinstance(value, np.ndarray) else value for name, value in row.items()}

    def resume(self, state: Mapping[str, Any]) -> bool:
        """Goes on where the state was taken; for one that has read nothing yet. Says whether it was at the end."""
        check_same(state["pipeline"], self._pipeline)
        if self._chosen not in (None, epoch := state.get("epoch", 0)):
            raise ValueError(
                f"epoch must be that of the state that was loaded, {epoch}, got {self._chosen}. Call set_epoch({epoch}) before you"
                " iterate, or load no state."
            )
        self.rows, self._number = self.rows.epoch(epoch), state["number"]
        self._block = state.get("start", 0), state.get("readers", self._readers)
        return self.rows.recipe.epochs is not None and self.rows.available(self._number + 1) <= self._number

    def state(self, reads: int = 0) -> dict[str, Any]:
        """Where the readers are, after so many more of their reads; of the rows that there are, if it is asked for."""
        number = min(self._number + reads, self.rows.available(self._number + reads)) if reads else self._number
        start, readers = self._block if number == self._block[0] else self._block_of(number)[:2]
        place = {"epoch": self.rows.number, "number": number, "start": start, "readers": readers}
        return state_of({"pipeline": self._pipeline, **place})

    @property
    def _pipeline(self) -> dict[str, str]:
        return self.rows.recipe.settings() | self.rows.recipe.identity

    def _row_of(self, read: int) -> int:
        start, readers, run = self._block_of(read)
        return start + (read - start) % readers * run + (read - start) // readers if run else read

    def _block_of(self, read: int) -> tuple[int, int, int]:
        """The block of a read: its start, its readers, and how many rows each reads in it; 0 where there are too few for all."""
        start, readers = self._block
        while True:
            run = _RUN if readers == 1 else min(_RUN, (self.rows.available(start + readers * _RUN) - start) // readers)
            if not run or read < start + readers * run:
                return start, readers, run
            start, readers = start + readers * run, self._readers


class ImageTextDataset(Resumable):
    """Packed rows of texts and images, for models that read and generate images. No sample is lost in packing.

        edits = Source(open_records("edits/*.parquet"), "unified_edit", weight=1)
        talks = Source(open_records("talks.jsonl", folder="photos"), "vlm_sft", weight=2)
        dataset = ImageTextDataset(
            [edits, talks], SpecialTokenConfig(bos_id=1, eos_id=2, boi_id=3, eoi_id=4), open_vocabulary("tokenizer.json"),
            {"tokens": 36864, "vit": 16384, "vae": 32768},
        )
        for row in torch.utils.data.DataLoader(dataset, batch_size=None, num_workers=4):
            ..

    A row is a dictionary of the arrays of `row_arrays.Row`, all of them in every row, and of

        packed_vit_patches  [ViT patches, 3 * patch_size * patch_size] uint8, see `patches.patches`
        packed_vae_patches  [VAE patches, 3 * patch_size * patch_size] uint8, the same of the pixels that latents are made of
        ce_tokens           int, how many ids count in the loss
        ce_weight           float, the sum of `ce_loss_weights`
        mse_tokens          int, how many patches are generated
        samples             list of str, the record and the epoch of each sample of `sample_lens`; "dummy" of one that is
                            added for `required_modalities`

    Divide losses by the totals, summed over all processes.

    **Order.** See `pools`. Weights count samples. An epoch is over when each source was read once; others than the one that takes
    longest repeat in it, with other random choices. Processes and workers take turns at runs of 32 rows: any number of them gives
    the same rows, in another order. Let one process count the rows of an epoch before others begin, by `len(dataset.rows())`.

    **Memory** of a worker: the encoded images of two pools, and of `shuffle_blocks` blocks of each source; the pixels of a row.

    **Resume.** A state is of all processes where each has read as many rows. Any number of processes and workers can load it.
    `StatefulDataLoader` of torchdata keeps the states of its workers; with a plain DataLoader, `state_after` has it.

    **Errors.** A record with an error, or one that is too long, raises a `RecordError`. With on_error="skip" it is logged, counted,
    see `skipped`, and written to `skipped_file`; 100 of one source in succession end the run.
    """

    def __init__(
        self,
        sources: Source | Sequence[Source],
        special_tokens: SpecialTokenConfig,
        vocabulary: Vocabulary | Callable[[str], Sequence[int]],
        budgets: Mapping[str, int],
        *,
        seed: int = 0,
        pool: int = 256,
        num_epochs: int | None = None,
        on_error: Literal["raise", "skip"] = "raise",
        skipped_file: str | os.PathLike | None = None,
        counts_folder: str | os.PathLike | None = None,
        shrink: bool = False,
        required_modalities: Sequence[Literal["vit", "vae"]] = (),
        shuffle_blocks: int = 0,
        kinds: Sequence[ElementKind] = (),
        rank: int | None = None,
        world_size: int | None = None,
    ):
        """Opens no file of records.

        Args:
            sources: what is read, one or several.
            special_tokens: the model's special tokens and position embeddings, in the tokenizer's own ids.
            vocabulary: of `open_vocabulary`, with which no text becomes a special token; or any function of a
                text that returns its ids.
            budgets: {"tokens": int, "vit": int, "vae": int}: tokens, ViT patches and VAE patches of a row; and the features of each
                of `kinds`, by its name.
            num_epochs: how many epochs an iterator has; None for no end. By default each gives the same rows, see `set_epoch`.
            seed, pool, on_error, shrink, required_modalities, shuffle_blocks, kinds: see `recipe.Recipe`.
            skipped_file: a file to which each skipped record is appended, a line of JSON: {"source", "cause", "record", "problem"}.
                All workers write it. Pass another file on each machine.
            counts_folder: keeps how many rows pools have; by default they are kept beside the first file of records.
            rank, world_size: the number of this process, and how many there are; see `UL2IterableDataset`.

        Raises:
            ValueError: an argument is not as it should be, an id of `special_tokens` is not one of the vocabulary, or its position
                embeddings are too few for the images of a source.
        """
        super().__init__(given_process(rank, world_size))
        opened = None if callable(vocabulary) else as_vocabulary(vocabulary)
        encode: Any = vocabulary if opened is None else _Ids(opened, special_tokens, tuple(kinds))
        self.recipe = Recipe(
            sources=tuple(sources) if isinstance(sources, Sequence) else (sources,),
            special_tokens=special_tokens,
            encode=encode,
            budgets=budgets,
            seed=seed,
            pool=pool,
            epochs=num_epochs,
            on_error=on_error,
            shrink=shrink,
            required_modalities=tuple(required_modalities),
            shuffle_blocks=shuffle_blocks,
            kinds=tuple(kinds),
        )
        self.recipe.pools()
        if opened is not None:
            _check_marks(special_tokens, kinds, opened.vocab_size)
        if skipped_file is not None and on_error == "raise":
            raise ValueError("on_error must be 'skip' with skipped_file, got 'raise'. Pass both, or neither.")
        self._skipped_file = None if skipped_file is None else os.path.abspath(skipped_file)
        self._counts_folder = None if counts_folder is None else os.fspath(counts_folder)

    def rows(self) -> ImageRows:
        """Returns the rows of an epoch as a map-style dataset with random access, see `ImageRows`."""
        return ImageRows(self.recipe, self._counts_folder, self._skipped_file)

    def set_epoch(self, epoch: int) -> None:
        """Makes the next iterators have other rows, as `torch.utils.data.distributed.DistributedSampler.set_epoch` does.

        Iteration 0 has the first `num_epochs` epochs, as without a call, iteration 1 the next ones, and so on. Without `num_epochs`
        the rows begin at that epoch, see `ImageRows.epoch`. Workers read it when their iterator begins. A state has it.

        Args:
            epoch: the number of the iteration, from 0.

        Raises:
            ValueError: it is not such a number.
        """
        if not is_integer(epoch, at_least=0):
            raise ValueError(f"epoch must be an integer of at least 0, got {epoch!r}. Pass the number of the iteration, from 0.")
        self._passes.epoch = int(epoch)

    def state_after(self, rows: int, num_workers: int = 0) -> dict[str, Any]:
        """The state where each process has read so many rows since the state that was loaded last, or since the start.

        Args:
            rows: of this process, which all others have read, too.
            num_workers: of its DataLoader.
        """
        _, world_size = self._reading_process()
        loaded, epoch = self._passes.loaded, self._passes.epoch
        reading = _Reading(self.rows().epoch(epoch or 0), 0, world_size * max(1, num_workers), None)
        if loaded and epoch in (None, loaded.get("epoch", 0)):
            reading.resume(loaded)
        return reading.state(rows * world_size)

    @property
    def skipped(self) -> dict[str, int]:
        """How many records were skipped, by cause, by the last iterator in this process.

        Raises:
            ValueError: the rows are read by workers, each of which counts for itself.
        """
        return {} if (rows := self._read_rows()) is None else rows.skipped

    @property
    def skipped_by_source(self) -> dict[str, dict[str, int]]:
        """The same by the name of each source of which some were; see `skipped`."""
        rows = self._read_rows()
        return {} if rows is None else {name: dict(counts) for name, counts in rows.problems.by_source.items()}

    def _read_rows(self) -> ImageRows | None:
        self._passes.check_read_here("Pass skipped_file=PATH, where all of them write what they skip.")
        return None if self._elements is None else self._elements.rows

    def _new_elements(self) -> _Reading:
        (rank, world_size), epoch = self._reading_process(), self._passes.epoch
        worker = torch.utils.data.get_worker_info()
        number, workers = (worker.id, worker.num_workers) if worker else (0, 1)
        return _Reading(self.rows().epoch(epoch or 0), number * world_size + rank, workers * world_size, epoch)


def _check_marks(special_tokens: SpecialTokenConfig, kinds: Sequence[ElementKind], ids: int) -> None:
    of_special_tokens = [(f"{name} of special_tokens", id) for name, id in [*vars(special_tokens).items()][:4]]
    of_kinds = [(f"start_id and end_id of {kind.name}", max(kind.start_id, kind.end_id)) for kind in kinds]
    for name, id in (*of_special_tokens, *of_kinds):
        if id >= ids:
            raise ValueError(
                f"{name} must be below {ids}, the size of the vocabulary, got {id}."
                " Add the token to the tokenizer, or pass the id of a token that no text needs."
            )


@dataclasses.dataclass(frozen=True)
class _Ids:
    """The ids of texts. No text becomes a mark."""

    vocabulary: Vocabulary
    special_tokens: SpecialTokenConfig
    kinds: Sequence[ElementKind] = ()

    def __call__(self, text: str) -> Sequence[int]:
        return self._encode(text)

    @cached_property
    def _encode(self) -> Callable[[str], Sequence[int]]:
        marks = {*self.special_tokens.ids, *marks_of(self.kinds)}
        return self.vocabulary.never_encoding({id for id in marks if id < self.vocabulary.vocab_size}).encode

    def __reduce__(self) -> tuple[Any, ...]:
        """For a worker that is spawned, which opens the vocabulary again."""
        return _Ids, (self.vocabulary, self.special_tokens, self.kinds)
