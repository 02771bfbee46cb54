"""Conversations in Megatron's own loader: masks that stay with labels, its samples and caches, and the loss."""

import os
import pathlib

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs megatron-core and torch")
pytest.importorskip("megatron.core.datasets.gpt_dataset", reason="needs megatron-core and torch")
pytestmark = pytest.mark.torch

from megatron.core import ModelParallelConfig  # noqa: E402
from megatron.core.datasets.blended_megatron_dataset_builder import BlendedMegatronDatasetBuilder  # noqa: E402
from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig  # noqa: E402
from megatron.core.datasets.utils import Split  # noqa: E402
from megatron.core.pipeline_parallel.schedules import forward_step_calc_loss  # noqa: E402
from megatron.core.tokenizers.text.libraries.null_tokenizer import NullTokenizer  # noqa: E402

from ul2_tasks.pytorch.megatron import (  # noqa: E402
    AlignedGPTDataset,
    GroupLosses,
    TokenGroups,
)
from ul2_tasks.random_access.tasks import TaskInfo  # noqa: E402
from ul2_tasks.store.write import PairWriter  # noqa: E402

pytestmark = pytest.mark.torch

LENGTH, EOD = 16, 1000
DTYPES = {"tokens": np.int32, "lossmask": np.uint8, "span": np.uint8}


def learned(tokens: np.ndarray) -> dict[str, np.ndarray]:
    """What the triple says of tokens, as a function of each, so that a slice anywhere can be checked."""
    span = np.where(tokens == EOD, 0, tokens % 4).astype(np.uint8)
    return {"tokens": tokens, "lossmask": (span > 0).astype(np.uint8), "span": span}


def write_triple(prefix: pathlib.Path, sizes, seed: int = 0) -> str:
    rng = np.random.default_rng(seed)
    tokens = np.concatenate([[*rng.integers(0, EOD, size - 1), EOD] for size in sizes])
    prefix.parent.mkdir(exist_ok=True)
    for name, values in learned(tokens).items():
        with PairWriter(f"{prefix}_{name}.bin", f"{prefix}_{name}.idx", np.dtype(DTYPES[name])) as pair:
            pair.add(values, np.array(sizes))
    return str(prefix)


def sizes_of(count: int, seed: int = 0) -> list[int]:
    return np.random.default_rng(seed).integers(1, 40, count).tolist()


class Padded(NullTokenizer):
    """A tokenizer with a padding id that, in a mask, would say that the token is learned."""

    pad = 1


def configuration(cache: pathlib.Path, tokenizer=None, **settings) -> GPTDatasetConfig:
    given = {"split": "1", "reset_position_ids": True, "reset_attention_mask": True, "eod_mask_loss": False, **settings}
    return GPTDatasetConfig(
        random_seed=1, sequence_length=LENGTH, tokenizer=tokenizer or NullTokenizer(EOD), path_to_cache=str(cache), **given
    )


def opened(prefix: str, config: GPTDatasetConfig, of=AlignedGPTDataset, samples=None, split=Split.train):
    low = of.build_low_level_dataset(prefix, config)
    return of(low, prefix, np.arange(len(low), dtype=np.int32), samples, split, config)


def assert_aligned(sample) -> None:
    wanted = learned(sample["labels"].numpy())
    np.testing.assert_array_equal(sample["span_id"].numpy(), wanted["span"])
    np.testing.assert_array_equal(sample["loss_mask"].numpy(), wanted["lossmask"])
    assert (sample["loss_mask"].dtype, sample["span_id"].dtype) == (torch.float32, torch.int64)


def test_samples_are_slices_of_megatrons_shuffled_stream(tmp_path):
    """Those of its own dataset over the tokens, over more than one epoch, with masks and spans shifted as the labels."""
    prefix = write_triple(tmp_path / "chat", sizes_of(60))
    config = configuration(tmp_path / "cache", blend=([prefix], None))
    ours, theirs = opened(prefix, config, samples=150), opened(f"{prefix}_tokens", config, GPTDataset, samples=150)
    assert len(ours) == len(theirs) >= 150
    for index in ("document_index", "sample_index", "shuffle_index"):
        np.testing.assert_array_equal(getattr(ours, index), getattr(theirs, index))
    for number in range(len(ours)):
        sample, plain = ours[number], theirs[number]
        assert all(torch.equal(sample[name], plain[name]) for name in plain if name != "loss_mask")
        assert_aligned(sample)
    assert ours[3]["span_id"].any()
    assert set(ours[None]["loss_mask"].tolist()) == set(ours[None]["span_id"].tolist()) == {0}


