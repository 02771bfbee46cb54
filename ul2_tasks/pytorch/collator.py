"""`UL2DataCollator`: lists of texts or tokens to inputs of Hugging Face's models, corrupted as in SeqIO's pipelines."""

from __future__ import annotations

import functools
import hashlib
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import seqio
import tensorflow as tf

from ul2_tasks.converters.hugging_face import RowFormat, model_inputs
from ul2_tasks.denoising.denoisers import T5GEMMA2, Denoiser, check_denoisers
from ul2_tasks.denoising.preprocessors import DenoisingConfiguration, corrupt_chunks, solve
from ul2_tasks.example_features import EXAMPLE
from ul2_tasks.graphs import no_autograph
from ul2_tasks.pytorch.forks import check_process
from ul2_tasks.scalars import is_integer
from ul2_tasks.vocabulary.by_name import open_for_modes
from ul2_tasks.vocabulary.special_ids import Mode, SpecialTokens, SpecialTokensRequest, id_shift, text_vocabulary

if TYPE_CHECKING:
    import torch

TOKENS, TEXT = "input_ids", "text"
# To copy a batch to a GPU and back would cost more than the work itself.
_DEVICE = "CPU:0"
_RAGGED = tf.TensorSpec([None], tf.int32), tf.TensorSpec([None], tf.int64)  # tokens and lengths of rows


