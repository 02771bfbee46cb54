"""What a trained model is asked: each denoiser's held-out loss, to continue a text, and to fill a gap in one."""

from __future__ import annotations

import dataclasses

import numpy as np
import seqio
import torch
import transformers
from objectives import HELD_OUT, Objective
from training import Size, collator, on, precision

from ul2_tasks.denoising.denoisers import CausalDenoiser, Denoiser
from ul2_tasks.vocabulary.special_ids import SpecialTokens, special_tokens

AT_A_TIME = 64
SEED = 0  # of the held-out noise, which is the same for all models


@dataclasses.dataclass(frozen=True)
class Question:
    """Texts with a gap, in a denoiser's form.

    Attributes:
        inputs: [B, n] ids for the encoder.
        begun: [B, m] what the decoder reads before the answer.
        answer: [B, k] the ids that are asked for.
    """

    inputs: np.ndarray
    begun: np.ndarray
    answer: np.ndarray


def evaluate(
    model: transformers.T5ForConditionalGeneration, objective: Objective, size: Size, text: np.ndarray, vocabulary: seqio.Vocabulary
) -> dict[str, float]:
    """The results by name. All of them are of the same held-out chunks, `text`."""
    found = {f"loss_{denoiser.name}": held_out_loss(model, denoiser, size.chunk, text, vocabulary) for denoiser in HELD_OUT}
    end = size.chunk * 3 // 4
    gaps = {
        "continuation": (objective.continuing, text[:, : end + size.chunk // 8], end),
        "infilling": (objective.infilling, text, size.chunk // 2),
    }
    for name, (denoiser, whole, start) in gaps.items():
        length = size.chunk // (8 if name == "continuation" else 16)
        asked = question(denoiser, special_tokens(vocabulary, denoiser.mode), whole, start, start + length)
        found |= {f"{name}_{key}": value for key, value in answered(model, asked).items()}
    return found


@torch.inference_mode()
def held_out_loss(
    model: transformers.T5ForConditionalGeneration, denoiser: Denoiser, chunk: int, text: np.ndarray, vocabulary: seqio.Vocabulary
) -> float:
    """The mean cross entropy, in nats, of the text among the targets: of neither sentinels nor EOS, which only some models know."""
    special = special_tokens(vocabulary, denoiser.mode)
    is_text = torch.ones(vocabulary.vocab_size, dtype=torch.bool, device=model.device)
    is_text[[special.eos, *special.reserved]] = False
    corrupt = collator(denoiser, vocabulary, chunk, SEED)
    loss = count = 0.0
    for start in range(0, len(text), AT_A_TIME):
        batch = on(model.device, corrupt(list(text[start : start + AT_A_TIME])))
        labels = batch.pop("labels")
        asked = (labels >= 0) & is_text[labels.clamp(min=0)]
        with precision(model.device):
            logits = model(**batch).logits
        loss += torch.nn.functional.cross_entropy(logits[asked].float(), labels[asked], reduction="sum").item()
        count += int(asked.sum())
    return loss / count


def question(denoiser: Denoiser, special: SpecialTokens, text: np.ndarray, start: int, stop: int) -> Question:
    """Asks for the tokens start .. stop - 1 of each text. A causal model reads what is before them, and not what is after."""

    def all_of(ids: tuple[int, ...] | list[int]) -> np.ndarray:
        return np.tile(np.array(ids, np.int64), (len(text), 1))

    before, after = text[:, :start], text[:, stop:]
    sentinel = all_of(special.sentinels[:1] if denoiser.sentinel else [])
    if isinstance(denoiser, CausalDenoiser):
        kept, begun = [], [before]
    else:
        kept, begun = [before, sentinel, after], [sentinel]
    inputs = np.concatenate([all_of(special.mode), *kept, all_of(special.ending)], axis=1)
    return Question(inputs, np.concatenate([all_of([0]), *begun], axis=1), text[:, start:stop])


@torch.inference_mode()
def answered(model: transformers.T5ForConditionalGeneration, asked: Question) -> dict[str, float]:
    """`loss`, in nats a token, of the right answer; `accuracy` of the tokens of the greedy one; how many are all `right`."""
    losses, hits = [], []
    for start in range(0, len(asked.answer), AT_A_TIME):
        rows = slice(start, start + AT_A_TIME)
        inputs, begun, answer = (
            torch.as_tensor(ids[rows], device=model.device, dtype=torch.long) for ids in (asked.inputs, asked.begun, asked.answer)
        )
        with precision(model.device):
            read = model.encoder(inputs)
            logits = model(encoder_outputs=read, decoder_input_ids=torch.cat([begun, answer[:, :-1]], 1)).logits
            of_answer = logits[:, begun.shape[1] - 1 :].transpose(1, 2).float()
            losses.append(torch.nn.functional.cross_entropy(of_answer, answer, reduction="none").cpu().numpy())
            written = begun
            for _ in range(answer.shape[1]):
                best = model(encoder_outputs=read, decoder_input_ids=written).logits[:, -1:].argmax(-1)
                written = torch.cat([written, best], 1)
        hits.append((written[:, begun.shape[1] :] == answer).cpu().numpy())
    correct = np.concatenate(hits)
    return {
        "loss": float(np.concatenate(losses).mean()),
        "accuracy": float(correct.mean()),
        "right": float(correct.all(axis=1).mean()),
    }
