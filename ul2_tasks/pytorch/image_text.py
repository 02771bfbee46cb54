"""Rows of texts and images as a PyTorch dataset: sharded over processes and workers, and resumed at a place."""

from __future__ import annotations

import copy
import dataclasses
import itertools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ul2_tasks.cached import cached_property
from ul2_tasks.images.elements import ElementKind
from ul2_tasks.images.left import Left
from ul2_tasks.images.problems import Problems
from ul2_tasks.images.recipe import ADDED, Recipe, Source
from ul2_tasks.images.rows import RowMaker
from ul2_tasks.images.samples import with_others
from ul2_tasks.images.special_tokens import SpecialTokenConfig
from ul2_tasks.pytorch.shared import for_copy
from ul2_tasks.pytorch.states import check_part, check_state
from ul2_tasks.scalars import is_integer
from ul2_tasks.vocabulary.own_ids import OwnIds

try:
    import torch

    from ul2_tasks.pytorch.passes import Pass, Passes
    from ul2_tasks.pytorch.processes import given_process, reading_process
except ImportError as error:
    raise ImportError(f"ul2_tasks.pytorch.image_text needs the package torch ({error}); pip install 'ul2_tasks[torch]'") from error

if TYPE_CHECKING:
    import seqio

STATE_VERSION = 2
_SHARD = "shard"  # of the settings, the one that joined states lack
_MARKS = ("bos_id", "eos_id", "boi_id", "eoi_id")
_TYPED = {"form": "special_tokens", "always": "required_modalities", "epochs": "num_epochs"}  # arguments by their names in states


