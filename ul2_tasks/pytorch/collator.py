"""`UL2DataCollator`: lists of texts or tokens to inputs of Hugging Face's models, corrupted as in SeqIO's pipelines."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ul2_tasks.denoisers.denoisers import T5GEMMA2, Denoiser, check_denoisers
from ul2_tasks.denoisers.objective import corrupt_spans
from ul2_tasks.denoisers.solution import DenoisingConfiguration, check_rows, solve
from ul2_tasks.denoisers.write import recipe
from ul2_tasks.example_features import DENOISER, EXAMPLE, IGNORED, TASK_ID
from ul2_tasks.extras import needs
from ul2_tasks.models.arrays import side_by_side
from ul2_tasks.models.of_model import settings_of
from ul2_tasks.models.transformers import RowFormat
from ul2_tasks.order.ranges import Ranges
from ul2_tasks.pytorch.shared import SharedIntegers, for_copy
from ul2_tasks.random_access.tasks import TaskInfo
from ul2_tasks.random_access.text import MadeText, sizes_of
from ul2_tasks.scalars import is_integer
from ul2_tasks.tokenizers.by_name import open_for_modes
from ul2_tasks.tokenizers.special_ids import (
    Mode,
    Sentinels,
    SpecialTokensRequest,
    TextIds,
    pads_with_0,
)

if TYPE_CHECKING:
    import torch
    import transformers

    from ul2_tasks.models.of_model import Model

TOKENS, TEXT, SPANS = "input_ids", "text", "spans"
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_ADD_EOS = (True, True)  # inputs and targets end with an EOS


class UL2DataCollator:
    """A collate function for a PyTorch DataLoader that masks examples and makes a batch for a model of `transformers`.

        collator = UL2DataCollator(tokenizer, {"inputs": 512, "targets": 512}, model=model)
        for batch in torch.utils.data.DataLoader(texts, batch_size=32, collate_fn=collator):
            loss = model(**batch).loss

    An example is a text; or its ids, as a list or an array; or a dictionary with `input_ids` or else `text`. It is one chunk: one
    denoiser, sampled by weight, corrupts all of its tokens. A dictionary may also have `denoiser`, the name of the one that does,
    and then `spans`, which it masks instead of its own, see `corrupt_spans`. Examples are neither joined nor split, and one of more
    than `max_tokens` tokens raises a ValueError; `chunks` splits a document. Ids are the tokenizer's own, in examples and in
    batches.

    The denoiser and the masks of an example depend on `seed`, the epoch and the example's tokens alone. So they are the same in any
    batch, worker or process and after a resume. Call `set_epoch(n)` before each pass over the data, or pass
    `callbacks=[collator.trainer_callback()]` to `transformers.Trainer`.

    Workers may be forked or spawned. The collator can be pickled, and runs no TensorFlow.

    Attributes:
        max_tokens: the length of the longest example, in tokens, that every denoiser accepts.
        tasks: the denoisers, in the order of their names, which `task_id` counts from 0.
    """

    def __init__(
        self,
        vocabulary: Any,
        sequence_length: Mapping[str, int],
        denoisers: Iterable[Denoiser] | Denoiser | str = T5GEMMA2,
        *,
        sentinels: int | Sentinels | None = None,
        modes: Mapping[str, Mode] | None = None,
        chunk_tokens: int | None = None,
        seed: int = 0,
        padding: str = "longest",
        pad_to_multiple_of: int | None = 8,
        decoder_start_token_id: int | None = None,
        decoder_only: bool | None = None,
        pad_token_id: int | None = None,
        return_tensors: str = "pt",
        embedding_rows: int | None = None,
        task_id: bool = False,
        original_ids: bool = False,
        model: Model | None = None,
    ):
        """Opens the vocabulary.

        Args:
            vocabulary, denoisers, sentinels, modes: as for `register`.
            sequence_length: {"inputs": int, "targets": int}, the lengths in tokens.
            chunk_tokens: an upper bound for `max_tokens`, for lengths that need more sentinels than the vocabulary has.
            seed: the seed of the masks, 0 or more.
            padding, pad_to_multiple_of, decoder_start_token_id, decoder_only, pad_token_id, embedding_rows, model: as for
                `HuggingFaceFeatureConverter`; padding "max_length" is to `sequence_length`, for a decoder-only model to their sum.
                For a model that names no padding, such as Qwen3, the id is the tokenizer's.
            return_tensors: "pt" for PyTorch's tensors, "np" for NumPy's arrays.
            task_id: whether there is `task_id`, too, the denoiser of each label as an index into `tasks`, -1 where it is -100.
            original_ids: whether there is `original_ids`, too, the ids of each example before it was masked, -100 after its end.
                No model takes them: `batch.pop("original_ids")`.

        Raises:
            ValueError: an argument has another value; the vocabulary lacks sentinels or modes; the lengths are too short; or a
                sentinel or a mode has no row in the model's embedding.
        """
        if return_tensors not in ("pt", "np"):
            raise ValueError(f"return_tensors must be 'pt' or 'np', got {return_tensors!r}.")
        if not is_integer(seed, at_least=0):
            raise ValueError(f"seed must be an integer of at least 0, got {seed!r}.")
        self._return_tensors, self._original_ids = return_tensors, original_ids
        self._seed = int(seed)
        self._denoisers = check_denoisers(denoisers)
        names = sorted(denoiser.name for denoiser in self._denoisers)
        self.tasks = tuple(TaskInfo(name, name, "") for name in names)
        self._task_ids = np.array([names.index(denoiser.name) for denoiser in self._denoisers])
        vocabulary, sentinels = open_for_modes(vocabulary, [denoiser.mode for denoiser in self._denoisers], sentinels, modes)
        of_model = settings_of(
            model,
            pad_token_id=pad_token_id,
            decoder_start_token_id=decoder_start_token_id,
            decoder_only=decoder_only,
            embedding_rows=embedding_rows,
            vocabulary=vocabulary,
        )
        self._row_format = RowFormat(padding=padding, pad_to_multiple_of=pad_to_multiple_of, **of_model, task_id=task_id)
        self._row_format.check_start(pads_with_0(vocabulary))
        own = tuple(denoiser.own_tokens for denoiser in self._denoisers if denoiser.own_tokens)
        request = SpecialTokensRequest(sentinels, modes, tuple(denoiser.mode for denoiser in self._denoisers), own)
        solutions = [
            solve(sequence_length, vocabulary, DenoisingConfiguration(denoiser, request, chunk_tokens))
            for denoiser in self._denoisers
        ]
        self._special = [solution.special for solution in solutions]
        self._sequence_length = dict(sequence_length)
        self.max_tokens = min(solution.full.length for solution in solutions)
        reserved = frozenset().union(*(special.reserved for special in self._special))
        self._text_vocabulary = vocabulary.never_encoding(request.ids(vocabulary))
        self._text_ids = TextIds(vocabulary.vocab_size, reserved, self._row_format.embedding_rows)
        if (embedding_rows := self._row_format.embedding_rows) is not None:
            check_rows(solutions, embedding_rows, vocabulary)
        self._epoch = SharedIntegers([0])

    def __getstate__(self) -> dict[str, Any]:
        """A worker that is started shares the epoch; any other copy has its own."""
        return {**self.__dict__, "_epoch": for_copy(self._epoch)}

    def __call__(self, examples: Sequence[Any]) -> dict[str, torch.Tensor | np.ndarray]:
        """Makes a batch.

        Args:
            examples: texts, ids [tokens], or dictionaries with one of these; they can be of different kinds.

        Returns:
            [B, length] int64 for each model input, see `converters.transformers`, in the order of the examples.

        Raises:
            ValueError: there are no examples; or an example, which is named, is empty, too long, of another type, or has a
                special id.
            ImportError: return_tensors is "pt", but PyTorch is not installed.
        """
        chunks = self._read(examples)
        tokens, lengths = np.concatenate(chunks), np.array([len(chunk) for chunk in chunks])
        self._check_ids(tokens, lengths)
        chosen, keys = self._draw(chunks)
        given = [self._given(example, number) for number, example in enumerate(examples)]
        chosen = np.array([index if told is None else told for index, (told, _) in zip(chosen, given)])
        rows, sizes = self._corrupted(tokens.astype(np.int32), lengths, chosen, keys)
        for number, (_, spans) in enumerate(given):
            if spans is not None:
                self._mask(number, chunks[number], chosen[number], spans, rows, sizes)
        if self._row_format.task_id:
            rows[TASK_ID] = np.repeat(self._task_ids[chosen][:, np.newaxis], rows["targets"].shape[1], axis=1)
        made = self._row_format.arrays(rows, sizes, self._sequence_length)
        batch: dict[str, Any] = {name: values.astype(np.int64) for name, values in made.items()}
        if self._original_ids:
            batch["original_ids"], _ = side_by_side(chunks, np.int64, IGNORED)
        if self._return_tensors == "np":
            return batch
        from_numpy = _torch().from_numpy
        return {name: from_numpy(rows) for name, rows in batch.items()}

    def chunks(self, document: str | Sequence[int]) -> list[np.ndarray]:
        """Splits a document into examples of `max_tokens` tokens each.

        Args:
            document: a text, or ids [tokens].

        Returns:
            Arrays [tokens] int32 that hold all of its tokens. Only the last can be shorter, and none is empty. An empty document
            gives an empty list.
        """
        tokens = self._tokens(document, "the document")
        return [tokens[start : start + self.max_tokens].astype(np.int32) for start in range(0, len(tokens), self.max_tokens)]

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch, on which the masks depend, also in workers that run. Call it before each pass over the data.

        Raises:
            ValueError: the epoch is not an integer of at least 0.
        """
        if not is_integer(epoch, at_least=0) or epoch >= 2**63:
            raise ValueError(f"epoch must be an integer of at least 0, the index of the pass over the data, got {epoch!r}.")
        self._epoch[0] = int(epoch)

    def trainer_callback(self) -> transformers.TrainerCallback:
        """Returns a callback for `transformers.Trainer` that sets each epoch when it begins, also after a resume."""
        import transformers

        set_epoch = self.set_epoch

        class SetEpoch(transformers.TrainerCallback):
            epoch = 0  # counted from where training begins: with data of no length, state.epoch is a share of max_steps

            def on_train_begin(self, args: Any, state: Any, control: Any, **others: Any) -> None:
                self.epoch = int(state.epoch or 0)
                set_epoch(self.epoch)

            def on_epoch_begin(self, args: Any, state: Any, control: Any, **others: Any) -> None:
                set_epoch(self.epoch)
                self.epoch += 1

        return SetEpoch()

    def _read(self, examples: Sequence[Any]) -> list[np.ndarray]:
        if isinstance(examples, str | Mapping) or not len(examples):
            raise ValueError(f"examples must be a list of at least one example, got {examples!r:.100}.")
        chunks = []
        for number, example in enumerate(examples):
            name = _name(number)
            if isinstance(example, Mapping):
                key = next((key for key in (TOKENS, TEXT) if key in example), None)
                if key is None:
                    raise ValueError(
                        f"{name} must have the field {TOKENS!r} or {TEXT!r}, got {sorted(example)}. Rename a column, and pass"
                        " remove_unused_columns=False to transformers.TrainingArguments."
                    )
                example, name = example[key], f"{name} its {key!r},"
            tokens = self._tokens(example, name)
            if not tokens.size:
                raise ValueError(f"{name} must have at least one token, but is empty. Leave it out, as dataset.filter does.")
            if len(tokens) > self.max_tokens:
                raise ValueError(
                    f"{name} must have at most {self.max_tokens} tokens, all that each denoiser can make into"
                    f" {self._sequence_length}, got {len(tokens)}. Split documents before with collator.chunks(..), or raise"
                    " sequence_length. See docs/help/troubleshooting.md#example-is-longer-than-the-collator-accepts."
                )
            chunks.append(tokens)
        return chunks

    def _given(self, example: Any, number: int) -> tuple[int | None, Any]:
        """The number of the denoiser that an example names, and its spans; None where it does not say."""
        names = [denoiser.name for denoiser in self._denoisers]
        told, spans = (example.get(key) if isinstance(example, Mapping) else None for key in (DENOISER, SPANS))
        if told is None and spans is None:
            return None, None
        if told not in names:
            raise ValueError(f"{_name(number)} its {DENOISER!r} must be one of {names}, got {told!r}.")
        if spans is not None and self._denoisers[names.index(told)].own_tokens:
            raise ValueError(
                f"{_name(number)} its {SPANS!r} must be left out for {told!r}, which has its own tokens, got {spans!r:.100}."
            )
        return names.index(told), spans

    def _mask(
        self, number: int, chunk: np.ndarray, index: int, spans: Any, rows: dict[str, np.ndarray], sizes: dict[str, np.ndarray]
    ) -> None:
        """Writes inputs and targets of an example whose spans are given into its row, which may be too short for them."""
        denoiser, special = self._denoisers[index], self._special[index]
        ids = {"sentinels": special.sentinels if denoiser.sentinel else (), "mode": special.mode, "eos": special.ending}
        try:
            made = corrupt_spans(chunk, spans, **ids)
        except ValueError as error:
            raise ValueError(f"{_name(number)} its {SPANS!r}: {error}") from error
        if not denoiser.targets_end_in_eos:
            made["targets"] = made["targets"][: len(made["targets"]) - len(special.ending)]
        for key, values in made.items():
            if len(values) > self._sequence_length[key]:
                raise ValueError(
                    f"{_name(number)} its {SPANS!r} must make at most {self._sequence_length[key]} {key}, got {len(values)}."
                )
            if (more := len(values) - rows[key].shape[1]) > 0:
                rows[key] = np.pad(rows[key], ((0, 0), (0, more)))
            rows[key][number, : len(values)], sizes[key][number] = values, len(values)

    def _tokens(self, example: Any, name: str) -> np.ndarray:
        """The ids of an example, [tokens] int64."""
        if isinstance(example, str):
            if lone := _LONE_SURROGATE.search(example):
                raise ValueError(
                    f"{name} must be Unicode text, got the lone surrogate U+{ord(lone[0]):04X}, half of a character, at character"
                    f" {lone.start()}. Repair it with text.encode('utf-16', 'surrogatepass').decode('utf-16', 'replace')."
                )
            return np.array(self._text_vocabulary.encode(example), np.int64)
        try:
            tokens = np.asarray(example)
        except ValueError:  # lists of different lengths
            tokens = np.array(None)
        if tokens.shape != (0,) and (tokens.ndim != 1 or tokens.dtype.kind not in "iu"):
            hint = " Decode bytes with example.decode()." if isinstance(example, bytes) else ""
            raise ValueError(f"{name} must be a text, or integer ids [tokens], got {example!r:.100}.{hint}")
        return tokens.astype(np.int64)

    def _check_ids(self, tokens: np.ndarray, lengths: np.ndarray) -> None:
        if not (are_text := self._text_ids.are_in(tokens)).all():
            remedy = "Pass the text itself, or ids of this vocabulary that are not padded or corrupted."
            number = int(np.searchsorted(np.cumsum(lengths), np.argmin(are_text), side="right"))
            self._text_ids.check(np.split(tokens, np.cumsum(lengths))[number], _name(number), remedy)

    def _draw(self, chunks: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """The number of each example's denoiser, [B], and the key of its noise, [B] uint64, of seed, epoch and tokens."""
        beginning = hashlib.blake2b(repr((self._seed, self._epoch[0])).encode(), digest_size=16)
        digests = []
        for chunk in chunks:
            digest = beginning.copy()
            digest.update(chunk.astype("<i4").tobytes())
            digests.append(digest.digest())
        draws, keys = np.frombuffer(b"".join(digests), "<u8").reshape(-1, 2).T.astype(np.uint64)
        ends = np.cumsum([denoiser.weight for denoiser in self._denoisers], dtype=float)
        return np.searchsorted(ends[:-1], draws / 2.0**64 * ends[-1], side="right"), keys

    def _corrupted(
        self, tokens: np.ndarray, lengths: np.ndarray, chosen: np.ndarray, keys: np.ndarray
    ) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """Inputs and targets of all examples: rows, [B, width] int32, and how long each is, [B] int64.

        `tokens`, [tokens] int32, are those of all chunks, one after the other, and `lengths`, [B], how many each has. `chosen`,
        [B], is the number of each example's denoiser. `keys`, [B] uint64, are those of each example's noise, see `write`.
        """
        stops = np.cumsum(lengths)
        ranges = Ranges(chosen, lengths, np.arange(len(lengths)), stops - lengths, stops)
        recipes = [recipe(*of, self.max_tokens, _ADD_EOS) for of in zip(self._denoisers, self._special)]
        sizes = sizes_of(recipes, ranges, keys, tokens)
        rows = {key: np.zeros([len(lengths), width], np.int32) for key, width in zip(EXAMPLE, sizes.max(axis=0).tolist())}
        MadeText(tuple(recipes), ranges, keys, tokens, sizes).write(np.arange(len(lengths)), np.zeros_like(sizes), rows)
        return rows, dict(zip(EXAMPLE, sizes.T))


def _name(number: int) -> str:
    return f"example {number} of the batch, counted from 0,"


def _torch() -> Any:
    with needs("return_tensors='pt'", "torch"):
        import torch
    return torch
