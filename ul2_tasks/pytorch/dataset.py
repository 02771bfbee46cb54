"""Mixtures as a PyTorch dataset: sharded over processes and workers, reproducible, resumable."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ul2_tasks.denoisers.solution import check_rows
from ul2_tasks.example_features import RATE, SPAN_ID, token_features
from ul2_tasks.extras import needs
from ul2_tasks.mixtures.chat import Chat
from ul2_tasks.mixtures.examples import open_examples
from ul2_tasks.mixtures.image_text import ImageText
from ul2_tasks.mixtures.mix import Mix
from ul2_tasks.mixtures.mixture import Mixture
from ul2_tasks.models.diffusion import DiffusionConverter
from ul2_tasks.models.transformers import HuggingFaceChatConverter, HuggingFaceFeatureConverter
from ul2_tasks.random_access.batches import features_of, has_images, members_of
from ul2_tasks.random_access.sequence import Examples
from ul2_tasks.random_access.tasks import TaskInfo
from ul2_tasks.random_access.windows import Corpora
from ul2_tasks.scalars import check_flag, epochs_of, is_integer
from ul2_tasks.tokenizers.special_ids import pads_with_0

with needs("UL2IterableDataset", "torch"):
    import torch

    from ul2_tasks.pytorch.appended import Appended
    from ul2_tasks.pytorch.elements import Elements
    from ul2_tasks.pytorch.passes import Resumable
    from ul2_tasks.pytorch.processes import Reader, given_process


class UL2IterableDataset(Resumable):
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
    and so do mixtures with them. Image-text records give `images`, too, the bytes of each. With a `feature_converter` an element is
    what the converter makes, a batch, a padded example or a packed row. Packed sequences (`examples(.., pack=True)`) are [length]
    int64 for each feature.

    Corpora that have a cache, that are tokens, or that fit into a window of 4,194,304 tokens are read by number. Larger ones are
    read in windows, one after the other; see the guide "Random access".

    * By number, step n of R processes with batches of B has the examples n * R * B up to (n + 1) * R * B, with any number of
      workers. `state_dict()` is the index of the next example, and any number of processes and workers can load it.
    * In windows, each worker of each process reads shards of its own, so batches depend on their numbers. `state_dict()` is a few
      integers, which the same process and worker can load.

    The guide "PyTorch and Transformers" explains workers, several processes, resuming, and `transformers.Trainer`.
    """

    def __init__(
        self,
        mixture: Mixture | Mix | Chat | ImageText | Examples | str,
        sequence_length: Mapping[str, int] | None = None,
        *,
        split: str = "train",
        seed: int = 0,
        shuffle: bool = True,
        use_cached: bool = False,
        cache_dirs: Sequence[str | os.PathLike] = (),
        num_epochs: int | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        feature_converter: HuggingFaceFeatureConverter | HuggingFaceChatConverter | None = None,
        batch_size: int | None = None,
    ):
        """Opens the corpora.

        Args:
            mixture: a `Mixture`, a `Mix`, a `Chat` or an `ImageText`; or the name of what `register`, `mix` and their like
                registered, or of one of its tasks; or what `examples` returned.
            sequence_length: {"inputs": int, "targets": int}, the lengths in tokens; of a `Chat` {"tokens": int} makes chats. Leave
                it out, and split, seed, shuffle and cache_dirs, for what `examples` returned.
            split: the split of the corpora, such as "train".
            seed: the seed of the order and the masks.
            shuffle: False keeps the order of the corpus, as for an evaluation.
            use_cached: whether a registered name is read from its cache.
            cache_dirs: the folders with the caches of a description, see `examples`.
            num_epochs: passes over the corpus; None for no end.
            rank, world_size: the index of this process, and the number of processes. Pass 0 and 1 for `transformers.Trainer`, and
                for a DataLoader that accelerate prepares, which split the data themselves. By default 0 and 1, with a warning,
                where there is an `Accelerator` of several processes; else those of `torch.distributed` if it is initialized; else
                the environment variables RANK and WORLD_SIZE, as torchrun sets them; else 0 and 1.
            feature_converter: converts the examples into model inputs.
            batch_size: the batch size of a DataLoader that joins single examples and has several workers, which read with random
                access. Leave it out if the feature converter has one.

        Raises:
            ValueError: rank or world_size is given without the other, or rank is not in 0 .. world_size - 1; batch_size is below
                1, or the feature converter has one, too; an argument does not apply to this mixture; or see `examples`.
        """
        super().__init__(given_process(rank, world_size))
        if isinstance(feature_converter, HuggingFaceFeatureConverter):
            feature_converter.check_batch_size()
        converted = getattr(feature_converter, "batch_size", None)
        if batch_size is not None and (converted or not is_integer(batch_size, at_least=1)):
            raise ValueError(
                f"batch_size must be given once, and be at least 1, got {batch_size!r} here and {converted!r} in the feature"
                " converter. Pass it here where the DataLoader joins single examples."
            )
        check_flag(shuffle, "shuffle")
        _hide_gpus()
        corpora: Corpora | None = None
        if isinstance(mixture, Examples):
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
            found = mixture
        else:
            if isinstance(mixture, str):
                remedy = " Pass use_cached=True, and call seqio.add_global_cache_dirs."
                _check_left_out("a name", remedy, cache_dirs=(tuple(cache_dirs), ()))
            else:
                _check_left_out("a description", " Name the folders of its cache, cache_dirs=[..].", use_cached=(use_cached, False))
            packs = HuggingFaceChatConverter if "tokens" in (sequence_length or {}) else HuggingFaceFeatureConverter
            pack = isinstance(feature_converter, packs) and feature_converter.pack
            given: Any = {"split": split, "seed": seed, "shuffle": shuffle, "use_cached": use_cached, "cache_dirs": cache_dirs}
            found, corpora = open_examples(mixture, sequence_length, pack=pack, **given)
        check_converter(feature_converter, found)
        self._examples, self._corpora = found, corpora
        self._appended = Appended(found) if corpora is None and found.describe().get("schedule") else None
        self._num_epochs = epochs_of(num_epochs)
        self._feature_converter = feature_converter
        self._in_a_row = converted or batch_size or 1
        self._joined = converted or 1

    @property
    def tasks(self) -> tuple[TaskInfo, ...]:
        """The tasks of the mixture, in the order of their names, which `task_id` counts from 0."""
        return self._examples.tasks

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """
        Raises:
            RuntimeError: TensorFlow reads the source, in windows, and this process was forked from one in which it has read.
            ValueError: there are fewer examples, or shards of what is read in windows, than workers of all processes; or the state
                that was loaded is of another pipeline.
        """
        epochs = self._num_epochs
        if epochs is not None and self._examples.describe()["split"] == "train" and self._passes.is_repeated_untold():
            warnings.warn(
                f"UL2IterableDataset: another pass over num_epochs={epochs} gives the same examples and masks. For others in each"
                " epoch pass a larger num_epochs, or None. See docs/help/troubleshooting.md#every-epoch-has-the-same-masks.",
                stacklevel=2,
            )
        return super().__iter__()

    def _reader(self) -> Reader:
        worker = torch.utils.data.get_worker_info()
        which = (worker.id, worker.num_workers) if worker else (0, 1)
        return Reader(*self._reading_process(), *which, self._in_a_row, self._joined)

    def _new_elements(self) -> Elements:
        found = self._appended.examples if self._appended else self._examples
        converter, epochs, reader = self._feature_converter, self._num_epochs, self._reader()
        is_as_it_is = found.numbering.packed and converter is None
        pipeline = {
            **found.describe(),
            "sequence_length": repr(sorted(found.budgets.items())),
            "num_epochs": epochs,
            "feature_converter": "packed rows" if is_as_it_is else _describe_converter(converter),
        }
        stream = None
        if self._corpora:
            _hide_gpus()
            stream = self._corpora.stream(found.budgets if found.numbering.packed else None, *reader.of_shards, epochs)
        return Elements(found, stream, reader, converter, epochs, pipeline, appended=self._appended)

    @property
    def stages(self) -> list[tuple[int, dict[str, float]]]:
        """The stages that were appended, [(first step, {corpus: weight})], as a state has them."""
        return self._appended.stages if self._appended else []

    def append_stage(self, step: int, weights: Mapping[Any, float] | Sequence[tuple[Any, float]]) -> None:
        """Changes the weights of corpora from a step on, from the loop that reads, as a `Stage` of the schedule would.

        All processes append the same. States have the stages, and any number of processes and workers can load them. Another stage
        of the schedule ends it. With workers append it further ahead than they read, batches times `prefetch_factor`.

        Args:
            step: the first step with these weights, counted as in the schedule.
            weights: positive numbers by the corpora's descriptions or names; a corpus that is not there pauses.

        Raises:
            ValueError: the dataset has no schedule, or is read in windows; `weights` are of others; or some of the step was read,
                also ahead by workers, of which a late one raises the error.
        """
        if self._appended is None:
            raise ValueError(
                "append_stage must have a mixture with a schedule that has random access, got one without. Pass"
                " Mix(.., schedule=[Stage(0, ..)], batch_size=.., steps=..), and write the caches of large corpora."
            )
        loaded = self._passes.loaded
        reached = self._elements.reached() if self._elements else loaded["number"] if loaded else 0
        self._appended.append(step, weights, reached)
        if self._elements:
            self._elements.follow(self._appended)
        if loaded:
            self._passes.loaded = {**loaded, "stages": self.stages}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Makes iterators begin where the state was taken, with the stages that were appended there alone, until one has ended.

        Call it in each process, before the workers start.

        Raises:
            ValueError: it is not a state, or one of another version of this package, or has stages, and this has no schedule.
        """
        super().load_state_dict(state)
        if state.get("stages") and not self._appended:
            raise ValueError("state must be without stages that were appended, which a mixture with a schedule has, got some.")
        if self._appended:
            self._appended.load(state.get("stages", ()), torch.utils.data.get_worker_info() is not None)


def _hide_gpus() -> None:
    """Keeps TensorFlow from taking all memory of the GPUs, where it reads a source, unless it has run in this process before."""
    if tensorflow := sys.modules.get("tensorflow"):
        try:
            tensorflow.config.set_visible_devices([], "GPU")
        except RuntimeError:  # it has run
            return


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
        if RATE in features or isinstance(converter, DiffusionConverter):
            expected, what = f"a DiffusionConverter{or_none}", "packed rows of diffusion denoisers alone"
            is_taken = is_packed and RATE in features and isinstance(converter, DiffusionConverter)
    if not is_taken:
        remedy = "Leave it out, or read it with get_dataset" if is_optional else "Read them with UL2IterableDataset"
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


def _describe_converter(converter: HuggingFaceFeatureConverter | HuggingFaceChatConverter | None) -> str | None:
    return None if converter is None else repr(converter)
