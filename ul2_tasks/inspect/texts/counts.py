"""What is counted in the examples of one task while they are drawn. The chunk of each is put together again and checked."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ul2_tasks.denoisers.reconstruction import invert
from ul2_tasks.example_features import TOKEN_FEATURES
from ul2_tasks.inspect.statistics import Tally
from ul2_tasks.mixtures.mixture import DescribedTask

COMPARED = 500  # examples of each task that are compared with those of the same number of other tasks
WINDOW = 16  # tokens: two texts share a passage if so many tokens in a row are equal

# The numbers of an example. `chunk` and those after it are 0 if the chunk could not be put together again.
COLUMNS = (*TOKEN_FEATURES, "chunk", "noise", "spans", "first_span", "is_full")


class Counts:
    """What was counted in the examples of one task.

    Attributes:
        faults: those of examples, see `checks`.
        concatenates: whether the task concatenates documents before it cuts them into chunks.
        first_texts: the windows of each of the first `COMPARED` chunks, see `windows`.
    """

    def __init__(self, task: DescribedTask, sequence_length: Mapping[str, int], every: int, has_tails: bool = False):
        """One of `every` windows of text is kept, see `windows`. `sequence_length` is in tokens.

        `has_tails` says that the last chunks of an epoch are there, which are shorter, so that each token is in an example.
        """
        self.task = task
        self.sequence_length = sequence_length
        self.full = task.solve(sequence_length).full
        self.special = task.special_tokens()
        self.faults = Tally()
        self.first_texts: list[set[int]] = []
        self._every = every
        self.concatenates = task.configuration.merge_examples
        self._is_always_full = self.concatenates and not has_tails
        self._is_text = np.ones(task.vocabulary.vocab_size, bool)
        self._is_text[list(self.special.reserved)] = False
        self._expected_of: dict[int, tuple[int, int, int]] = {}

    def add(self, example: Mapping[str, np.ndarray]) -> tuple[int, ...]:
        """Counts an example; returns its `COLUMNS`."""
        inputs, targets = (len(example[key]) for key in TOKEN_FEATURES)
        if not inputs:
            self._fault("empty", "inputs without a token")
        try:
            reconstruction = invert(example, self.task.denoiser, self.special)
        except ValueError as error:
            self._fault("unreadable", str(error))
            self._fault("truncated", str(error))
            self._add_text(np.array([], np.int64))
            return inputs, targets, 0, 0, 0, 0, 0
        chunk, spans = reconstruction.chunk, reconstruction.spans
        noise, is_full = int(reconstruction.is_noise.sum()), chunk.size == self.full.length
        self._check(inputs, targets, chunk, noise, spans)
        self._add_text(chunk)
        return inputs, targets, chunk.size, noise, spans.size, int(spans[0]) if spans.size else 0, int(is_full)

    def _add_text(self, chunk: np.ndarray) -> None:
        if len(self.first_texts) < COMPARED:
            self.first_texts.append(windows(chunk, self._every))

    def _check(self, inputs: int, targets: int, chunk: np.ndarray, noise: int, spans: np.ndarray) -> None:
        fewest, most, expected_spans = self._expected(chunk.size)
        if not fewest <= noise <= most or spans.size != expected_spans:
            expected = f"{fewest} .. {most}" if fewest < most else fewest
            message = f"a chunk of {chunk.size} tokens has {noise} noise tokens in {spans.size} spans"
            self._fault("miscounted", f"{message}, expected {expected} in {expected_spans}")
        if chunk.size and not (chunk.min() >= 0 and chunk.max() < self._is_text.size and self._is_text[chunk].all()):
            inside = [id for id in chunk.tolist() if not (0 <= id < self._is_text.size and self._is_text[id])]
            self._fault("special", f"a chunk holds {inside[:5]}")

        # With a uniform split `full` has the longest inputs (with the fewest noise tokens) and the longest targets (with the most).
        possible = min(max(noise, fewest), most)
        solved = self.full.inputs - (possible - fewest), self.full.targets - (most - possible)
        budgets = tuple(self.sequence_length[key] for key in TOKEN_FEATURES)
        if inputs > budgets[0] or targets > budgets[1]:
            self._fault("truncated", f"inputs of {inputs} tokens and targets of {targets}, the budgets are {budgets}")
        elif chunk.size > self.full.length or (chunk.size < self.full.length and self._is_always_full):
            self._fault("truncated", f"a chunk of {chunk.size} tokens, expected {self.full.length}")
        elif chunk.size == self.full.length and (inputs, targets) != solved:
            self._fault("truncated", f"inputs of {inputs} tokens and targets of {targets}, expected {solved}")

    def _expected(self, length: int) -> tuple[int, int, int]:
        """The fewest and the most noise tokens, and the number of spans, of a chunk of this length."""
        if length not in self._expected_of:
            _, spans = self.task.denoiser.noise_counts(length)
            self._expected_of[length] = *self.task.denoiser.noise_range(length), spans
        return self._expected_of[length]

    def _fault(self, kind: str, message: str) -> None:
        self.faults.add(kind, f"{self.task.name}: {message}")


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
