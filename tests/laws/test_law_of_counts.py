"""How often each token is read, counted from what is delivered, of random mixtures: weights to 1 in 100,000, packed or not, staged,
in blocks, with documents left out, with steps skipped, on several hosts.

Each token of all corpora is another id, so what a row holds says which tokens were read.
"""

import dataclasses

import numpy as np
import pytest
import seqio

import ul2_tasks
from ul2_tasks import T5GEMMA2, UL2, BlockShuffle, Mix, Mixture, Stage
from ul2_tasks.random_access.numbering import Share
from ul2_tasks.random_access.sequence import read_rows
from ul2_tasks.store.write import PairWriter

LENGTHS = {"inputs": 64, "targets": 64}
FIRST, IDS, MOST = 10, 60_000, 9_000  # the first id of text, how many there are, and how many of them a corpus has at most
BATCH = 8
VOCABULARY = seqio.PassThroughVocabulary(IDS + 203, eos_id=1)
MODES = {"[R]": IDS + 200, "[S]": IDS + 201, "[X]": IDS + 202}
CASES = range(36)


@dataclasses.dataclass
class Case:
    """A random mixture, described; `documents` has of each corpus the ids with which its documents begin, and end."""

    seed: int
    mixtures: list[Mixture]
    documents: dict[str, np.ndarray]
    weights: list[float]
    pack: bool
    in_blocks: bool
    hosts: int

    @property
    def mix(self) -> Mix:
        return Mix("counted", dict(zip(self.mixtures, self.weights)))

    def examples(self, mix=None, **arguments):
        return ul2_tasks.examples(mix or self.mix, LENGTHS, pack=self.pack, seed=self.seed, **arguments)

    def rng(self) -> np.random.Generator:
        return np.random.default_rng([self.seed, 1])


@pytest.fixture(params=CASES, scope="module")
def case(request, tmp_path_factory) -> Case:
    tmp_path = tmp_path_factory.mktemp("counted")
    rng = np.random.default_rng(request.param)
    in_blocks = bool(rng.random() < 0.3)
    mixtures, documents, first = [], {}, FIRST
    for number in range(int(rng.integers(1, 5))):
        lengths = rng.integers(0, int(rng.choice([8, 60, 400])), int(rng.integers(5, 60)))
        lengths = lengths[np.cumsum(lengths) < MOST] if lengths.sum() else np.array([7, 0, 5])
        form = rng.choice(["joined", "separated", "apart"])
        end = VOCABULARY.eos_id if form == "separated" else None
        with PairWriter(f"{tmp_path}/{number}.bin", f"{tmp_path}/{number}.idx", np.dtype(np.uint16), end) as pair:
            pair.add(first + np.arange(lengths.sum(), dtype=np.int32), lengths)
        denoisers = [T5GEMMA2, T5GEMMA2[:1], UL2][int(rng.integers(3))]
        mixture = Mixture(
            f"counted_{number}",
            f"megatron:{tmp_path}/{number}",
            VOCABULARY,
            denoisers,
            sentinels=range(IDS, IDS + 200),
            modes=MODES,
            separate_documents=bool(form == "separated"),
            merge_examples=bool(form != "apart"),
            block_shuffle=BlockShuffle(64, int(rng.choice([2, 3])), 2) if in_blocks and rng.random() < 0.7 else None,
        )
        mixtures.append(mixture)
        documents[mixture.corpus().name] = first + np.concatenate([[0], np.cumsum(lengths)])
        first += int(lengths.sum())
    weights = [float(f"{10 ** rng.uniform(-5, 0):.2g}") for _ in mixtures]
    if rng.random() < 0.3:
        weights = [float(each) for each in rng.integers(1, 4, len(mixtures))]
    return Case(request.param, mixtures, documents, weights, bool(rng.random() < 0.5), in_blocks, int(rng.integers(1, 4)))


def delivered(found, numbers) -> np.ndarray:
    """[ids] int64, how often each token is in the elements of these numbers."""
    held = np.zeros(IDS, np.int64)
    parts = (part for first in range(0, len(numbers), 512) for part in of_lengths(found, numbers[first : first + 512]))
    for rows in parts:
        tokens = np.concatenate([rows[key].reshape(-1) for key in ("inputs", "targets")])
        tokens = tokens[(tokens >= FIRST) & (tokens < IDS)]
        held += np.bincount(tokens, minlength=IDS)
    return held


