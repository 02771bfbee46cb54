"""What is counted and checked in the examples of each kind of data, see `statistics.measure`: one class for each."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from ul2_tasks.chat.objective import Objective
from ul2_tasks.denoisers.denoisers import Denoiser
from ul2_tasks.denoisers.reconstruction import Reconstruction, invert
from ul2_tasks.example_features import IMAGES, LOSS_MASK, SPAN_ID, TOKEN_FEATURES, token_features
from ul2_tasks.inspect.statistics import Check, Counted, Measured
from ul2_tasks.inspect.view import group_name
from ul2_tasks.mixtures.chat import Chat, format_of, objective_of
from ul2_tasks.mixtures.image_text import ImageText, limits_of
from ul2_tasks.mixtures.mixture import DescribedTask, Mixture, described_tasks
from ul2_tasks.tokenizers.borders import are_borders
from ul2_tasks.tokenizers.special_ids import SpecialTokens, TextIds

TRUNCATION = "no truncation"
SENTINELS = "well-formed sentinels"
RATES = "exact corruption rates"
SPECIAL = "no special token in text"
EMPTY = "no empty inputs"
IMAGES_WHOLE = "images whole, and in inputs alone"
TRAINED = "a token to train on"
LOSS_GROUPS = "known loss groups"

SIGNIFICANCE = 1e-6  # the fraction of all faultless samples that is taken for faulty
COMPARED = 500  # examples of each task that are compared with those of the same number of other tasks
LEAST_PAIRS = 20  # of examples with the same number, for a verdict on the text that they share
WINDOW = 16  # tokens: two texts share a passage if so many tokens in a row are equal
WINDOWS_A_CHUNK = 64  # that are kept of a text, on average


class DenoisedCounts:
    """Counts in the examples of a denoiser, whose chunks are put together again.

    Attributes:
        checks: the names of what an example passes or breaks.
        expected: the numbers of a full-length chunk; empty where these differ.
        ratios: by name, the two numbers that are divided.
    """

    checks: Sequence[str] = (TRUNCATION, SENTINELS, SPECIAL, EMPTY)
    ratios: Mapping[str, tuple[str, str]] = {"corruption rate": ("noise", "chunk"), "mean span": ("noise", "spans")}
    expected: Mapping[str, int] = {}

    def __init__(self, denoiser: Denoiser, special: SpecialTokens, sizes: tuple[int, int], size: int, kept: frozenset[int]):
        """Takes the denoiser and its ids, the budgets, how many ids there are, and the reserved ids that a chunk may have."""
        self.denoiser, self.special, self.budgets = denoiser, special, sizes
        self._text_ids = TextIds(size, special.reserved - kept)

    def __call__(self, example: Mapping[str, Any]) -> Counted:
        inputs, targets = (len(example[key]) for key in TOKEN_FEATURES)
        faults = {} if inputs else {EMPTY: "inputs without a token"}
        whole = None
        try:
            whole = invert(example, self.denoiser, self.special)
            faults |= self.wrong(example, whole)
        except ValueError as error:
            faults |= {SENTINELS: str(error), TRUNCATION: str(error)}
        if inputs > self.budgets[0] or targets > self.budgets[1]:
            sizes = f"inputs of {inputs} tokens and targets of {targets}, the budgets are {self.budgets}"
            faults.setdefault(TRUNCATION, sizes)
        numbers = {"inputs": inputs, "targets": targets, **dict.fromkeys(("chunk", "noise", "spans"), 0)}
        if whole is not None:
            numbers |= {"chunk": len(whole.chunk), "noise": int(whole.is_noise.sum()), "spans": len(whole.spans)}
        return Counted(numbers | self.more(example, whole), faults)

    def wrong(self, example: Mapping[str, Any], whole: Reconstruction) -> dict[str, str]:
        """What is wrong, by check."""
        inside = whole.chunk[~self._text_ids.are_in(whole.chunk)]
        return {SPECIAL: f"a chunk holds {inside[:5].tolist()}"} if inside.size else {}

    def more(self, example: Mapping[str, Any], whole: Reconstruction | None) -> dict[str, int]:
        """More numbers of an example; without `whole` it could not be put together."""
        return {}


class TextCounts(DenoisedCounts):
    """Counts in the examples of a denoiser of text.

    Attributes:
        first_spans: the tokens of the first span of each full-length chunk.
        first_texts: the windows of each of the first `COMPARED` chunks, see `windows`.
    """

    checks = (TRUNCATION, SENTINELS, RATES, SPECIAL, EMPTY)

    def __init__(self, task: DescribedTask, sequence_length: Mapping[str, int], every: int):
        """One of `every` windows of text is kept."""
        solution = task.solve(sequence_length)
        budgets = int(sequence_length["inputs"]), int(sequence_length["targets"])
        super().__init__(task.denoiser, solution.special, budgets, task.vocabulary.vocab_size, frozenset())
        self.full, self._every = solution.full, every
        self.expected = {
            **{"inputs": self.full.inputs, "targets": self.full.targets, "chunk": self.full.length},
            **{"noise": self.full.noise, "spans": self.full.spans},
        }
        if solution.special.borders:
            self.ratios = {**self.ratios, f"ends at {task.denoiser.borders}": ("at borders", "ends")}
            self.expected |= dict.fromkeys(("ends", "at borders"), 2 * self.full.spans - 1)  # the chunk's end is none
        self.first_spans: list[int] = []
        self.first_texts: list[set[int]] = []

    def wrong(self, example, whole):
        faults, length, noise = super().wrong(example, whole), len(whole.chunk), int(whole.is_noise.sum())
        (fewest, most), spans = self.denoiser.noise_range(length), self.denoiser.noise_counts(length)[1]
        if not fewest <= noise <= most or len(whole.spans) != spans:
            expected = f"{fewest} .. {most}" if fewest < most else fewest
            message = f"a chunk of {length} tokens has {noise} noise tokens in {len(whole.spans)} spans"
            faults[RATES] = f"{message}, expected {expected} in {spans}"
        # With a uniform split `full` has the longest inputs (with the fewest noise tokens) and the longest targets (with the most).
        possible = min(max(noise, fewest), most)
        solved = self.full.inputs - (possible - fewest), self.full.targets - (most - possible)
        sizes = len(example["inputs"]), len(example["targets"])
        if not self.denoiser.lengths_follow_noise:
            solved = sizes
        if length > self.full.length or (length == self.full.length and sizes != solved):
            expected = f"{solved} for a chunk of {self.full.length}"
            faults[TRUNCATION] = f"inputs and targets of {sizes} tokens for a chunk of {length}, expected {expected}"
        return faults

    def more(self, example, whole):
        if len(self.first_texts) < COMPARED:
            self.first_texts.append(set() if whole is None else windows(whole.chunk, self._every))
        if whole is not None and len(whole.chunk) == self.full.length and len(whole.spans):
            self.first_spans.append(int(whole.spans[0]))
        if not self.special.borders:
            return {}
        if whole is None:
            return {"ends": 0, "at borders": 0}
        ends = np.diff(whole.is_noise)
        return {"ends": int(ends.sum()), "at borders": int((ends & are_borders(self.special.borders, whole.chunk)).sum())}


class ImageCounts(DenoisedCounts):
    """Counts in the examples of a denoiser of texts with images, whose tokens are never masked."""

    checks = (*DenoisedCounts.checks, IMAGES_WHOLE)

    def __init__(self, images: ImageText, denoiser: Denoiser, special: SpecialTokens, budgets: tuple[int, int]):
        super().__init__(denoiser, special, budgets, images.vocabulary.vocab_size, frozenset(images.image_tokens.ids))
        self._tokens = images.image_tokens

    def wrong(self, example, whole):
        images, marks = len(example[IMAGES]), self._tokens.ids
        expected = [images, images * self._tokens.image_seq_length, images]
        found = [int((np.asarray(example["inputs"]) == id).sum()) for id in marks]
        if found == expected and not np.isin(example["targets"], marks).any():
            return super().wrong(example, whole)
        masked = int(np.isin(example["targets"], marks).sum())
        return {IMAGES_WHOLE: f"inputs have {found} of {marks} and targets {masked}, expected {expected} for {images} images"}

    def more(self, example, whole):
        images = len(example[IMAGES])
        return {"images": images, "image placeholders": images * self._tokens.image_seq_length}


class ChatCounts:
    """Counts in the examples of conversations: which tokens are trained on, and of which loss group they are."""

    checks = (TRUNCATION, TRAINED, LOSS_GROUPS)
    expected: ClassVar[Mapping[str, int]] = {}

    def __init__(self, objective: Objective, sequence_length: Mapping[str, int | None]):
        self.budgets = {key: sequence_length.get(key) for key in token_features(objective.features)}
        groups = {group for group in objective.supervision.loss_groups.values() if group}  # type: ignore[union-attr]
        self.groups = {group: group_name(group) for group in sorted(groups)}
        self.ratios = {"trained on": ("trained", list(self.budgets)[-1])}

    def __call__(self, example: Mapping[str, Any]) -> Counted:
        lengths = {key: len(example[key]) for key in self.budgets}
        mask, groups = np.asarray(example[LOSS_MASK]), np.asarray(example[SPAN_ID])
        counts = np.bincount(groups, minlength=256)
        faults = {}
        if any(most is not None and lengths[key] > most for key, most in self.budgets.items()):
            faults[TRUNCATION] = f"{lengths} tokens, the lengths are {self.budgets}"
        if not mask.any():
            faults[TRAINED] = f"none of {lengths} tokens"
        if set(np.flatnonzero(counts).tolist()) - {0, *self.groups} or ((mask > 0) != (groups > 0)).any():
            faults[LOSS_GROUPS] = f"groups {np.flatnonzero(counts).tolist()}, expected {sorted(self.groups)} where it is trained on"
        of_groups = {name: int(counts[group]) for group, name in self.groups.items()}
        return Counted({**lengths, "trained": int((mask > 0).sum()), **of_groups}, faults)


Counts = DenoisedCounts | ChatCounts


@functools.singledispatch
def counts_of(description: Any, sequence_length: Mapping[str, Any]) -> dict[str, Counts]:
    """What counts in the examples of each task of a description of one kind, by the task's name."""
    raise ValueError(f"the description must be a Mixture, a Chat or an ImageText, got {description!r}.")