class UL2DataCollator:
    """A collate function for a PyTorch DataLoader: corrupts examples, and makes a batch for a model of `transformers`.

        collator = UL2DataCollator("my.model", {"inputs": 512, "targets": 512})
        for batch in torch.utils.data.DataLoader(texts, batch_size=32, collate_fn=collator):
            loss = model(**batch).loss

    An example is a text; or its ids, as a list or an array; or a dictionary with `input_ids` or else `text`, such as `datasets`
    gives. (`transformers.Trainer` drops a column that its model does not know, such as `text`, unless
    `remove_unused_columns=False`.) Each example is one chunk: one denoiser, drawn by weight, corrupts all of its tokens.
    The graph is the one of SeqIO's pipelines, so the numbers of noise tokens and spans are exact for each length, no token is
    lost, and no text becomes a special token. But examples are neither concatenated nor cut. An example of more than
    `max_tokens` tokens is an error; `chunks` cuts a document:

        stream = documents.map(
            lambda batch: {"input_ids": [chunk for text in batch["text"] for chunk in collator.chunks(text)]},
            batched=True, remove_columns=documents.column_names,
        )

    **Ids** are always the tokenizer's own, in examples, batches, `chunks` and arguments, even if the vocabulary has shifted ids for
    SeqIO (`special_ids.id_shift`).

    **Randomness** has one state, the number of batches made so far. The noise of a batch is a function of `seed`, of that number,
    of the batch's tokens, and in a worker of a DataLoader also of the worker's seed (`torch.utils.data.get_worker_info().seed`).
    PyTorch draws a seed for each worker in each pass over a DataLoader, from `DataLoader(generator=..)` or `torch.manual_seed`.
    So:

    * Different batches, passes and workers have different noise, even for the same tokens.
    * The same seed gives the same batches in the same order; with workers, PyTorch's seed must be the same, too.
    * Processes that train together read different data, and so have different noise. If they read the same data, they have the
      same noise.
    * `load_state_dict()` goes on where a run stopped. Without workers this is exact. A worker has its own copy of the collator,
      made when the worker started, and counts its own batches: a run that goes on with workers draws new noise.

    **Workers.** A process that was forked after TensorFlow had run would hang in TensorFlow. This is an error here, which says
    what to do. If TensorFlow was only imported, as by this package, a fork works. The collator can be pickled.

    **GPUs.** The collator computes on the CPU. But when TensorFlow first runs, it reserves memory on every GPU that it sees. To
    prevent that, call `tf.config.set_visible_devices([], "GPU")` before; the collator leaves this to the program.

    Attributes:
        max_tokens: the length of the longest example, in tokens, that every denoiser can take.
    """

    def __init__(
        self,
        vocabulary: seqio.Vocabulary | str | os.PathLike[str],
        sequence_length: Mapping[str, int],
        denoisers: Iterable[Denoiser] | Denoiser | str = T5GEMMA2,
        *,
        sentinels: int | Sequence[int] | str | None = None,
        modes: Mapping[str, Mode] | None = None,
        chunk_tokens: int | None = None,
        seed: int = 0,
        padding: str = "longest",
        pad_to_multiple_of: int = 8,
        decoder_start_token_id: int = 0,
        decoder_only: bool = False,
        pad_token_id: int = 0,
        return_tensors: str = "pt",
    ):
        """Opens the vocabulary; runs no TensorFlow.

        Args:
            vocabulary, denoisers, sentinels, modes: as for `register`, but ids are the tokenizer's own.
            sequence_length: {"inputs": int, "targets": int}, the budgets in tokens.
            chunk_tokens: an upper bound for `max_tokens`, for budgets that ask for more sentinels than there are.
            seed: of the noise, 0 or more.
            padding, pad_to_multiple_of, decoder_start_token_id, decoder_only, pad_token_id: as for `HuggingFaceFeatureConverter`;
                padding "max_length" is to `sequence_length`, for a decoder-only model to their sum.
            return_tensors: "pt" for PyTorch's tensors, "np" for NumPy's arrays.

        Raises:
            ValueError: an argument has another value than these; the vocabulary lacks sentinels or modes; or the budgets do not
                fit, see `preprocessors.solve`.
        """
        self._row_format = RowFormat(
            padding=padding,
            pad_to_multiple_of=pad_to_multiple_of,
            pad_token_id=pad_token_id,
            decoder_start_token_id=decoder_start_token_id,
            decoder_only=decoder_only,
        )
        if return_tensors not in ("pt", "np"):
            raise ValueError(f"return_tensors is {return_tensors!r}, expected 'pt' or 'np'")
        if not is_integer(seed, at_least=0):
            raise ValueError(f"seed is {seed!r}, expected an integer of 0 or more")
        self._return_tensors = return_tensors
        self._seed = int(seed)
        self._denoisers = check_denoisers(denoisers)
        vocabulary, sentinels = open_for_modes(vocabulary, [denoiser.mode for denoiser in self._denoisers], sentinels, modes)
        self._shift = id_shift(vocabulary)
        features = {key: seqio.Feature(vocabulary, add_eos=True) for key in EXAMPLE}
        request = SpecialTokensRequest(
            _shifted(sentinels, self._shift),
            {name: _shifted(mode, self._shift) for name, mode in (modes or {}).items()},
            tuple(denoiser.mode for denoiser in self._denoisers),
        )
        solutions = [
            solve(sequence_length, features, DenoisingConfiguration(denoiser, request, chunk_tokens))
            for denoiser in self._denoisers
        ]
        self._special = [solution.special for solution in solutions]
        self._sequence_length = dict(sequence_length)
        self.max_tokens = min(solution.full.length for solution in solutions)
        reserved = request.ids(vocabulary)
        self._text_vocabulary = text_vocabulary(vocabulary, reserved)
        self._is_text = np.ones(vocabulary.vocab_size, bool)
        self._is_text[[0, *reserved]] = False
        self._batches = 0

    def __call__(self, examples: Sequence[Any]) -> dict[str, torch.Tensor | np.ndarray]:
        """Makes a batch.

        Args:
            examples: texts, ids [tokens], or dictionaries with one of these; they can be of different kinds.

        Returns:
            [B, length] int64 for each model input, see `hugging_face.model_inputs`, in the order of the examples.

        Raises:
            ValueError: there are no examples; or an example, which is named, is empty, too long, of another type, or has a
                special id.
            RuntimeError: this process was forked from one in which TensorFlow had run.
            ImportError: return_tensors is "pt", but PyTorch is not installed.
        """
        check_process()
        chunks = self._read(examples)
        tokens, lengths = np.concatenate(chunks), np.array([len(chunk) for chunk in chunks])
        self._check_ids(tokens, lengths)
        chosen, seeds = self._draw(tokens, lengths)
        with tf.device(_DEVICE):
            inputs, targets = self._corrupted(chunks, chosen, seeds)
            pad = _padding(tuple(self._sequence_length.items()), self._row_format)
            rows = pad(*_flat(inputs, -self._shift), *_flat(targets, -self._shift))
        batch = {name: rows[name].numpy().astype(np.int64) for name in self._row_format.names}
        self._batches += 1
        if self._return_tensors == "np":
            return batch
        from_numpy = _torch().from_numpy
        return {name: from_numpy(rows) for name, rows in batch.items()}

    def chunks(self, document: str | Sequence[int]) -> list[np.ndarray]:
        """Cuts a document into examples of `max_tokens` tokens each.

        Args:
            document: a text, or ids [tokens].

        Returns:
            Arrays [tokens] int32 that hold all of its tokens. Only the last can be shorter, and none is empty; an empty document
            has no examples.
        """
        tokens = self._tokens(document, "the document") - self._shift
        return [tokens[start : start + self.max_tokens].astype(np.int32) for start in range(0, len(tokens), self.max_tokens)]

    def state_dict(self) -> dict[str, int]:
        """{"batches": int}, the number of batches made so far."""
        return {"batches": self._batches}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Goes on where the state was taken.

        Raises:
            ValueError: the state is not one that `state_dict` returned.
        """
        if not isinstance(state, Mapping) or not is_integer(state.get("batches"), at_least=0):
            raise ValueError(f'the state is {state!r}, expected {{"batches": how many were made}}, as state_dict() returns it')
        self._batches = int(state["batches"])

    def _read(self, examples: Sequence[Any]) -> list[np.ndarray]:
        if isinstance(examples, str | Mapping) or not len(examples):
            raise ValueError(f"the examples are {examples!r:.100}, expected a list of at least one")
        chunks = []
        for number, example in enumerate(examples):
            name = _name(number)
            if isinstance(example, Mapping):
                key = next((key for key in (TOKENS, TEXT) if key in example), None)
                if key is None:
                    raise ValueError(
                        f"{name} has the fields {sorted(example)}, expected {TOKENS!r} or {TEXT!r}; rename a column, and give"
                        " transformers.TrainingArguments remove_unused_columns=False"
                    )
                example = example[key]
            tokens = self._tokens(example, name)
            if not tokens.size:
                raise ValueError(f"{name} is empty, expected at least one token; leave it out, as dataset.filter does")
            if len(tokens) > self.max_tokens:
                raise ValueError(
                    f"{name} has {len(tokens)} tokens, expected {self.max_tokens} at most: all that each denoiser can make into"
                    f" {self._sequence_length}. Nothing is cut here: cut documents before with collator.chunks(..), or raise"
                    " sequence_length"
                )
            chunks.append(tokens)
        return chunks

    def _tokens(self, example: Any, name: str) -> np.ndarray:
        """The ids of an example, [tokens] int64, shifted as SeqIO has them."""
        if isinstance(example, str):
            return np.array(self._text_vocabulary.encode(example), np.int64)
        try:
            tokens = np.asarray(example)
        except ValueError:  # lists of different lengths
            tokens = np.array(None)
        if tokens.shape != (0,) and (tokens.ndim != 1 or tokens.dtype.kind not in "iu"):
            raise ValueError(f"{name} is {example!r:.100}, expected a text, or integer ids [tokens]")
        return tokens.astype(np.int64) + self._shift

    def _check_ids(self, tokens: np.ndarray, lengths: np.ndarray) -> None:
        in_range = (tokens >= 0) & (tokens < len(self._is_text))
        valid = in_range & self._is_text[np.where(in_range, tokens, 0)]
        if valid.all():
            return
        place = int(np.argmin(valid))
        number = int(np.searchsorted(np.cumsum(lengths), place, side="right"))
        raise ValueError(
            f"{_name(number)} holds the id {tokens[place] - self._shift}, which no text may have: padding, a sentinel, a mode,"
            f" or beyond the {len(self._is_text) - self._shift} ids of the vocabulary. Another vocabulary tokenized it, or it was"
            " padded or corrupted before: give the text itself, or ids of this vocabulary without special ones"
        )

    def _draw(self, tokens: np.ndarray, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The number of each example's denoiser, [B], and a seed for each denoiser, [D, 2] int64."""
        source = hashlib.blake2b(repr((self._seed, self._batches, _worker_seed())).encode(), digest_size=16)
        source.update(lengths.astype("<i8").tobytes())
        source.update(tokens.astype("<i4").tobytes())
        # SeedSequence is the only random generator of NumPy that promises the same numbers in every version.
        words = np.random.SeedSequence(int.from_bytes(source.digest(), "little")).generate_state(
            2 * len(self._denoisers) + len(lengths), np.uint64
        )
        seeds, draws = np.split(words, [2 * len(self._denoisers)])
        ends = np.cumsum([denoiser.weight for denoiser in self._denoisers], dtype=float)
        chosen = np.searchsorted(ends[:-1], draws / 2.0**64 * ends[-1], side="right")
        return chosen, seeds.view(np.int64).reshape(-1, 2)

    def _corrupted(self, chunks: Sequence[np.ndarray], chosen: np.ndarray, seeds: np.ndarray) -> list[list[np.ndarray]]:
        """The inputs of all examples, and their targets, [tokens] int32 each.

        Args:
            chunks: of the examples, [tokens] each.
            chosen: [B] the number of each example's denoiser.
            seeds: [D, 2] a seed for each denoiser.
        """
        inputs, targets = list(chunks), list(chunks)  # each of them is replaced
        for index in np.unique(chosen):
            numbers = np.flatnonzero(chosen == index)
            corrupt = _corruption(self._denoisers[index], self._special[index], self.max_tokens)
            made = corrupt(*_flat([chunks[number] for number in numbers]), tf.constant(seeds[index]))
            for rows, (tokens, lengths) in zip((inputs, targets), made):
                for number, row in zip(numbers, np.split(tokens.numpy(), np.cumsum(lengths)[:-1])):
                    rows[number] = row
        return [inputs, targets]