def of_lengths(found, numbers) -> list[dict[str, np.ndarray]]:
    """The rows of these numbers, together where they have the same lengths, which are those of their stage."""
    parts = [(lengths, numbers[of]) for lengths, of in found.numbering.by_lengths(numbers, LENGTHS)]
    made = [(lengths, read_rows(found, of)[0]) for lengths, of in parts]
    for lengths, rows in made if found.numbering.packed else ():
        assert {key: rows[key].shape[1] for key in lengths} == dict(lengths)
    return [rows for _, rows in made]


def by_corpus(case: Case, held: np.ndarray) -> dict[str, np.ndarray]:
    return {name: held[ends[0] : ends[-1]] for name, ends in case.documents.items()}


def test_an_epoch_has_each_token_once_at_most_or_says_so_and_the_first_ends_with_a_corpus(case, caplog):
    found = case.examples()
    total = 0
    for epoch in range(4):
        caplog.clear()
        of_epoch = found.epoch(epoch)
        told = caplog.text
        numbers = np.arange(of_epoch.first, of_epoch.first + len(of_epoch))
        shares = [Share(host, case.hosts, start=of_epoch.first) for host in range(case.hosts)]
        of_hosts = [share.numbers(np.arange(share.count(of_epoch.first + len(of_epoch)))) for share in shares]
        assert sorted(np.concatenate(of_hosts).tolist()) == numbers.tolist()
        held = sum(delivered(found, each) for each in of_hosts)
        total = total + held
        for name, times in by_corpus(case, held).items():
            assert times.max() <= 1 or (epoch and name in told), (epoch, name)
        assert total.max() <= epoch + 1
        assert not told or epoch
        if not epoch and not case.in_blocks:
            assert any(times.min() == 1 for times in by_corpus(case, held).values()), "a corpus is read to its end"
        assert of_epoch.at(of_epoch.first)[0].number == epoch or not len(of_epoch)


def test_weights_are_exact_however_far_apart_packed_or_not(case):
    found = case.examples()
    numbering = found.numbering
    turns, elements = numbering.mix.turns, int(case.rng().integers(100, 4_000 if case.pack else 20_000))
    slots = numbering.slots(np.arange(elements))
    asked = np.array(case.weights) / sum(case.weights)
    names = [mixture.corpus().name for mixture in case.mixtures]
    asked = asked[[names.index(corpus.name) for corpus in numbering.corpora]]
    examples = np.bincount(slots.corpora, minlength=len(asked))
    if not case.pack:
        assert np.abs(examples - elements * asked).max() < 1.5 * turns
        return
    _, of_rows = np.unique(slots.places, return_index=True)
    rows = np.bincount(slots.corpora[of_rows], minlength=len(asked))
    of_each = np.array([corpus.order.examples / packed.rows_about for corpus, packed in zip(numbering.corpora, numbering.packed)])
    expected = asked / of_each / (asked / of_each).sum() * elements
    assert np.abs(rows - expected).max() < 1.5 * turns
    often = rows > 500
    assert examples[often] / examples.sum() == pytest.approx(asked[often], rel=0.06)


def test_weights_of_tokens_are_parts_of_the_tokens_packed_or_not(case):
    found = case.examples(Mix("counted", dict(zip(case.mixtures, case.weights)), weigh="tokens"))
    slots, tokens = found.numbering.slots(np.arange(4_000)), {}
    for number, corpus in enumerate(found.numbering.corpora):
        of = slots.corpora == number
        located = corpus.kind.origin(corpus.order.ranges(slots.epochs[of], slots.slots[of]))
        tokens[corpus.name] = int((located.stops - located.starts).sum())
    asked = {mixture.corpus().name: weight / sum(case.weights) for mixture, weight in zip(case.mixtures, case.weights)}
    often = [name for name, read in tokens.items() if read > 3 * found.numbering.corpora[0].store.tokens and asked[name] > 0.1]
    assert [tokens[name] / sum(tokens.values()) for name in often] == pytest.approx([asked[name] for name in often], rel=0.04)