@counts_of.register
def _(mixture: Mixture, sequence_length: Mapping[str, int]) -> dict[str, Counts]:
    tasks = described_tasks(mixture)
    shortest = min(task.solve(sequence_length).full.length for task in tasks)
    return {task.name: TextCounts(task, sequence_length, max(1, shortest // WINDOWS_A_CHUNK)) for task in tasks}


@counts_of.register
def _(images: ImageText, sequence_length: Mapping[str, int]) -> dict[str, Counts]:
    limits = limits_of(images, sequence_length)
    return {each.name: ImageCounts(images, each.denoiser, each.special, each.lengths) for each in limits}


@counts_of.register
def _(chat: Chat, sequence_length: Mapping[str, int | None]) -> dict[str, Counts]:
    objective = objective_of(chat, format_of(sequence_length))
    return {chat.registered_name(sequence_length): ChatCounts(objective, sequence_length)}


def checks_of(counts: Mapping[str, Counts], rates: Mapping[str, float]) -> list[str | Callable[[Measured], Check]]:
    """All checks of tasks, by name, of which each is to have so many of the examples."""
    names = dict.fromkeys(itertools.chain.from_iterable(each.checks for each in counts.values()))
    texts = {task: each for task, each in counts.items() if isinstance(each, TextCounts)}
    of_texts = [functools.partial(_span_lengths_check, texts), functools.partial(_shared_text_check, texts)] if texts else []
    return [*names, functools.partial(_rates_check, rates), *of_texts]


def binomial_interval(trials: int, probability: float) -> tuple[int, int]:
    """The interval, both ends included, that a binomial count falls out of with a probability of at most `SIGNIFICANCE`.

    >>> binomial_interval(4000, 0.5)
    (1845, 2155)
    """
    if not 0 < probability < 1:
        return (round(trials * probability),) * 2
    numbers = np.arange(1, trials + 1)
    ratios = (trials - numbers + 1) / numbers * (probability / (1 - probability))  # of the probability of a count to that before it
    logarithms = np.concatenate([[0.0], np.cumsum(np.log(ratios))])
    law = np.exp(logarithms - logarithms.max())
    law /= law.sum()
    # Each tail is added up from its own end, where sums are as exact as the tail is small.
    low, above = (int(np.searchsorted(np.cumsum(tail), SIGNIFICANCE / 2, "right")) for tail in (law, law[::-1]))
    return low, trials - above


def _rates_check(rates: Mapping[str, float], measured: Measured) -> Check:
    wrong, all_ = [], measured.examples
    for task, rate in rates.items():
        (low, high), found = binomial_interval(all_, rate), len(measured.of(task, next(iter(measured.numbers[task]), "")))
        if not low <= found <= high:
            wrong.append(f"{task} is {found / all_:.2%}, expected {rate:.2%}, within {low / all_:.2%} .. {high / all_:.2%}")
    return Check("mixing rates as expected", not wrong, "; ".join(wrong) or f"all {len(rates)} tasks are")


def _span_lengths_check(counts: Mapping[str, TextCounts], measured: Measured) -> Check:
    """Whether as many first spans of full chunks are at most of mean length as in random compositions.

    The spans are a random way to write n noise tokens as a sum of k parts, of which C(n-1, k-1) are equally likely; in
    C(n-m-1, k-1) of them the first part is longer than m.
    """
    wrong, compared = [], 0
    for name, task in counts.items():
        noise, spans, first = task.full.noise, task.full.spans, np.array(task.first_spans)
        if not first.size or not 1 < spans < noise or task.denoiser.borders or task.denoiser.targets:
            continue
        compared += 1
        mean = noise // spans
        expected = 1 - math.comb(noise - mean - 1, spans - 1) / math.comb(noise - 1, spans - 1)
        found, (low, high) = int((first <= mean).sum()), binomial_interval(first.size, expected)
        if not low <= found <= high:
            wrong.append(f"{name} begins with at most {mean} tokens in {found / first.size:.1%}, expected {expected:.1%}")
    return Check("span lengths as expected", not wrong, "; ".join(wrong) or f"of all {compared} tasks that draw them")


def _shared_text_check(counts: Mapping[str, TextCounts], measured: Measured) -> Check:
    """Whether the n-th examples of two tasks share text more often than by chance.

    With stock tasks all of them do, because each task reads the same documents in the same order. But in a small corpus any two
    examples share text, which is no fault. So the examples of the same number are compared with examples of different numbers:
    these show what chance gives in this very corpus, whatever its size, its documents and its repeated phrases. With
    `LEAST_PAIRS` pairs an excess of one half over chance has a probability of about `SIGNIFICANCE` or less.
    """
    check, found = "denoisers read different text", list(_shared(counts))
    if not found:
        return Check(check, True, "nothing to compare, or too few examples to tell")
    at_once, chance, names = max(found, key=lambda each: each[0] - each[1])
    told = f"{at_once:.0%} of the n-th examples of {names} share text, {chance:.0%} of those of different numbers"
    return Check(check, at_once - chance <= 0.5, told)


def _shared(counts: Mapping[str, TextCounts]) -> Iterator[tuple[float, float, str]]:
    """Of two tasks, how many of the n-th examples share text, how many others do, and the names of the tasks."""
    for (one, a), (other, b) in itertools.combinations(counts.items(), 2):
        count = min(len(a.first_texts), len(b.first_texts))
        texts = a.first_texts[:count], b.first_texts[:count]
        shared, pairs = _pairs_that_share(*texts, 0)
        by_chance = [_pairs_that_share(*texts, count * part // 4) for part in (1, 2, 3)]
        if pairs >= LEAST_PAIRS and (others := sum(pairs for _, pairs in by_chance)):
            yield shared / pairs, sum(shared for shared, _ in by_chance) / others, f"{one} and {other}"


def _pairs_that_share(a: Sequence[set[int]], b: Sequence[set[int]], shift: int) -> tuple[int, int]:
    """How many pairs of examples, number i of `a` and number i + shift of `b`, share a window; and in how many both have one."""
    pairs = [(ours, theirs) for ours, theirs in zip(a, [*b[shift:], *b[:shift]]) if ours and theirs]
    return sum(not ours.isdisjoint(theirs) for ours, theirs in pairs), len(pairs)


def windows(tokens: np.ndarray, every: int) -> set[int]:
    """The hashes of all windows of `WINDOW` tokens that are a multiple of `every`, so that equal text has equal hashes.

    See Broder, "On the resemblance and containment of documents", 1997. Hashes are mixed by the finalizer of MurmurHash3. On
    average, one of so many windows is kept; none if there are fewer tokens than `WINDOW`.
    """
    tokens = tokens.astype(np.uint64)
    count = max(0, tokens.size - WINDOW + 1)
    hashes = np.zeros(count, np.uint64)
    for offset in range(WINDOW):
        hashes = hashes * np.uint64(0x9E3779B97F4A7C15) + tokens[offset : offset + count]
    for multiplier in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53, 1):
        hashes = (hashes ^ (hashes >> np.uint64(33))) * np.uint64(multiplier)
    return set(hashes[hashes % np.uint64(every) == 0].tolist())