# Equal collators share their graphs, each traced once; a collator without graphs can be pickled.
@functools.lru_cache(maxsize=256)
def _corruption(denoiser: Denoiser, special: SpecialTokens, max_tokens: int) -> Callable:
    """A graph that corrupts R chunks: tokens [N] int32, lengths [R] int64, seed [2] int64 to (tokens, lengths) of each feature."""

    @no_autograph
    def corrupt(tokens: tf.Tensor, lengths: tf.Tensor, seed: tf.Tensor) -> list[tuple[tf.Tensor, tf.Tensor]]:
        chunks = tf.RaggedTensor.from_row_lengths(tokens, lengths, validate=False).to_tensor()
        features = corrupt_chunks(
            chunks, tf.cast(lengths, tf.int32), seed, denoiser=denoiser, special=special, max_length=max_tokens
        )
        return [(features[key].flat_values, features[key].row_lengths()) for key in EXAMPLE]

    return _graph(corrupt, *_RAGGED, tf.TensorSpec([2], tf.int64))


@functools.lru_cache(maxsize=64)
def _padding(lengths: tuple[tuple[str, int], ...], row_format: RowFormat) -> Callable:
    """A graph that pads: (tokens, lengths) of inputs and of targets to model inputs."""

    @no_autograph
    def pad(inputs: tf.Tensor, inputs_lengths: tf.Tensor, targets: tf.Tensor, targets_lengths: tf.Tensor) -> dict[str, tf.Tensor]:
        rows = (
            tf.RaggedTensor.from_row_lengths(*feature, validate=False)
            for feature in ((inputs, inputs_lengths), (targets, targets_lengths))
        )
        return model_inputs(*rows, dict(lengths), row_format)

    return _graph(pad, *_RAGGED, *_RAGGED)


