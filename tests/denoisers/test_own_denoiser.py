"""A new kind of denoiser is one class: it is registered and read as those of the package are."""

import dataclasses

import pytest
import seqio

from tests.support import byte_vocabulary, described, flat, records_of
from ul2_tasks import register
from ul2_tasks.denoisers.denoisers import Denoiser
from ul2_tasks.denoisers.reconstruction import invert
from ul2_tasks.denoisers.write import recipe
from ul2_tasks.sources.memory import MemoryDataSource
from ul2_tasks.tokenizers.special_ids import SpecialTokens

BYTES, MODES = byte_vocabulary()
LENGTHS = {"inputs": 64, "targets": 64}
DOCUMENTS = ["", *("abcdefghijklmnopqrstuvwxyz" * 9)[:234:7], *(chr(97 + n % 26) * (3 * n) for n in range(40))]


@dataclasses.dataclass(frozen=True, kw_only=True)
class GapsDenoiser(Denoiser):
    """Three gaps of any length anywhere: how much of a chunk is noise is drawn, up to half of it."""

    name: str = "gaps"
    mode: str | None = "[X]"
    weight: float = 1
    placement = "uniform"

    def noise_counts(self, length):
        noise = max(1, length // 4)
        return noise, min(3, noise)

    def noise_range(self, length):
        noise, gaps = self.noise_counts(length)
        return gaps, 2 * noise - gaps


@dataclasses.dataclass(frozen=True, kw_only=True)
class ListedDenoiser(GapsDenoiser):
    listed: list[int]


@dataclasses.dataclass(kw_only=True)
class ThawedDenoiser(Denoiser):
    name: str = "thawed"
    mode: str | None = None
    weight: float = 1


@pytest.mark.parametrize("denoiser", [ListedDenoiser(listed=[1]), ThawedDenoiser()], ids=["a list", "not frozen"])
def test_one_without_a_hash_is_refused_when_it_is_registered(denoiser):
    for denoisers in (denoiser, [denoiser]):
        with pytest.raises(ValueError, match="denoisers"):
            register("gaps_unhashable", MemoryDataSource(lambda: DOCUMENTS, validation=0), BYTES, denoisers, modes=MODES)


def test_a_class_that_is_written_anew_is_another_denoiser():
    """As a notebook's cell is run again: of equal fields and names, but with other noise."""

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class GapsAnew(GapsDenoiser):
        def noise_range(self, length):
            return self.noise_counts(length)[0], self.noise_counts(length)[0]

    GapsAnew.__qualname__ = GapsAnew.__name__ = "GapsDenoiser"
    noise = []
    for number, denoiser in enumerate((GapsDenoiser(), GapsAnew())):
        source = MemoryDataSource(lambda: DOCUMENTS, validation=0)
        (task,) = seqio.get_mixture_or_task(register(f"gaps_anew_{number}", source, BYTES, denoiser, modes=MODES)).tasks
        examples = task.get_dataset(LENGTHS, "train", shuffle=False, seed=0).as_numpy_iterator()
        full = [invert(example, denoiser, described(task).special_tokens()) for example in examples][:-1]
        noise.append({int(part.is_noise.sum()) for part in full})
    assert len(noise[0]) > 1
    assert len(noise[1]) == 1


@pytest.mark.parametrize("merge_examples", [True, False])
def test_its_examples_are_lossless_and_have_its_counts(merge_examples):
    denoiser, source = GapsDenoiser(), MemoryDataSource(lambda: DOCUMENTS, validation=0)
    name = register(f"gaps_{merge_examples}".lower(), source, BYTES, denoiser, modes=MODES, merge_examples=merge_examples)
    (task,) = seqio.get_mixture_or_task(name).tasks
    examples = list(seqio.Task.get_dataset(task, LENGTHS, "train", False, False, seed=0).as_numpy_iterator())
    found = [invert(example, denoiser, described(task).special_tokens()) for example in examples]
    assert flat(part.chunk.tolist() for part in found) == flat(BYTES.encode(record.text.decode()) for record in records_of(source))
    for example, part in zip(examples, found):
        length = len(part.chunk)
        fewest, most = denoiser.noise_range(length)
        assert fewest <= part.is_noise.sum() <= most
        assert len(part.spans) == denoiser.noise_counts(length)[1]
        longest = denoiser.example_lengths(length, mode_tokens=1)
        assert (len(example["inputs"]) <= longest[0], len(example["targets"]) <= longest[1]) == (True, True)
    assert max(len(part.chunk) for part in found) == described(task).solve(LENGTHS).full.length


@dataclasses.dataclass(frozen=True, kw_only=True)
class WrongDenoiser(Denoiser):
    """It says of a chunk of five tokens what cannot be."""

    name: str = "wrong"
    mode: str | None = None
    weight: float = 1
    spans: int
    fewest: int
    most: int
    placement = "t5"

    def noise_counts(self, length):
        return (self.fewest, self.spans) if length == 5 else (1, 1)

    def noise_range(self, length):
        return (self.fewest, self.most) if length == 5 else (1, 1)


@pytest.mark.parametrize(("spans", "fewest", "most"), [(3, 3, 3), (2, 1, 2), (0, 1, 1), (1, 0, 1), (1, 2, 1), (1, 1, 6), (2, 2, 4)])
def test_a_denoiser_that_says_what_cannot_be_is_refused(spans, fewest, most):
    denoiser = WrongDenoiser(spans=spans, fewest=fewest, most=most)
    with pytest.raises(ValueError, match="noise_counts"):
        recipe(denoiser, SpecialTokens((100, 101, 102), (), 1, frozenset()), 9, (True, True))