@pytest.mark.parametrize("extra", [True, False])
@pytest.mark.parametrize("tokenizer", [NullTokenizer, Padded])
def test_padding_is_not_learned(tmp_path, tokenizer, extra):
    """Of a last sample that the data does not fill, also without the extra token by which Megatron shifts."""
    prefix = write_triple(tmp_path / "chat", [20, 5])
    settings = {"drop_last_partial_validation_sequence": False, "add_extra_token_to_sequence": extra}
    config = configuration(tmp_path / "cache", tokenizer(EOD), blend=([prefix], None), **settings)
    dataset = opened(prefix, config, split=Split.valid)
    tokens = np.concatenate([dataset.dataset[document] for document in dataset.document_index])
    samples = [dataset[list(dataset.shuffle_index).index(number)] for number in range(len(dataset))]
    for number, sample in enumerate(samples):
        start = LENGTH * number
        labels = tokens[start + 1 : start + LENGTH + extra]
        wanted = np.zeros((2, LENGTH), int)
        wanted[:, : len(labels)] = learned(labels)["lossmask"], learned(labels)["span"]
        if tokenizer is Padded:
            wanted[:, : len(labels)] *= labels != Padded.pad  # an id that Megatron takes for padding wherever it is
        np.testing.assert_array_equal([sample["loss_mask"], sample["span_id"]], wanted)
    assert len(samples) == 2
    assert samples[1]["span_id"].any()


def test_nothing_is_learned_after_an_eod_where_megatron_masks_it(tmp_path):
    prefix = write_triple(tmp_path / "chat", sizes_of(60))
    dataset = opened(prefix, configuration(tmp_path / "cache", blend=([prefix], None), eod_mask_loss=True))
    for number in range(len(dataset)):
        sample = dataset[number]
        wanted = np.where(sample["tokens"] == EOD, 0, learned(sample["labels"].numpy())["span"])
        np.testing.assert_array_equal(sample["span_id"], wanted)
        np.testing.assert_array_equal(sample["loss_mask"], wanted > 0)


@pytest.fixture
def process_group():
    """Which Megatron needs to blend, with one process, too."""
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


def test_blends_of_prefixes_for_training_and_validation(tmp_path, process_group):
    train = [write_triple(tmp_path / f"train_{number}", sizes_of(50, number), number) for number in range(2)]
    valid = write_triple(tmp_path / "valid", sizes_of(30, 9), 9)
    config = configuration(
        tmp_path / "cache", split=None, blend_per_split=[(train, [0.3, 0.7]), ([valid], None), None], create_attention_mask=False
    )
    blended, validation, test = BlendedMegatronDatasetBuilder(AlignedGPTDataset, [90, 10, None], lambda: True, config).build()
    assert (len(blended), test) == (90, None)
    assert {blended[number]["dataset_id"] for number in range(90)} == {0, 1}
    for dataset in (blended, validation):
        for number in range(len(dataset)):
            assert_aligned(dataset[number])


@pytest.mark.parametrize("spoilt", ["lossmask", "span"])
def test_a_triple_that_is_not_aligned_is_refused_before_an_index_is_written(tmp_path, spoilt):
    prefix = write_triple(tmp_path / "chat", [7, 8, 9])
    config = configuration(tmp_path / "cache", blend=([prefix], None))
    for number, sizes in enumerate(([7, 9, 8], [7, 17])):
        other = write_triple(tmp_path / f"other_{number}", sizes)
        for suffix in ("bin", "idx"):
            os.replace(f"{other}_{spoilt}.{suffix}", f"{prefix}_{spoilt}.{suffix}")
        with pytest.raises(ValueError, match=f"chat_{spoilt}"):
            opened(prefix, config)
    assert not (tmp_path / "cache").exists()


WEIGHTS = {"reasoning": 1.0, "answer": 0.5, "other": 2.0}