def _graph(function: Callable, *specs: tf.TensorSpec) -> Callable:
    """The function as a graph for the CPU, traced now, for all shapes."""
    with tf.device(_DEVICE):
        return tf.function(function, input_signature=specs, autograph=False).get_concrete_function()


def _name(number: int) -> str:
    return f"example {number} of the batch, counted from 0,"


def _shifted(ids: Any, shift: int) -> Any:
    """An id, or a list of ids, as SeqIO has them. A text, and None, stay as they are."""
    if ids is None or isinstance(ids, str):
        return ids
    return ids + shift if hasattr(ids, "__index__") else [id + shift for id in ids]


def _flat(rows: Sequence[np.ndarray], shift: int = 0) -> tuple[tf.Tensor, tf.Tensor]:
    """The tokens of all rows, [N] int32, with `shift` added, and the length of each row, [R] int64."""
    return tf.constant(np.concatenate(rows) + shift, tf.int32), tf.constant([len(row) for row in rows], tf.int64)


def _worker_seed() -> int | None:
    """The seed of this DataLoader worker; None in other processes. A worker has imported torch, so it is not imported here."""
    data = sys.modules.get("torch.utils.data")
    worker = data and data.get_worker_info()
    return worker.seed if worker else None


def _torch() -> Any:
    try:
        import torch
    except ImportError as error:
        raise ImportError(
            f"return_tensors is 'pt', but there is no torch ({error}); pip install 'ul2_tasks[torch]', or return_tensors='np'"
        ) from error
    return torch