class ImageTextDataset(torch.utils.data.IterableDataset):
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

    **Order.** See `pools`. Weights count samples. A source repeats when it ends, in another order and with other random choices,
    until the epochs end. An epoch is over when each source was read once; others than the one that takes longest repeat in it. Each
    iterator has the epochs that `set_epoch` chose. A pool's rows depend on its number alone, and pools are sharded: any number of
    processes and workers gives the same rows, in another order. Every file is read, however few there are.

    **Memory** of a worker: the encoded images of a pool, the page of Parquet that is read, and the pixels of a row; with
    `shuffle_blocks` the encoded images of that many blocks of each source.

    **Resume.** A state is a position: the pool and the row, with the settings, and the counts of skipped records. It is that of the
    last iterator, right after each of its rows. Resuming reads one pool again, and decodes only what is still to come. It needs the
    same settings and the same numbers of processes and workers, otherwise a ValueError shows both. `load_states` takes the states
    of all processes, and resumes on any number of processes and workers.
    `torchdata.stateful_dataloader.StatefulDataLoader` keeps the states of its workers. With a plain DataLoader and workers, the
    dataset does not know where they are.

    **Errors.** A record with an error or one that is too long, and any error of a schema, an encoder or a decoder, raises a
    `RecordError` with its file and index. With on_error="skip" it is logged, counted by source and cause, see `skipped` and
    `skipped_by_source`, and written to `skipped_file`; 100 of one source in succession end the run.
    """

    def __init__(
        self,
        sources: Source | Sequence[Source],
        special_tokens: SpecialTokenConfig,
        vocabulary: seqio.Vocabulary | Callable[[str], Sequence[int]],
        budgets: Mapping[str, int],
        *,
        seed: int = 0,
        pool: int = 256,
        num_epochs: int | None = None,
        on_error: Literal["raise", "skip"] = "raise",
        skipped_file: str | os.PathLike | None = None,
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
            rank, world_size: the number of this process, and how many there are. By default 0 and 1 where accelerate reads, which
                shards the rows itself, otherwise those of `torch.distributed` if it is initialised, otherwise the environment
                variables RANK and WORLD_SIZE, otherwise 0 and 1.

        Raises:
            ValueError: an argument is not as it should be, an id of `special_tokens` is not one of the vocabulary, or its position
                embeddings are too few for the images of a source.
        """
        counts = with_others(tuple(kind.name for kind in kinds if isinstance(kind, ElementKind)))
        if set(budgets) != set(counts._fields):
            raise ValueError(f"budgets must have a number for each of {', '.join(counts._fields)}, got {dict(budgets)!r}.")
        if not callable(vocabulary) and not hasattr(type(vocabulary), "vocab_size"):
            raise ValueError(
                f"vocabulary must be what ul2_tasks.open_vocabulary returns, or a function that returns the ids of a text, got"
                f" {vocabulary!r:.100}."
            )
        if not callable(vocabulary):
            _check_marks(special_tokens, kinds, vocabulary.vocab_size - getattr(vocabulary, "id_shift", 0))
        self._recipe = Recipe(
            sources=tuple(sources) if isinstance(sources, Sequence) else (sources,),
            special_tokens=special_tokens,
            encode=vocabulary if callable(vocabulary) else _Ids(vocabulary, special_tokens, _marks(kinds)),
            budgets=counts(**budgets),
            seed=seed,
            pool=pool,
            epochs=num_epochs,
            on_error=on_error,
            shrink=shrink,
            required_modalities=tuple(required_modalities),
            shuffle_blocks=shuffle_blocks,
            kinds=tuple(kinds),
        )
        self._recipe.pools()
        if skipped_file is not None and on_error == "raise":
            raise ValueError("on_error must be 'skip' with skipped_file, got 'raise'. Pass both, or neither.")
        self._skipped_file = None if skipped_file is None else os.path.abspath(skipped_file)
        self._process, self._started_in = given_process(rank, world_size), None
        self._shard: tuple[int, int] | None = None  # of the last iterator
        self._passes = Passes()
        self._here: dict[str, Any] | None = None  # the place of the last iterator, since a state was loaded; each has its own
        self._epoch = 0  # of the last iterator

    @property
    def recipe(self) -> Recipe:
        """What decides which rows there are, such as `measure_images` measures."""
        return self._recipe

    @property
    def skipped_file(self) -> str | None:
        """The file to which skipped records are appended."""
        return self._skipped_file

    def __getstate__(self) -> dict[str, Any]:
        """For a worker that is spawned, which cannot ask torch.distributed for its process; or any other copy.

        A copy has no iterator: it begins where this one would begin another, and its state is that of this one.
        """
        own = {"_passes": for_copy(self._passes), "_here": copy.deepcopy(self._here)}
        return {**self.__dict__, "_started_in": reading_process(self._process), **own}

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """
        Raises:
            ValueError: the state that was loaded is of other settings or of another epoch; `rank` and accelerate shard the data
                twice. During the iteration: a record has an error, or too many have; there are no rows.
            OSError: a file cannot be reached.
        """
        state = self._passes.begin()
        self._shard = self._own_shard()
        self._here, self._epoch = ({}, self._passes.epoch or 0) if state is None else self._checked(state)
        if self._here.get("ended"):
            self._passes.end()
        return Pass(self._rows(self._here, self._epoch, *self._shard), self._passes)

    def set_epoch(self, epoch: int) -> None:
        """Makes the next iterators have other rows, as `torch.utils.data.distributed.DistributedSampler.set_epoch` does.

            for epoch in range(3):
                dataset.set_epoch(epoch)
                for row in loader:
                    ..

        Iteration 0 has the first `num_epochs` epochs, as without a call, iteration 1 the next ones, and so on. Without `num_epochs`
        the rows begin at that epoch. Workers read it when their iterator begins. A state has it: resume with the same number.

        Args:
            epoch: the number of the iteration, from 0.

        Raises:
            ValueError: it is not such a number.
        """
        if not is_integer(epoch, at_least=0):
            raise ValueError(f"epoch must be an integer of at least 0, got {epoch!r}. Pass the number of the iteration, from 0.")
        self._passes.epoch = int(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Where the last iterator is. If there is none yet, it is the state that was loaded, or the start.

        Returns:
            {"version": int, "settings": {name: str}, "place": dict}, less than 2 kB; and {"epoch": int} after `set_epoch`.
            After `load_states` the place also has what was left then, some 20 bytes for each process and worker of before.

        Raises:
            ValueError: the rows are read by workers, of which this dataset does not know where they are.
        """
        self._passes.check_read_here("Use the StatefulDataLoader of torchdata, or num_workers=0.")
        if self._here is None and self._passes.loaded is not None:
            return self._of_own_shard(self._passes.loaded)
        epoch = (self._passes.epoch or 0) if self._here is None else self._epoch
        of_epoch = {"epoch": epoch} if epoch else {}
        return {
            "version": STATE_VERSION,
            "settings": self._settings() | self._recipe.identity,
            "place": dict(self._here or {}),
            **of_epoch,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Makes iterators begin where the state was saved, until one of them, or of a worker, has come to its end.

        Raises:
            ValueError: it is not a state, or one of another version of this package.
        """
        check_state(state, STATE_VERSION)
        _check_form(state)
        self._load(state)

    def load_states(self, states: Sequence[Mapping[str, Any]]) -> None:
        """Makes iterators begin where several processes were, on any number of processes and workers; see `load_state_dict`.

            states = [torch.load(f"state_{rank}.pt") for rank in range(8)]  # that 8 processes have saved
            dataset.load_states(states)  # in each of, say, 5 processes
            loader = StatefulDataLoader(dataset, batch_size=None, num_workers=3)

        What all of them have not read comes once, the same rows as without a stop, those of earlier pools first. Call it in each
        process, before the workers start.

        Args:
            states: of each process what `state_dict()` returned, of this dataset or of the StatefulDataLoader that reads it.

        Raises:
            ValueError: they are not such states, or not those of all processes and workers of one run, or of another dataset.
        """
        found = [state for given in states for state in _states_in(given)]
        if not found:
            raise ValueError(f"states must be what state_dict() returned in each process, got {states!r:.100}.")
        for state in found:
            check_state(state, STATE_VERSION)
            _check_form(state)
            self._check_settings(state["settings"])
        settings, place, of_epoch = _joined_states(found, self._recipe)
        self._load({"version": STATE_VERSION, "settings": settings, "place": place, **of_epoch})

    def _load(self, state: Mapping[str, Any]) -> None:
        self._passes.load(state)
        self._here = self._shard = None

    def _of_own_shard(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """A state as that of the shard here; of all shards together the first one goes on with what they counted."""
        if _SHARD in state["settings"]:
            return dict(state)
        own = self._settings()[_SHARD]
        place = {name: value for name, value in state["place"].items() if name != "problems" or own.startswith("0 of ")}
        return {**state, "settings": {**state["settings"], _SHARD: own}, "place": place}

    @property
    def skipped(self) -> dict[str, int]:
        """How many records were skipped, by cause, by the last iterator in this process.

        Raises:
            ValueError: the rows are read by workers, each of which counts for itself.
        """
        return dict(self._problems().counts)

    @property
    def skipped_by_source(self) -> dict[str, dict[str, int]]:
        """The same by the name of each source of which some were; see `skipped`."""
        return {name: dict(counts) for name, counts in self._problems().by_source.items()}

    def _problems(self) -> Problems:
        self._passes.check_read_here("Pass skipped_file=PATH, where all of them write what they skip.")
        found = Problems(self._recipe.names_of_sources)
        if self._here and "problems" in self._here:
            found.load(self._here["problems"])
        return found

    def _own_shard(self) -> tuple[int, int]:
        rank, world_size = reading_process(self._process, self._started_in)
        worker = torch.utils.data.get_worker_info()
        number, workers = (worker.id, worker.num_workers) if worker else (0, 1)
        return number * world_size + rank, workers * world_size

    def _settings(self) -> dict[str, str]:
        return {**self._recipe.settings(), _SHARD: "{} of {}".format(*(self._shard or self._own_shard()))}

    def _checked(self, state: Mapping[str, Any]) -> tuple[dict[str, Any], int]:
        """The place of a state, and its epoch."""
        state = self._of_own_shard(state)
        self._check_settings(state["settings"], self._settings()[_SHARD])
        epoch, chosen = int(state.get("epoch", 0)), self._passes.epoch
        if chosen not in (None, epoch):
            raise ValueError(
                f"epoch must be that of the state that was loaded, {epoch}, got {chosen}. Call set_epoch({epoch}) before you"
                " iterate, or load no state."
            )
        return dict(state["place"]), epoch

    def _check_settings(self, saved: Mapping[str, str], shard: str | None = None) -> None:
        """Raises a ValueError if they are those of another dataset, or of another shard than the one that is given."""
        identity = self._recipe.identity
        own = self._recipe.settings() | ({} if shard is None else {_SHARD: shard})
        own |= {name: identity[name] for name in identity if name in saved}  # which states of 1.0.3 do not have
        names = [*own, *(name for name in ADDED if name in saved and name not in own)]
        if other := [name for name in names if saved.get(name) != own.get(name)]:
            shown = "; ".join(f"{_TYPED.get(name, name)} was {saved.get(name)!r} and is {own.get(name)!r}" for name in other)
            raise ValueError(f"the state must be of the same dataset, got another: {shown}. Use the same settings, or start again.")

    def _rows(self, here: dict[str, Any], epoch: int, shard: int, shards: int) -> Iterator[dict[str, Any]]:
        """The rows from a place on, which is changed to be right after each."""
        maker, left = RowMaker(self._recipe, self._skipped_file, epoch), Left.of(here.get("left"))
        if "problems" in here:
            maker.problems.load(here["problems"])
        first, empty, has_given = here.get("pool", 0), 0, bool(here)
        for pool in itertools.dropwhile(lambda pool: pool < first, maker.shard(shard, shards, left)):
            empty += 1
            done = max(left.rows_done(pool), here.get("row", 0))  # after the first pool here is no row
            for row in self._rows_of(pool, done, maker, here):
                empty, has_given = 0, True
                yield row
            here.update(pool=pool + 1, row=0, problems=maker.problems.state())
            if empty > maker.pools_of_epoch:
                raise _no_row(empty, maker)
        if empty and not has_given:
            raise _no_row(empty, maker)
        here["ended"] = True

    def _rows_of(self, pool: int, done: int, maker: RowMaker, here: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """The rows of a pool, without those that are done; what was wrong with its records was counted with these."""
        counted = maker.problems.state()
        if done:
            maker.problems.load({"counts": {}, "in_a_row": {}})
        maker.problems.is_told = not done
        packed = maker.packed(pool)
        maker.problems.is_told = True
        if done:
            maker.problems.load(counted)
        for number, samples in enumerate(packed[done:], done):
            row = maker.row(samples)
            here.update(pool=pool, row=number + 1, problems=maker.problems.state())
            if row is not None:
                yield {name: torch.from_numpy(value) if isinstance(value, np.ndarray) else value for name, value in row.items()}


def _states_in(state: object) -> Iterator[Mapping[str, Any]]:
    """The states of datasets in one of a StatefulDataLoader, which has that of each worker."""
    if not isinstance(state, Mapping):
        return
    if state.get("_steps_since_snapshot"):
        raise ValueError(
            "states must be of a StatefulDataLoader with snapshot_every_n_steps=1, got one"
            f" {state['_steps_since_snapshot']} steps after the states of its workers. Load it on the processes that saved it."
        )
    if {"version", "settings", "place"} <= state.keys():
        yield state
        return
    for value in state.values():
        yield from _states_in(value)


def _joined_states(states: Sequence[Mapping[str, Any]], recipe: Recipe) -> tuple[dict[str, str], dict[str, Any], dict[str, int]]:
    """The settings, the place and the epoch of all shards of a run together."""
    by_shard = {state["settings"].get(_SHARD): state for state in states}
    shards = len(by_shard)
    if len(states) != shards or by_shard.keys() != {f"{shard} of {shards}" for shard in range(shards)}:
        raise ValueError(
            "states must be those of all processes and workers of one run, each once, got"
            f" {', '.join(str(state['settings'].get(_SHARD)) for state in states):.200}. Pass what each process saved."
        )
    in_order = [by_shard[f"{shard} of {shards}"] for shard in range(shards)]
    begun = [(state.get("epoch", 0), state["place"].get("left")) for state in in_order]
    if any(each != begun[0] for each in begun):
        raise ValueError(
            f"states must be of one epoch and one start, got epochs {sorted({epoch for epoch, _ in begun})}. Pass states that were"
            " saved at one step."
        )
    epoch, before = begun[0]
    left, pools = Left.of(before), recipe.pools(epoch)
    places = [(state["place"].get("pool", 0), state["place"].get("row", 0)) for state in in_order]
    problems = Problems(recipe.names_of_sources)
    for state in in_order:
        problems.add(state["place"].get("problems"))
    settings = {name: value for name, value in in_order[0]["settings"].items() if name != _SHARD}
    place = {"left": left.after(places, pools.run(shards, left)).plain, "problems": problems.state()}
    return settings, place, {"epoch": epoch} if epoch else {}


def _check_form(state: Mapping[str, Any]) -> None:
    """Raises a ValueError if a state of this version has not the parts that `ImageTextDataset.state_dict` names."""
    settings: Any = state.get("settings")
    place: Any = state.get("place")
    check_part("epoch", state.get("epoch", 0), is_integer(state.get("epoch", 0), at_least=0), "an integer, 0 or more")
    check_part("settings", settings, isinstance(settings, Mapping), "their values by name")
    check_part("place", place, isinstance(place, Mapping), "a pool, a row in it, and the problems until there")
    if "left" in place:
        _check_left(place["left"])
    if not place or ("left" in place and "pool" not in place):
        return
    for part in ("pool", "row"):
        check_part(part, place.get(part), is_integer(place.get(part), at_least=0), "an integer, 0 or more")
    problems = place.get("problems")
    has_parts = isinstance(problems, Mapping) and all(isinstance(problems.get(part), Mapping) for part in ("counts", "in_a_row"))
    check_part("problems", problems, has_parts, "{'counts': {cause: int}, 'in_a_row': {step: int}}")


def _check_left(left: Any) -> None:
    has_parts = isinstance(left, Mapping) and isinstance(left.get("parts"), list | tuple) and "first" in left
    is_whole = has_parts and all(isinstance(part, list | tuple) and len(part) == 3 for part in left["parts"])
    check_part("left", left, is_whole, "{'parts': [[pool, pool, row], ..], 'first': pool}")
    Left.of(left)


def _check_marks(special_tokens: SpecialTokenConfig, kinds: Sequence[ElementKind], ids: int) -> None:
    of_special_tokens = [(f"{name} of special_tokens", getattr(special_tokens, name)) for name in _MARKS]
    of_kinds = [(f"start_id and end_id of {kind.name}", max(kind.start_id, kind.end_id)) for kind in kinds]
    for name, id in (*of_special_tokens, *of_kinds):
        if id >= ids:
            raise ValueError(
                f"{name} must be below {ids}, the size of the vocabulary, got {id}."
                " Add the token to the tokenizer, or pass the id of a token that no text needs."
            )


def _marks(kinds: Sequence[ElementKind]) -> tuple[int, ...]:
    return tuple(id for kind in kinds if isinstance(kind, ElementKind) for id in (kind.start_id, kind.end_id))


def _no_row(pools: int, maker: RowMaker) -> ValueError:
    return ValueError(
        f"sources must give at least one row, got none of {pools} pools; skipped, by cause: {dict(maker.problems.counts)}."
    )


@dataclasses.dataclass(frozen=True)
class _Ids:
    """The ids of texts, the tokenizer's own. No text becomes a mark."""

    vocabulary: seqio.Vocabulary
    special_tokens: SpecialTokenConfig
    others: tuple[int, ...] = ()  # marks of your own kinds

    def __call__(self, text: str) -> Sequence[int]:
        return self._encode(text)

    @cached_property
    def _encode(self) -> Callable[[str], Sequence[int]]:
        from ul2_tasks.vocabulary.special_ids import id_shift, text_vocabulary

        special_tokens, shift = self.special_tokens, id_shift(self.vocabulary)
        marks = {id + shift for id in (*(getattr(special_tokens, name) for name in _MARKS), *self.others)}
        of_texts = text_vocabulary(self.vocabulary, {id for id in marks if id < self.vocabulary.vocab_size})
        own_encoder = getattr(of_texts, "own_encoder", None)
        return own_encoder() if own_encoder else lambda text: [id - shift for id in of_texts.encode(text)]

    def __reduce__(self) -> tuple[Any, ...]:
        """For a worker that is spawned: what needs no SeqIO, else it opens the vocabulary again."""
        if isinstance(self._encode, OwnIds):
            return copy.copy, (self._encode,)  # which comes out as it is
        return _Ids, (self.vocabulary, self.special_tokens, self.others)
