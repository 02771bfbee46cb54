"""Mixtures as a PyTorch dataset: sharded over processes and workers, reproducible, resumable."""

from __future__ import annotations

import importlib
import os
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ul2_tasks.converters.transformers import TASK_ID_OF_STREAM, HuggingFaceChatConverter, HuggingFaceFeatureConverter
from ul2_tasks.denoising.solution import check_rows
from ul2_tasks.example_features import SPAN_ID, token_features
from ul2_tasks.mixtures.chat import Chat
from ul2_tasks.mixtures.image_text import ImageText
from ul2_tasks.mixtures.mix import Mix
from ul2_tasks.mixtures.mixture import Mixture
from ul2_tasks.pytorch.forks import check_process
from ul2_tasks.pytorch.shared import for_copy, starts_worker
from ul2_tasks.pytorch.states import STATE_VERSION, check_form, check_state, state_of
from ul2_tasks.random_access.batches import features_of, has_images, members_of
from ul2_tasks.random_access.sequence import Examples
from ul2_tasks.random_access.tasks import TaskInfo
from ul2_tasks.scalars import check_flag, is_integer, short
from ul2_tasks.tasks.arguments import epochs_of
from ul2_tasks.tasks.examples import examples
from ul2_tasks.tasks.registration import Registration
from ul2_tasks.vocabulary.special_ids import pads_with_0

try:
    import torch

    from ul2_tasks.pytorch.indexed import Indexed
    from ul2_tasks.pytorch.passes import Pass, Passes
    from ul2_tasks.pytorch.processes import Reader, dealt_at_once, given_process, reading_process
except ImportError as error:
    raise ImportError(
        f"ul2_tasks.pytorch.dataset needs the package torch ({error}). Run `pip install 'ul2_tasks[torch]'`."
    ) from error

if TYPE_CHECKING:
    import seqio

    from ul2_tasks.pytorch.streams import Stream
    from ul2_tasks.tasks.carried import Carried


_TASKS_OF_NAME = (
    "mixture must have random access for its tasks, got the name {!r}. Pass ul2_tasks.examples({!r}, ..) to UL2IterableDataset."
)


