"""The training data of a t5x run whose place is the model's step, so that the run goes on with other hosts than before.

t5x saves an iterator for each host (`save_dataset`), and restores it with the same number of hosts alone. Where examples have
addresses, none is needed. With batches of B, the step that takes the model from n to n + 1 has these examples, or packed rows, of
which each of H hosts has B / H (see `numbering.Share`):

    (n - first_step) * B  ..  (n - first_step + 1) * B - 1

`first_step` is 0, or the step of the checkpoint of another run that this run began with. It is kept in the run's folder, in
`ul2_run.json`, with all that decides which examples these are. t5x is imported when it calls the function here, not before.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import seqio
import tensorflow as tf

from ul2_tasks.files.systems import exists, is_folder, make_folders, names_in, place
from ul2_tasks.jobs.manifest import differences, load_object, write_manifest
from ul2_tasks.random_access.exclude import Documents, leaving_out_of, save_list
from ul2_tasks.random_access.fingerprint import NUMBERED_VERSION, compared, of_leaving_out, steps_of, until, with_earlier_lists
from ul2_tasks.random_access.numbering import RUN_RECORD
from ul2_tasks.scalars import is_integer
from ul2_tasks.tasks.providers import is_ours
from ul2_tasks.tasks.tf_data import Reading, reading_of
from ul2_tasks.version import __version__, check_version

_EARLIER = "earlier_stages"  # in a run's record: what the runs read whose weights it began with
_NOT_COMPARED = ("ul2_tasks", "first_step", _EARLIER)


class Start(NamedTuple):
    """Where t5x will start: at which step of the model, whether the run's own folder has this checkpoint, and its path, if any."""

    step: int
    is_resumed: bool
    checkpoint: str = ""