class Tiny(torch.nn.Module):
    """A decoder that reads one token, in Megatron's form: it returns the loss of each label."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embedding, self.head = torch.nn.Embedding(EOD + 1, 8), torch.nn.Linear(8, EOD + 1)

    def forward(self, tokens, labels):
        logits = self.head(self.embedding(tokens))
        return torch.nn.functional.cross_entropy(logits.transpose(1, 2), labels, reduction="none")

    def gradient(self) -> torch.Tensor:
        return torch.cat([parameter.grad.flatten() for parameter in self.parameters()])


def undivided(batch) -> tuple[torch.Tensor, list[float]]:
    model = Tiny()
    losses = model(batch["tokens"], batch["labels"])
    means = [losses[of_span].mean() for of_span in (batch["span_id"] == 1, batch["span_id"] == 2, batch["span_id"] > 2)]
    sum(weight * mean for weight, mean in zip(WEIGHTS.values(), means)).backward()
    return model.gradient(), [mean.item() for mean in means]


@pytest.mark.parametrize("microbatches", [1, 4])
def test_the_gradient_that_megatron_adds_up_is_that_of_the_undivided_batch(tmp_path, microbatches):
    """Each loss goes through the function of Megatron's schedules that scales it; the rest of these needs a GPU."""
    prefix = write_triple(tmp_path / "chat", sizes_of(60))
    dataset = opened(prefix, configuration(tmp_path / "cache", blend=([prefix], None), create_attention_mask=False))
    batch = torch.utils.data.default_collate([dataset[number] for number in range(8)])
    groups, model, told = GroupLosses(TokenGroups.of_chat(WEIGHTS)), Tiny(), []
    counts = groups.counts(batch["span_id"])
    for parts in zip(*(value.chunk(microbatches) for value in batch.values())):
        part = dict(zip(batch, parts))

        def loss_function(losses, span_id=part["span_id"]):
            report = groups.report(losses, span_id, counts, parts=microbatches)
            return groups.part(losses, span_id, counts) * microbatches, report

        scaled, _ = forward_step_calc_loss(
            model,
            model(part["tokens"], part["labels"]),
            loss_function,
            ModelParallelConfig(),
            vp_stage=None,
            collect_non_loss_data=False,
            num_microbatches=microbatches,
            forward_data_store=told,
            cp_group_size=1,
            is_last_stage=True,
        )
        scaled.backward()
    wanted, means = undivided(batch)
    assert (model.gradient() - wanted).abs().max() <= 1e-6 * wanted.abs().max()
    logged = as_megatron_logs(told)
    names = [*WEIGHTS]
    assert [logged[f"loss/{name}"] for name in names] == pytest.approx(means, rel=1e-5)
    assert [logged[f"tokens/{name}"] for name in names] == pytest.approx(
        [counts[1].item(), counts[2].item(), counts[3:].sum().item()]
    )
    assert [logged[f"weight/{name}"] for name in names] == pytest.approx([*WEIGHTS.values()])


def as_megatron_logs(reports: list[dict[str, torch.Tensor]]) -> dict[str, float]:
    """What its `train_step` makes of the reports of microbatches and processes."""
    totals = {name: torch.stack([report[name] for report in reports]).sum(0) for name in reports[0]}
    return {name: (total[0] / total[1]).item() for name, total in totals.items()}


TASKS = [TaskInfo("own_s", "s", "own"), TaskInfo("own_x", "x", "own"), TaskInfo("web_s", "s", "web"), TaskInfo("web_t", "", "web")]


@pytest.mark.parametrize("parts", [1, 5])
def test_each_denoiser_and_corpus_is_logged_with_its_loss_its_targets_and_its_weight(parts):
    """A group may have no target in a part, or in the whole step; the weighted mean is the sum of weight times loss."""
    generator = torch.Generator().manual_seed(parts)
    losses, task_id = torch.rand(10, 7, generator=generator), torch.randint(-1, 3, (10, 7), generator=generator)
    task_id[:8][task_id[:8] == 1] = 0
    own = {"s": 2.0, "web": 0.5}
    weights = torch.tensor([2.0, 1.0, 1.0, 0.5])
    groups = GroupLosses(TokenGroups.of_tasks(TASKS, own))
    reports = [groups.report(*part, parts=parts) for part in zip(losses.chunk(parts), task_id.chunk(parts))]
    logged = as_megatron_logs(reports)
    members = {"s": [0, 2], "x": [1], "web_t": [3], "own": [0, 1], "web": [2, 3], "own_s": [0], "own_x": [1], "web_s": [2]}
    assert logged.keys() == {"loss", *(f"{what}/{name}" for what in ("loss", "tokens", "weight") for name in members)}
    weighted = torch.where(task_id < 0, 0, weights[task_id])
    assert logged["loss"] == pytest.approx(losses[task_id >= 0].mean().item())
    for name, tasks in members.items():
        of = torch.isin(task_id, torch.tensor(tasks))
        assert logged[f"tokens/{name}"] == pytest.approx(of.sum().item())
        assert logged[f"loss/{name}"] == pytest.approx(losses[of].mean().item() if of.any() else 0)
        assert logged[f"weight/{name}"] == pytest.approx((weighted[of].sum() / weighted.sum()).item())
    groups = GroupLosses(TokenGroups.of_tasks(TASKS))
    plain = as_megatron_logs([groups.report(*part, parts=parts) for part in zip(losses.chunk(parts), task_id.chunk(parts))])
    assert sum(plain[f"weight/{name}"] * plain[f"loss/{name}"] for name in ("s", "x", "web_t")) == pytest.approx(plain["loss"])