def staged(case: Case, steps: int, batch_sizes: tuple[int, ...] = ()) -> Mix:
    """Two or three stages; of half of the cases each has its own lengths, and begins where a turn of all partitions does."""
    rng, has_lengths = case.rng(), case.seed % 2 == 0
    firsts = sorted({0, *rng.integers(1, steps, 2).tolist()})
    stages = []
    for number, first in enumerate({-(-first // 3) * 3: 0 for first in firsts} if has_lengths else firsts):
        length = int(np.random.default_rng([case.seed, number]).choice([48, 64, 160])) if number else 64
        more = {"lengths": dict.fromkeys(LENGTHS, length)} if has_lengths else {}
        more |= {"batch_size": batch_sizes[number]} if batch_sizes else {}
        chosen = rng.permutation(len(case.mixtures))[: int(rng.integers(1, len(case.mixtures) + 1))]
        stages.append(Stage(first, {case.mixtures[each]: float(10 ** rng.uniform(-5, 0)) for each in sorted(chosen)}, **more))
    return Mix("counted_staged", schedule=stages, batch_size=BATCH, steps=steps)


def test_a_corpus_is_read_again_when_all_of_it_was_read_whatever_the_stages(case):
    mix = staged(case, 80, (BATCH, 24, 12))
    found = case.examples(mix)
    assert len(found) == mix.planned.elements
    held = delivered(found, np.arange(len(found)))
    for name, times in by_corpus(case, held).items():
        assert times.max() - times.min() <= 1, name


@pytest.mark.parametrize("is_staged", [False, True])
def test_a_corpus_that_ends_is_read_so_often_and_its_part_goes_to_the_others(case, is_staged):
    rng = case.rng()
    mix, most = staged(case, 200) if is_staged else case.mix, int(rng.integers(1, 3))
    ended = {mixture: most for mixture in case.mixtures[1:] if mixture in mix.leaves}
    try:
        found = case.examples(dataclasses.replace(mix, max_epochs=ended, weigh=str(rng.choice(["tokens", "examples"]))))
    except ValueError as error:
        if "max_epochs" not in str(error) or not (is_staged or case.in_blocks):
            raise
        return
    numbering, numbers = found.numbering, np.arange(200 * BATCH)
    held, slots = by_corpus(case, delivered(found, numbers)), numbering.slots(numbers)
    for name in (mixture.corpus().name for mixture in ended):
        assert held[name].max() <= most
        ends = [s.first for s in numbering.mixed[1:] if name not in {numbering.corpora[each].name for each in s.corpora}]
        if ends and ends[0] <= len(numbers) and not is_staged:
            assert held[name].min() == most or numbering.mix.turns > 1
    for number in np.unique(slots.corpora).tolist():
        of = slots.corpora == number
        assert np.array_equal(numbering.numbers(number, slots.epochs[of], slots.slots[of]), slots.places[of])
    first, second = found.epoch(1).first, found.epoch(2).first
    assert found.at(first)[0].number == 1 or first == second


@pytest.mark.parametrize("is_staged", [False, True])
def test_skipped_steps_are_not_read_and_all_others_are_in_their_order(case, is_staged):
    mix, rng = staged(case, 40) if is_staged else case.mix, case.rng()
    before = case.examples(mix)
    starts = sorted(rng.choice([0, 0, 1, 3, 6], int(rng.integers(1, 4))).tolist())
    skips = [(start, start + int(rng.integers(1, 4))) for start in starts]
    kept = list(range(64))
    for first, stop in skips:
        del kept[first:stop]
    stages = [stage.first_step for stage in mix.schedule or ()]
    steps = len(kept) if not is_staged else min([20, *(first for first in stages if first > skips[0][0])])
    found = case.examples(mix, skip=skips, batch_size=BATCH)
    numbers = np.array(kept[:steps])[:, np.newaxis] * BATCH + np.arange(BATCH)
    if is_staged:  # what is skipped before a stage begins is not of that stage
        numbers = numbers[[step < min([10**9, *(f for f in stages if f > skips[0][0])]) for step in kept[:steps]]]
    ones, others = of_lengths(before, numbers.reshape(-1)), of_lengths(found, np.arange(numbers.size))
    assert all(np.array_equal(one[key], other[key]) for one, other in zip(ones, others, strict=True) for key in one)


def test_a_list_ends_no_run_and_what_it_leaves_is_read_as_often_as_before(case):
    rng = case.rng()
    mix = staged(case, 60) if rng.random() < 0.5 else case.mix
    before = case.examples(mix)
    part, left_out = rng.choice([0.1, 0.5, 1.0]), {}
    for name, ends in case.documents.items():
        lengths = np.diff(ends)
        chosen = np.flatnonzero(rng.random(len(lengths)) < part)
        left_out[name] = np.setdiff1d(chosen, [int(rng.choice(np.flatnonzero(lengths)))])  # one that has tokens is left
    entries = [{"corpus": name, "document": int(each)} for name, documents in left_out.items() for each in documents]
    found = case.examples(mix, exclude=entries)
    held, was = (delivered(each, np.arange(40 * BATCH)) for each in (found, before))
    for name, ends in case.documents.items():
        gone = np.zeros(IDS, bool)
        for document in left_out[name].tolist():
            gone[ends[document] : ends[document + 1]] = True
        assert not held[gone].any()
        others = np.setdiff1d(np.arange(ends[0], ends[-1]), np.flatnonzero(gone))
        assert (held[others] >= was[others]).all()