def get_dataset_at_step(
    cfg: Any,
    shard_id: int,
    num_shards: int,
    feature_converter_cls: Callable[..., seqio.FeatureConverter],
    num_epochs: int | None = None,
    continue_from_last_checkpoint: bool = True,
    *,
    model_dir: str,
    checkpoint_cfg: Any,
    initial_checkpoint: str | None = None,
    exclude: Documents | None = None,
    skip: Sequence[tuple[int, int]] = (),
) -> tf.data.Dataset:
    """Returns t5x's training data from the position of the last checkpoint's step, on any number of hosts.

    Use it as t5x's `train.get_dataset_fn` in place of `t5x.utils.get_dataset`; `gin/elastic.gin` binds it. The first start of a run
    writes `ul2_run.json` into the run's folder, and each later start is compared with it. The number of hosts is not in it.

    Args:
        cfg: the `t5x.utils.DatasetConfig` of the training data, with a seed, of a mixture that has random access.
        shard_id, num_shards: which of the hosts that read other data this is, and how many there are.
        feature_converter_cls: the model's; `ul2_tasks.EncDecFeatureConverter`.
        num_epochs: passes over the data; None for no end.
        continue_from_last_checkpoint: must be True; t5x passes it.
        model_dir: the run's folder.
        checkpoint_cfg: the run's `t5x.utils.CheckpointConfig`, which says where t5x restores from.
        initial_checkpoint: the path of the checkpoint of another run that this run begins with, where it is not t5x but
            `initial_checkpoint.FromCheckpoint` that restores it. Its name ends in its step.
        exclude: a list of documents that no example has tokens of; see `examples`. A resumed run may get a longer one, which holds
            from its step on.
        skip: pairs of steps [first, stop) whose batches are never read; see `examples`.

    Returns:
        Batches of `cfg.batch_size / num_shards` rows of the model's features.

    Raises:
        ValueError: there is no seed; the batch cannot be split among the hosts; t5x would save iterators, too; the mixture has no
            random access; the run's folder has a checkpoint, but was begun with other data, or by another function; the initial
            checkpoint's name has no step; or this run would read again what the run of that checkpoint has read.
    """
    if not continue_from_last_checkpoint:
        raise ValueError(
            "continue_from_last_checkpoint must be True, because this function always does, got False. Use t5x's utils.get_dataset."
        )
    _check(cfg, num_shards, checkpoint_cfg)
    from jax import process_index
    from t5x import utils

    if cfg.module:
        utils.import_module(cfg.module)
    dataset = seqio.get_dataset(
        cfg.mixture_or_task_name,
        cfg.task_feature_lengths,
        feature_converter_cls(pack=cfg.pack, use_custom_packing_ops=cfg.use_custom_packing_ops),
        dataset_split=cfg.split,
        use_cached=cfg.use_cached,
        shuffle=cfg.shuffle,
        num_epochs=num_epochs,
        shard_info=seqio.ShardInfo(index=shard_id, num_shards=num_shards),
        seed=int(cfg.seed),
        trim_output_features=cfg.trim_output_features,
    )
    reading = numbered(dataset, cfg)
    run = run_of(reading, cfg)
    start = find_start(model_dir, checkpoint_cfg, initial_checkpoint)
    first_step = first_step_of(model_dir, start)
    steps, of_run = steps_of(run), start.step - first_step
    if cfg.batch_size != steps.size(of_run):
        raise ValueError(
            f"batch_size of step {start.step} must be that of the schedule of {cfg.mixture_or_task_name!r}, {steps.size(of_run)},"
            f" got {cfg.batch_size}. Set train/utils.DatasetConfig.batch_size to it, or that of the schedule to yours."
        )
    leaving_out = leaving_out_of(reading.numbering, exclude, skip, steps, first_step)
    run |= of_leaving_out(leaving_out)
    utils.multihost_assert_equal(
        np.array([start.step, start.is_resumed, zlib.crc32(json.dumps(run).encode()) >> 1]),
        f"hosts see other data, or other checkpoints in {model_dir}: this one is at {start}, with {run}",
    )
    begin_or_compare(model_dir, run, start, is_writer=process_index() == 0)
    if process_index() == 0:
        save_list(model_dir, leaving_out)
    first = steps.element(of_run) // num_shards
    return reading.continued(first, leaving_out, steps).batch(cfg.batch_size // num_shards, drop_remainder=True)


def get_dataset_of_stream(
    cfg: Any,
    shard_id: int,
    num_shards: int,
    feature_converter_cls: Callable[..., seqio.FeatureConverter],
    num_epochs: int | None = None,
    continue_from_last_checkpoint: bool = False,
    *,
    model_dir: str,
) -> tf.data.Dataset:
    """Returns t5x's training data for a run that saves its iterators.

    Use it as t5x's `train.get_dataset_fn` in place of `t5x.utils.get_dataset`; `gin/ul2.gin` binds it.

    Args:
        cfg, shard_id, num_shards, feature_converter_cls, num_epochs, continue_from_last_checkpoint: see `t5x.utils.get_dataset`.
        model_dir: the run's folder.

    Raises:
        ValueError: the run was begun with `gin/elastic.gin`, so that its checkpoints have no iterators; or what t5x raises.
    """
    from t5x import utils

    if is_folder(model_dir):
        own = utils.RestoreCheckpointConfig(path=model_dir, mode="latest")
        check_has_iterators(model_dir, utils.get_first_valid_restore_config_and_paths([own])[1])
    dataset: tf.data.Dataset = utils.get_dataset(
        cfg, shard_id, num_shards, feature_converter_cls, num_epochs, continue_from_last_checkpoint
    )
    return dataset


def check_has_iterators(model_dir: str, checkpoints: Sequence[str]) -> None:
    """Raises a ValueError where the last checkpoint of a run is one of `get_dataset_at_step`, which has no iterator.

    `checkpoints` are what t5x restores of the run; none of one that begins.
    """
    if not checkpoints or not exists(place(model_dir, RUN_RECORD)):
        return
    if not any(name.startswith("train_ds") for name in names_in(checkpoints[-1])):
        raise ValueError(
            f"the run in {model_dir} was begun with gin/elastic.gin: it has {RUN_RECORD}, and {checkpoints[-1]} has no iterator."
            " Pass --gin_file=gin/elastic.gin again, after the other files, or start another run from this checkpoint, in"
            " another MODEL_DIR (gin/ul2_continue.gin)."
        )


def _check(cfg: Any, num_shards: int, checkpoint_cfg: Any) -> None:
    if not is_integer(cfg.seed, at_least=-(1 << 63)):
        raise ValueError(
            f"the seed of the training data must be an integer, got {cfg.seed!r}. Set it, because it decides which data each step"
            " has."
        )
    if cfg.batch_size % num_shards:
        raise ValueError(f"batch_size must be a multiple of {num_shards}, the number of data shards, got {cfg.batch_size}.")
    if checkpoint_cfg.save and checkpoint_cfg.save.save_dataset:
        raise ValueError(
            "utils.SaveCheckpointConfig.save_dataset must be False with elastic.gin, got True. Set it to False, because the data"
            " position comes from the checkpoint's step."
        )


def numbered(dataset: tf.data.Dataset, cfg: Any) -> Reading:
    """What reads a dataset by number. Raises a ValueError where nothing does."""
    reading = reading_of(dataset)
    if reading is None:
        raise ValueError(
            f"the data of {cfg.mixture_or_task_name!r} must have random access for elastic.gin, but are a stream, because"
            f" {_reason(cfg)} train on them with t5x's own utils.get_dataset and"
            " utils.SaveCheckpointConfig.save_dataset = True, as without gin/elastic.gin."
        )
    return reading


def run_of(reading: Reading, cfg: Any) -> dict[str, Any]:
    """What decides which examples each step has, as JSON has it."""
    schedule: Any = reading.fingerprint.get("schedule") or {}
    size = schedule.get("batch_size", cfg.batch_size)
    return json.loads(json.dumps({"ul2_tasks": __version__, **reading.fingerprint, "batch_size": size}))


def _reason(cfg: Any) -> str:
    """Why a dataset has no numbers, and the beginning of what to do."""
    tasks = seqio.get_subtasks(seqio.get_mixture_or_task(cfg.mixture_or_task_name))
    if foreign := [task.name for task in tasks if not is_ours(task)]:
        return f"the tasks {foreign} are not of ul2_tasks.register or register_chat. Leave them out, or"
    return "a corpus is too large for memory. Write its cache with `ul2 cache`, and set USE_CACHED_TASKS to True, or"


def find_start(model_dir: str, checkpoint_cfg: Any, initial_checkpoint: str | None) -> Start:
    """Asks t5x which checkpoint it will restore, as t5x asks itself when it trains. So both are at the same step, always."""
    from t5x import utils

    make_folders(model_dir)
    own = utils.RestoreCheckpointConfig(path=model_dir, mode="latest")
    others = [utils.RestoreCheckpointConfig(path=initial_checkpoint, mode="specific")] if initial_checkpoint else []
    others += [checkpoint_cfg.restore] if checkpoint_cfg.restore else []
    restored, paths = utils.get_first_valid_restore_config_and_paths([own, *others])
    return Start(step_of(paths[0]), restored is own, paths[0]) if paths else Start(0, restored is own)


def step_of(checkpoint: str) -> int:
    """The step in the name of a checkpoint. Raises a ValueError where there is none.

    >>> step_of("gs://bucket/run/checkpoint_1000000/"), step_of("old/model.ckpt-524288")
    (1000000, 524288)
    """
    found = re.search(r"[_-](\d+)/*$", checkpoint)
    if not found:
        raise ValueError(
            "the checkpoint must have a step in its name, such as checkpoint_1000000, at which the data of the run begin, got"
            f" {checkpoint}."
        )
    return int(found[1])


def first_step_of(model_dir: str, start: Start) -> int:
    """The model's step at the run's first example."""
    path = place(model_dir, RUN_RECORD)
    return _record(path)["first_step"] if start.is_resumed and exists(path) else start.step


def begin_or_compare(model_dir: str, run: Mapping[str, Any], start: Start, is_writer: bool) -> int:
    """Writes or compares the record of what a run reads. Gives the model's step at the run's first example.

    A run that has no checkpoint of its own yet begins here, and the writer, one of all hosts, records it. Any other run is
    compared with its record, as far as it has read. Raises a ValueError where the run was begun with other data, or has no record,
    or would read what an earlier stage has read.
    """
    path = place(model_dir, RUN_RECORD)
    if not start.is_resumed:
        stages = earlier_stages(start)
        check_reads_anew(run, stages)
        if is_writer:
            write_manifest(path, {**run, "first_step": start.step} | ({_EARLIER: stages} if stages else {}))
        return start.step
    if not exists(path):
        raise ValueError(
            f"{model_dir} has a checkpoint of step {start.step}, but no {RUN_RECORD}, because another get_dataset_fn began the"
            " run. Resume it without gin/elastic.gin, or start another run from this checkpoint, in another MODEL_DIR"
            " (gin/ul2_continue.gin)."
        )
    record = _record(path)
    read = steps_of(record).element(start.step - record["first_step"])
    before, now = ({key: value for key, value in it.items() if key not in _NOT_COMPARED} for it in compared(record, run, read))
    if different := list(differences(before, now)):
        raise ValueError(
            f"the run in {model_dir} was begun with other data, recorded in {path}: {'; '.join(different)}. Resume with"
            " the recorded settings, of which only the number of hosts may change, and the schedule, exclude and skip from its step"
            f" {start.step - record['first_step']} on, or start another run in another"
            " MODEL_DIR. See docs/help/troubleshooting.md#a-t5x-run-is-rejected."
        )
    run = with_earlier_lists(record, run, read)
    changed = any(record.get(key) != run.get(key) for key in {*record, *run}.difference(_NOT_COMPARED))
    if is_writer and changed:  # what comes: the schedule, what a later stage reads, what is left out
        write_manifest(path, {**run, **{key: record[key] for key in ("first_step", _EARLIER) if key in record}})
    return record["first_step"]


def _record(path: str) -> dict[str, Any]:
    record = load_object(path, "Start another run, in another MODEL_DIR.")
    check_version(path, record.get("numbered_version"), NUMBERED_VERSION, "Start another run, in another MODEL_DIR.")
    return record


def earlier_stages(start: Start) -> list[dict[str, Any]]:
    """What was read by the run whose checkpoint this one begins with, and by those before it; as far as they have records."""
    path = place(start.checkpoint.rstrip("/").rpartition("/")[0], RUN_RECORD)
    if not start.checkpoint or not exists(path):
        return []
    record = _record(path)
    element = steps_of(record).element(start.step - record["first_step"])
    read = until(record, element) if "schedule" in record else record
    told: dict[str, Any] = {key: read[key] for key in ("mixture", "seed", "corpora", "sources") if key in read}
    return [*record.get(_EARLIER, []), *([{"run": path, **told}] if start.step > record["first_step"] else [])]


def check_reads_anew(run: Mapping[str, Any], stages: Sequence[Mapping[str, Any]]) -> None:
    """Raises a ValueError where a run would read examples of an earlier stage: a corpus at the same place, with the same seed.

    Neither the name of the mixture nor its weights decide the order of a corpus.
    """
    now = _places(run)
    for stage in stages:
        before = _places(stage) if stage["seed"] == run["seed"] else {}
        if again := [now[at][0] for at in now.keys() & before.keys() if _is_same(now[at][1:], before[at][1:])]:
            raise ValueError(
                f"the seed of the training data must differ from that of the earlier stage {stage['run']}, in which"
                f" {stage['mixture']!r} has read {again}, got {run['seed']}, which would read the same tokens again with the same"
                f" masks. Pass another seed, such as --gin.train/utils.DatasetConfig.seed={run['seed'] + 1}."
            )


def _places(run: Mapping[str, Any]) -> dict[int, tuple[str, Any, Any]]:
    """The corpora of a run by their places in the mixture, which are in the seed of each order: name, identity, and content."""
    return {at: (name, told, run.get("sources", {}).get(name)) for at, (name, told) in enumerate(run["corpora"].items())}


def _is_same(one: tuple[Any, Any], other: tuple[Any, Any]) -> bool:
    """Whether two corpora are the same, as far as both tell. Their names may differ."""
    return one[0] == other[0] and (None in (one[1], other[1]) or one[1] == other[1])