class UL2IterableDataset(torch.utils.data.IterableDataset):
    """An iterable dataset of PyTorch: the examples of a description, or of a registered mixture or task by its name.

        mixture = ul2_tasks.Mixture(source="corpus/*.jsonl.gz", vocabulary="my.model")
        dataset = UL2IterableDataset(
            mixture, {"inputs": 512, "targets": 512}, feature_converter=HuggingFaceFeatureConverter("longest", batch_size=8)
        )
        for batch in torch.utils.data.DataLoader(dataset, batch_size=None, num_workers=2):
            loss = model(**batch).loss

    Without `feature_converter` an element is one example without padding, {"input_ids": [tokens] int64, "labels": [tokens] int64}.
    Both end with EOS and have the tokenizer's own ids. Pass a batch size and a function that pads to the DataLoader, such as
    `transformers.DataCollatorForSeq2Seq`. Conversations give `span_id`, too, the loss group of each label, and
    labels are -100 where they are not trained on; pairs of prompts and completions give `targets`, too, all ids of the completion,
    and so do mixtures with them. Beside tasks that are not of this package a pair with targets that are not trained on needs a
    converter. Image-text records give `images`, too, the bytes of each. With a `feature_converter`
    an element is what the converter makes, a batch or a padded example; integers become int64, strings become str or lists of str,
    and other types stay. Packed sequences (`examples(.., pack=True)`) are [length] int64 for each feature.

    A description (a `Mixture`, a `Mix`, a `Chat`, an `ImageText`, or what `examples` returned for one) imports neither
    TensorFlow nor SeqIO, and has random access. So has a name, unless it has a text corpus that neither has a cache nor fits in
    a window, or tasks that are not of this package; such names are streams, see the guide "Random access".

    * With random access, step n of R processes with batches of B has the examples n * R * B up to (n + 1) * R * B, with any number
      of workers. `state_dict()` is the index of the next example, and any number of processes and workers can load it.
    * A stream is split among the processes and workers, so batches depend on their numbers. `state_dict()` is a snapshot,
      which the same process and worker can load.

    The guide "PyTorch and Transformers" explains workers, several processes, resuming, and `transformers.Trainer`.
    """

    def __init__(
        self,
        mixture: Mixture | Mix | Chat | ImageText | Examples | str | Registration,
        sequence_length: Mapping[str, int] | None = None,
        *,
        split: str = "train",
        seed: int | None = 0,
        shuffle: bool = True,
        use_cached: bool = False,
        cache_dirs: Sequence[str | os.PathLike] = (),
        num_epochs: int | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        feature_converter: HuggingFaceFeatureConverter | seqio.FeatureConverter | None = None,
        batch_size: int | None = None,
    ):
        """Opens the corpus of a description. For a registered name it opens no file.

        Args:
            mixture: a `Mixture`, a `Mix`, a `Chat` or an `ImageText`; or what `examples` returned for one; or the name of a
                registered mixture or task; or a `Registration`, which is applied in the process that iterates. What `register`,
                `mix` and their like registered goes along to spawned workers. For tasks of SeqIO itself, and sources of lambdas,
                these need a `Registration`.
            sequence_length: {"inputs": int, "targets": int}, the lengths in tokens; of a `Chat` {"tokens": int} makes chats. Leave
                it out, and split, seed, shuffle and cache_dirs, for what `examples` returned.
            split: the split of the corpora, such as "train".
            seed: the seed of the order and the masks. None, for a name alone, gives other examples each time and no state.
            shuffle: False keeps the order of the corpus, as for an evaluation.
            use_cached: whether a registered name is read from its cache.
            cache_dirs: the folders with the caches of a description, see `examples`.
            num_epochs: passes over the corpus; None for no end.
            rank, world_size: the index of this process, and the number of processes. By default 0 and 1 where accelerate reads;
                else those of `torch.distributed` if it is initialized; else the environment variables RANK and WORLD_SIZE; else 0
                and 1.
            feature_converter: converts the examples into model inputs. Descriptions support `HuggingFaceFeatureConverter`, and of
                chats `HuggingFaceChatConverter`, alone.
            batch_size: the batch size of a DataLoader that joins single examples and has several workers, which read with random
                access. Leave it out if the feature converter has one.

        Raises:
            ValueError: rank or world_size is given without the other, or rank is not in 0 .. world_size - 1; batch_size is below
                1, or the feature converter has one, too; an argument does not apply to this mixture; or see `examples`.
        """
        process = given_process(rank, world_size)
        if isinstance(feature_converter, HuggingFaceFeatureConverter):
            feature_converter.check_batch_size()
        converted = getattr(feature_converter, "batch_size", None)
        if batch_size is not None and (converted or not is_integer(batch_size, at_least=1)):
            raise ValueError(
                f"batch_size must be given once, and be at least 1, got {batch_size!r} here and {converted!r} in the feature"
                " converter. Pass it here where the DataLoader joins single examples."
            )
        self._settings: dict[str, Any] = {"split": split, "seed": seed, "use_cached": use_cached, "num_epochs": num_epochs}
        if not check_flag(shuffle, "shuffle"):  # states of before it could be False do not have it
            self._settings["shuffle"] = False
        if isinstance(mixture, Mixture | Mix | Chat | ImageText):
            _check_left_out("a description", " Name the folders of its cache, cache_dirs=[..].", use_cached=(use_cached, False))
            lengths = _given(sequence_length)
            packs = HuggingFaceChatConverter if "tokens" in lengths else HuggingFaceFeatureConverter
            pack = isinstance(feature_converter, packs) and feature_converter.pack
            given: Any = {"split": split, "seed": seed, "shuffle": shuffle, "pack": pack, "cache_dirs": cache_dirs}
            mixture = examples(mixture, lengths, **given)
        elif isinstance(mixture, Examples):
            _check_left_out(
                "what examples returned",
                " Pass it to ul2_tasks.examples(..).",
                sequence_length=(sequence_length, None),
                split=(split, "train"),
                seed=(seed, 0),
                shuffle=(shuffle, True),
                use_cached=(use_cached, False),
                cache_dirs=(tuple(cache_dirs), ()),
            )
        elif isinstance(mixture, str | Registration):
            remedy = " Pass use_cached=True, and call seqio.add_global_cache_dirs."
            _check_left_out("a name", remedy, cache_dirs=(tuple(cache_dirs), ()))
            if isinstance(feature_converter, HuggingFaceFeatureConverter | HuggingFaceChatConverter) and feature_converter.task_id:
                raise ValueError(TASK_ID_OF_STREAM)
            self._sequence_length = dict(_given(sequence_length))
            importlib.import_module("ul2_tasks.pytorch.streams")  # here, so that workers that are forked need not
        else:
            raise ValueError(
                "mixture must be a Mixture, a Mix, a Chat, an ImageText, what ul2_tasks.examples returned of one, or a name, got"
                f" {mixture!r:.100}. Register what is described in another way, and give its name."
            )
        if isinstance(mixture, Examples):
            check_converter(feature_converter, mixture)
            self._settings["num_epochs"] = epochs_of(num_epochs)
        self._mixture = mixture
        self._process, self._started_in = process, None
        self._feature_converter = feature_converter
        self._in_a_row = converted or batch_size or 1
        self._joined = converted or 1
        self._passes = Passes()
        self._stream: Indexed | Stream | None = None  # the last iterator in this process
        self._place: dict[str, Any] | None = None  # where that of the dataset was that this is a copy of
        self._carried: Carried | None = None

    @property
    def tasks(self) -> tuple[TaskInfo, ...]:
        """The tasks of the mixture, in the order of their names, which `task_id` counts from 0.

        Raises:
            ValueError: the mixture is a name.
        """
        if not isinstance(self._mixture, Examples):
            name = self._mixture.name if isinstance(self._mixture, Registration) else self._mixture
            raise ValueError(_TASKS_OF_NAME.format(name, name))
        return self._mixture.tasks

    def __getstate__(self) -> dict[str, Any]:
        """For a worker that is spawned, which cannot ask torch.distributed for its process; or any other copy.

        A copy has no iterator: it begins where this one would begin another, and its state is that of this one. What a name is
        registered with goes along.
        """
        is_known = not starts_worker() and self._settings["seed"] is not None
        state = {
            **self.__dict__,
            "_started_in": reading_process(self._process),
            "_stream": None,
            "_place": self._stream.state() if self._stream and is_known else self._place,
            "_passes": for_copy(self._passes),
        }
        if isinstance(self._mixture, str):
            from ul2_tasks.tasks.carried import carried

            state["_carried"] = carried(self._mixture)
        return state

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """
        Raises:
            RuntimeError: the mixture is a name, and this process was forked from one in which TensorFlow had run.
            ValueError: there are fewer documents than shards; `rank` and accelerate share out the data twice; the state that was
                loaded is of another pipeline; or what the mixture's `get_dataset` raises. During the iteration: a pass over the
                corpus, or over a shard of it, gave no example, see `passes.repeat`.
        """
        loaded, stream = self._passes.begin(), self._new_stream()
        epochs = stream.pipeline["num_epochs"]
        if epochs is not None and stream.pipeline["split"] == "train" and self._passes.is_repeated_untold():
            warnings.warn(
                f"UL2IterableDataset: another pass over num_epochs={epochs} gives the same examples and masks. For others in each"
                " epoch pass a larger num_epochs, or None. See docs/help/troubleshooting.md#every-epoch-has-the-same-masks.",
                stacklevel=2,
            )
        self._stream, self._place = stream, None
        if loaded is not None and stream.resume(loaded):
            self._passes.end()
        return Pass(stream, self._passes)

    def state_dict(self) -> dict[str, Any]:
        """Returns the position of the last iterator. Before the first iterator it is the state that was loaded, or the start.

        A copy, as of `copy.deepcopy` or pickle, has the same state. See the guide "Resume exactly" for workers.

        Returns:
            {"version": int, "pipeline": dict, "given": int, "snapshot": {"given": int, "files": {name: bytes}} or None}.
            "pipeline" is compared when the state is loaded. "given" is the number of examples or batches given so far, and in
            the snapshot, the number given when it was written. "files" are those of a TensorFlow checkpoint.
            With random access: {"version": int, "pipeline": dict, "number": int}.

        Raises:
            ValueError: there is no seed, without which nothing can be resumed; workers of a DataLoader have read, which have copies
                of this dataset; or this is one of several readers that take batches in turn, in the middle of a batch.
        """
        self._check_seed()
        self._passes.check_read_here("Use the StatefulDataLoader of torchdata, or count the steps.")
        if self._stream is not None:
            return self._stream.state()
        indexed = self._mixture
        start = {"number": indexed.first} if isinstance(indexed, Examples) else {"given": 0, "snapshot": None}
        return dict(self._place or self._passes.loaded or state_of({"pipeline": self._describe(), **start}))

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Makes iterators begin where the state was taken, until one of them, or of a worker, has come to its end.

        Raises:
            ValueError: it is not a state, or one of another version of this package; or there is no seed.
        """
        self._check_seed()
        check_state(state, STATE_VERSION)
        check_form(state)
        self._passes.load(state)
        self._stream = self._place = None

    def _check_seed(self) -> None:
        if self._settings["seed"] is None:
            raise ValueError(
                "seed must be an integer, got None, which would give other examples each time and cannot be resumed. Pass seed=."
            )

    def _reader(self) -> Reader:
        worker = torch.utils.data.get_worker_info()
        which = (worker.id, worker.num_workers) if worker else (0, 1)
        process, dealt = reading_process(self._process, self._started_in), dealt_at_once()
        in_a_row = self._in_a_row if dealt is None else dealt * self._joined
        return Reader(*process, *which, in_a_row, self._joined)

    def _describe(self) -> dict[str, Any]:
        """What must be the same to load a state; of a stream also the fingerprint in the checkpoint itself, see `providers`."""
        mixture, converter = self._mixture, self._feature_converter
        if isinstance(mixture, Examples):
            told = {**mixture.describe(), "sequence_length": repr(sorted(mixture.budgets.items()))}
            told["num_epochs"] = self._settings["num_epochs"]
            is_as_it_is = mixture.numbering.packed and converter is None
            return told | {"feature_converter": "packed rows" if is_as_it_is else _describe_converter(converter)}
        return {
            "mixture": mixture.name if isinstance(mixture, Registration) else mixture,
            "sequence_length": repr(sorted(self._sequence_length.items())),
            **self._settings,
            "shard": self._reader().shard,
            **({} if self._joined == 1 else {"batch_size": self._joined}),
            "feature_converter": _describe_converter(converter),
        }

    def _new_stream(self) -> Indexed | Stream:
        mixture, reader, converter = self._mixture, self._reader(), self._feature_converter
        if isinstance(mixture, Examples):
            return Indexed(mixture, reader, converter, self._settings["num_epochs"], self._describe())
        check_process()
        from ul2_tasks.pytorch.streams import open_stream

        if self._carried:
            self._carried.register()
        return open_stream(mixture, self._sequence_length, reader, converter, self._describe())


def _given(sequence_length: Mapping[str, int] | None) -> Mapping[str, int]:
    if not isinstance(sequence_length, Mapping):
        raise ValueError(
            f'sequence_length must be {{"inputs": int, "targets": int}}, got {short(sequence_length)}. Give the lengths in tokens.'
        )
    return sequence_length


def _check_left_out(what: str, remedy: str, **arguments: tuple[object, object]) -> None:
    """Raises a ValueError for an argument that is not its default, (value, default), beside a mixture that does not take it."""
    for name, (value, default) in arguments.items():
        if value != default:
            raise ValueError(f"{name} must be {default!r} with {what}, got {value!r}.{remedy}")


def check_converter(converter: object, of: Examples, *, is_optional: bool = True) -> None:
    """Raises a ValueError where examples, or packed sequences, are not what a converter takes, or a model has too few rows."""
    if converter is None:
        return
    members, is_packed = members_of(of.numbering), bool(of.numbering.packed)
    features = features_of(members)
    or_none = ", or None," if is_optional else ""
    what = "packed rows" if is_packed else "the examples"
    if "tokens" in features:
        expected, what = f"a HuggingFaceChatConverter with pack={is_packed}{or_none}", f"{what} of chats"
        is_fixed = is_taken = isinstance(converter, HuggingFaceChatConverter) and bool(converter.pack) == is_packed
    elif has_images(members):
        expected, what, is_fixed, is_taken = "None", "examples with images", False, False
    else:
        of_pack = f" with pack={is_packed}" if is_packed or getattr(converter, "pack", False) else ""
        with_pack = f"{'' if SPAN_ID in features else ' without span_id'}{of_pack}"
        expected = f"a HuggingFaceFeatureConverter{with_pack}{or_none}"
        row_format = converter.row_format if isinstance(converter, HuggingFaceFeatureConverter) else None
        is_taken = row_format is not None and row_format.pack == is_packed and (SPAN_ID in features or not row_format.span_id)
        is_fixed = row_format is not None and row_format.padding == "max_length"
    if not is_taken:
        remedy = "Leave it out, or register the mixture and give its name" if is_optional else "Read them with UL2IterableDataset"
        raise ValueError(f"feature_converter must be {expected} for {what}, got {converter!r:.100}. {remedy}.")
    if of.task_id and not getattr(converter, "task_id", False):
        raise ValueError(
            f"feature_converter must have task_id=True for examples that have it, got a {type(converter).__name__} without. Pass"
            " task_id=True to it, or leave it out of examples(..)."
        )
    lengths = {key: of.budgets.get(key) for key in token_features(features)}
    if is_fixed and None in lengths.values():
        raise ValueError(
            f"sequence_length must have the lengths of rows for this feature_converter, got {lengths}. Give them in tokens."
        )
    if not isinstance(converter, HuggingFaceFeatureConverter):
        return
    converter.row_format.check_start(pads_with_0(members[0].vocabulary))
    if (rows := converter.row_format.embedding_rows) is not None:
        check_rows([member.solution for member in members if member.solution], rows, members[0].vocabulary)


def _describe_converter(converter: object) -> str | None:
    if converter is None:
        return None
    if isinstance(converter, HuggingFaceFeatureConverter | HuggingFaceChatConverter):
        words = converter.described
    else:
        words = f"{type(converter).__name__} {sorted(vars(converter).items())}"
    return re.sub(r" at 0x[0-9a-f]+", "", words)
