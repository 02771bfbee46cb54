"""The collator: its batches invert to the examples that went in, and are the converter's of the same inputs and targets."""

import collections
import copy
import json
import pickle

import numpy as np
import pytest

from tests import programs
from tests.models.test_hugging_face_features import assert_same, converted, pairs_of
from tests.support import KINDS, denoiser_id, mistral_model
from tests.tokenizers.test_hugging_face_vocabulary import exclamation_first
from ul2_tasks import (
    T5GEMMA2,
    SequentialDenoiser,
    SpanDenoiser,
    chunk_length,
    default_vocabulary,
    open_vocabulary,
)
from ul2_tasks.denoisers.reconstruction import invert
from ul2_tasks.pytorch.collator import UL2DataCollator
from ul2_tasks.tokenizers.special_ids import special_tokens

pytestmark = pytest.mark.torch

LENGTHS = {"inputs": 96, "targets": 80}
VOCABULARIES = {"default": "default", "bytes": "bytes", "mistral": mistral_model()}
TEXTS = ["The metaclass of a class is determined by its bases.", "naïve café, 東京", "<extra_id_0> [R] </s> <pad>", "a"]


def collator(denoisers=T5GEMMA2, vocabulary="default", lengths=LENGTHS, **settings):
    return UL2DataCollator(vocabulary, lengths, denoisers, **{"return_tensors": "np", "decoder_start_token_id": 0, **settings})


def text_ids(size, length, seed=0):
    """Ordinary ids of a vocabulary: those of text that has them all."""
    return np.random.RandomState(seed).randint(10, min(size, 250), length)


def pairs(batch):
    return [{"inputs": inputs, "targets": targets} for inputs, targets in pairs_of(batch)]


def test_one_example_written_out_is_the_converters():
    """13 tokens, mean span 2, rate 0.3: 4 of noise in 2 spans. In the vocabulary 0 is padding, 1 EOS, 3 and 4 are sentinels."""
    toy = SpanDenoiser(name="toy", mean_span_length=2, noise_density=0.3)
    lengths = {"inputs": 12, "targets": 7}
    batch = collator([toy], lengths=lengths, pad_to_multiple_of=4)([range(300, 313)])
    assert {key: rows.tolist() for key, rows in batch.items()} == {
        "input_ids": [[300, 3, 304, 305, 306, 307, 308, 309, 310, 311, 4, 1]],
        "attention_mask": [[1] * 12],
        "decoder_input_ids": [[0, 3, 301, 302, 303, 4, 312, 1]],
        "decoder_attention_mask": [[1, 1, 1, 1, 1, 1, 1, 0]],
        "labels": [[3, 301, 302, 303, 4, 312, 1, -100]],
    }
    example = ([300, 3, 304, 305, 306, 307, 308, 309, 310, 311, 4, 1], [3, 301, 302, 303, 4, 312, 1])
    assert pairs_of(batch) == [example]
    (same,) = converted([example], lengths, batch_size=1, padding="longest", pad_to_multiple_of=4)
    assert_same(batch, same)


@pytest.mark.parametrize("vocabulary", [*VOCABULARIES, "exclamation"])
def test_examples_that_name_their_denoiser_and_spans_are_those_that_it_makes(vocabulary, tmp_path):
    """The spans that a denoiser drew, given to it, are the same example; ids and texts, beside examples that name nothing."""
    if vocabulary == "exclamation":  # whose id 0 is a token, so that SeqIO's ids are others
        exclamation_first().save(str(tmp_path / "tokenizer.json"))
        (tmp_path / "tokenizer_config.json").write_text('{"eos_token": "<|endoftext|>"}')
    opened = open_vocabulary(VOCABULARIES.get(vocabulary, str(tmp_path)))
    denoisers = [*T5GEMMA2, SequentialDenoiser(name="prefix", noise_density=0.5, mode="[S]", sentinel=False)]
    collate = collator(denoisers, opened, task_id=True, original_ids=True)
    texts = TEXTS[:2]
    for denoiser in denoisers:
        told = collate([*({"text": text, "denoiser": denoiser.name} for text in texts), texts[0]])
        task = sorted(each.name for each in denoisers).index(denoiser.name)
        assert {*told["task_id"][:2].ravel().tolist()} - {-1} == {task}
        ids = [row[row != -100] for row in told["original_ids"]]
        special = special_tokens(opened, denoiser.mode)
        spans = []
        for example, own in zip(pairs(told), ids[:2]):
            whole = invert({key: np.array(of) for key, of in example.items()}, denoiser, special)
            assert whole.chunk.tolist() == own.tolist()
            edges = np.flatnonzero(np.diff(np.concatenate([[0], whole.is_noise, [0]])))
            spans.append(np.stack([edges[::2], edges[1::2] - edges[::2]], axis=1))
        given = [{"input_ids": own, "denoiser": denoiser.name, "spans": each} for own, each in zip(ids, spans)]
        assert_same(collate([*given, texts[0]]), told)


@pytest.mark.parametrize(
    ("denoiser", "vocabulary"),
    [
        (denoiser, name)
        for name in VOCABULARIES
        for denoiser in (dict.fromkeys([*T5GEMMA2, *KINDS]) if name == "default" else KINDS[:3])
    ],
    ids=lambda value: value if isinstance(value, str) else denoiser_id(value),
)
def test_every_example_comes_out_of_its_noise_whole_and_with_exact_counts(denoiser, vocabulary):
    opened = open_vocabulary(VOCABULARIES[vocabulary])
    special = special_tokens(opened, denoiser.mode)
    collate = collator([denoiser], opened)
    lengths = [1, 2, 3, collate.max_tokens, *range(5, collate.max_tokens, 11)]
    candidates = np.array([id for id in opened.encode(" ".join(TEXTS[:2])) if id != opened.unk_id])
    documents = [np.random.RandomState(length).choice(candidates, length) for length in lengths]
    assert len(documents) > 8
    for document, example in zip(documents, pairs(collate(documents)), strict=True):
        reconstructed = invert(example, denoiser, special)
        assert reconstructed.chunk.tolist() == document.tolist()
        _, spans = denoiser.noise_counts(len(document))
        fewest, most = denoiser.noise_range(len(document))
        assert fewest <= reconstructed.spans.sum() <= most
        assert len(reconstructed.spans) == spans


def test_denoisers_are_drawn_by_weight():
    """Of 40 tokens each denoiser makes another pair of mode and number of targets."""
    special = {d.name: special_tokens(default_vocabulary(), d.mode) for d in T5GEMMA2}
    kinds = {(special[d.name].mode[0], sum(d.noise_counts(40)) + 1): d for d in T5GEMMA2}
    assert len(kinds) == len(T5GEMMA2)
    collate = collator(seed=5)
    random = np.random.RandomState(0)
    drawn = collections.Counter()
    for _ in range(4):
        batch = collate(random.randint(300, 900, [1000, 40]))
        drawn.update(kinds[inputs[0], len(targets)].name for inputs, targets in pairs_of(batch))
    for denoiser in T5GEMMA2:
        rate = denoiser.weight / 8
        assert abs(drawn[denoiser.name] - 4000 * rate) < 4 * (4000 * rate * (1 - rate)) ** 0.5


EXAMPLES = [text_ids(4096, length, seed) + 300 for seed, length in enumerate([50, 1, 90, 33, 77, 12])]


@pytest.mark.parametrize("changed", [{"padding": "max_length"}, {"pad_to_multiple_of": 64, "decoder_only": True}], ids=str)
def test_rows_are_the_converters(changed):
    batch = collator(**changed)(EXAMPLES)
    assert all(rows.dtype == np.int64 for rows in batch.values())
    settings = {"padding": "longest", "decoder_start_token_id": 0, **changed}
    (same,) = converted(pairs_of(collator()(EXAMPLES)), LENGTHS, batch_size=len(EXAMPLES), **settings)
    assert_same(batch, same)


def test_noise_is_a_function_of_seed_epoch_and_content_alone():
    """Whatever came before, in any batch, in a copy."""
    wanted = pairs_of(collator(seed=3)(EXAMPLES))
    used = collator(seed=3)
    used.set_epoch(0)
    used([EXAMPLES[4]])
    for collate in (used, pickle.loads(pickle.dumps(used)), copy.deepcopy(used)):
        assert pairs_of(collate(EXAMPLES[::-1]))[::-1] == wanted
        assert [pairs_of(collate([example]))[0] for example in EXAMPLES[:2]] == wanted[:2]
    assert pairs_of(used([EXAMPLES[0]] * 2)) == wanted[:1] * 2, "equal examples have equal noise in an epoch"
    epochs = []
    for epoch in (0, 1, np.int64(2)):
        used.set_epoch(epoch)
        epochs.append(pairs_of(used(EXAMPLES)))
    with pytest.raises(ValueError, match="epoch"):
        used.set_epoch(1.5)
    epochs.append(pairs_of(collator(seed=4)(EXAMPLES)))
    assert epochs[0] == wanted
    assert all(a != b for number, a in enumerate(epochs) for b in epochs[:number])


def test_texts_ids_and_dictionaries_are_the_same_examples():
    torch = pytest.importorskip("torch", reason="its tensors are examples, too")
    text = TEXTS[0]
    ids = default_vocabulary().encode(text)
    forms = [text, ids, np.array(ids, np.uint16), torch.tensor(ids), {"text": text, "url": "u"}, {"input_ids": ids, "text": "else"}]
    collate = collator()
    collate.set_epoch(0)
    wanted = collate([text] * 3)
    for form in forms:
        assert_same(collate([form] * 3), wanted)
    assert_same(collate(forms[:3]), wanted)


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
def test_no_text_becomes_a_special_token(vocabulary):
    opened = open_vocabulary(VOCABULARIES[vocabulary])
    spelled = "".join(opened.id_to_piece(id) if hasattr(opened, "id_to_piece") else "" for id in range(259, 262)) + TEXTS[2]
    special = special_tokens(opened, "[R]")
    example = invert(pairs(collator(T5GEMMA2[:1], opened)([spelled]))[0], T5GEMMA2[0], special)
    assert not set(example.chunk.tolist()) & special.reserved
    assert opened.decode(example.chunk.tolist()).replace(" ", "") == spelled.replace(" ", "")


def test_documents_are_cut_into_chunks_that_fit():
    collate = collator()
    wanted = [chunk_length(denoiser, LENGTHS).length for denoiser in T5GEMMA2]
    assert collate.max_tokens == min(wanted) < max(wanted)
    document = text_ids(4096, 5 * collate.max_tokens + 3)
    chunks = collate.chunks(document.tolist())
    assert [len(chunk) for chunk in chunks] == [collate.max_tokens] * 5 + [3]
    np.testing.assert_array_equal(np.concatenate(chunks), document)
    assert collate.chunks("") == collate.chunks([]) == []
    text = " ".join(TEXTS[:2] * 20)
    np.testing.assert_array_equal(np.concatenate(collate.chunks(text)), default_vocabulary().encode(text))
    assert collator(chunk_tokens=20).max_tokens == 20


SPECIAL = special_tokens(default_vocabulary(), "[X]")  # [X] is also refused where another denoiser is drawn
IDS = np.arange(300, 350)


@pytest.mark.parametrize(
    ("example", "named"),
    [
        *((example, "") for example in ([], {"text": ""}, [300] * 200, [300, 5000], [300, -100], [0.5], b"bytes", "a\udc80")),
        *(([300, id], "") for id in (SPECIAL.sentinels[3], SPECIAL.mode[0])),
        ({"content": "a"}, ""),
        ({"input_ids": IDS, "denoiser": "r9"}, ".*'denoiser'"),
        ({"input_ids": IDS, "spans": [(0, 1)]}, ".*'denoiser'"),
        ({"input_ids": IDS, "denoiser": "r1", "spans": [(3, 2), (4, 1)]}, r".*spans\[1\]"),
        ({"input_ids": IDS, "denoiser": "r1", "spans": [(48, 3)]}, r".*spans\[0\]"),
        ({"input_ids": IDS, "denoiser": "r1", "spans": [(place, 1) for place in range(0, 50, 2)]}, ".*'spans' .* targets"),
    ],
)
def test_an_example_that_cannot_be_is_an_error_with_its_number(example, named):
    with pytest.raises(ValueError, match=f"example 2 of the batch{named}"):
        collator(lengths={"inputs": 96, "targets": 40})([[300] * 5, "text", example, [300]])


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"seed": -1}, "seed"),
        ({"denoisers": []}, "denoisers"),
        ({"sentinels": [4, 5]}, "sentinels"),
        ({"lengths": {"inputs": 2, "targets": 2}}, "sequence_length"),
        ({"vocabulary": "bytes", "embedding_rows": 300}, "embedding_rows"),  # of 512 ids: modes and 38 of the sentinels
        ({"vocabulary": "bytes", "embedding_rows": 640, "pad_token_id": 640}, "pad_token_id"),
    ],
    ids=str,
)
def test_arguments_out_of_range_are_refused(arguments, named):
    with pytest.raises(ValueError, match=named):
        collator(**arguments)


IN_WORKERS = """
import json
import torch
from ul2_tasks import T5GEMMA2
from ul2_tasks.pytorch.collator import UL2DataCollator

collator = UL2DataCollator("default", {"inputs": 96, "targets": 80}, T5GEMMA2[:1], seed=3)
examples = [list(range(300 + number, 360 + number)) for number in range(24)]

def loader(num_workers=2, **settings):
    return torch.utils.data.DataLoader(examples, batch_size=4, collate_fn=collator, num_workers=num_workers, **settings)

def batches(loader):
    return [batch["labels"].tolist() for batch in loader]

def epochs(loader):
    return [collator.set_epoch(epoch) or batches(loader) for epoch in (0, 1, 0)]

read = {"kept": epochs(loader(persistent_workers=True))}
read["alone"] = epochs(loader(0))
import tensorflow as tf
tf.constant(1) + 1  # a process that is forked from now on would hang in TensorFlow
read["forked"] = epochs(loader())
read["spawned"] = epochs(loader(1, multiprocessing_context="spawn", persistent_workers=True))
print(json.dumps(read))
"""


def test_workers_have_the_noise_of_the_epoch_forked_spawned_or_kept():
    """One that hangs is killed."""
    read = json.loads(programs.run("-c", IN_WORKERS, timeout=500, check=True).stdout)
    assert read["kept"] == read["forked"] == read["spawned"] == read["alone"]
    assert len({str(batch) for batch in [*read["kept"][0], *read["kept"][1]]}) == 12, "no batch is another's"


@pytest.mark.train
def test_a_trainer_that_was_stopped_has_the_batches_of_one_that_was_not(tmp_path):
    """From the middle of the second epoch on into the third; the other one evaluates in between."""
    pytest.importorskip("accelerate", reason="transformers.Trainer needs it")
    import transformers

    from tests import tiny_models

    data = [{"input_ids": text_ids(4096, 40, number) + 300} for number in range(24)]

    def batches(name, checkpoint=None, **settings):
        arguments = transformers.TrainingArguments(
            str(tmp_path / name),
            **{"max_steps": 15, "per_device_train_batch_size": 4, "save_steps": 8, "report_to": [], "use_cpu": True, **settings},
        )
        collate, seen = collator(return_tensors="pt"), []
        trainer = transformers.Trainer(
            tiny_models.t5(4608, decoder_start_token_id=0),
            arguments,
            collate,
            train_dataset=data,
            eval_dataset=data[:8],
            callbacks=[collate.trainer_callback()],
        )

        def note(model, _, batch):
            if model.training:
                seen.append([batch["input_ids"].tolist(), batch["labels"].tolist()])

        trainer.model.register_forward_pre_hook(note, with_kwargs=True)
        trainer.train(resume_from_checkpoint=checkpoint)
        return seen

    whole = batches("whole", eval_strategy="steps", eval_steps=3)
    assert len({str(batch) for batch in whole}) == 15
    assert batches("resumed", str(tmp_path / "whole" / "checkpoint-8")) == whole[8:]


def test_ids_that_a_model_has_no_row_for_are_refused_before_training():
    r1 = T5GEMMA2[:1]
    assert_same(collator(r1, "bytes", embedding_rows=np.int64(640))(TEXTS), collator(r1, "bytes")(TEXTS))
    few = collator(T5GEMMA2[4:], embedding_rows=2000)  # S has the sentinel and the mode of lowest ids alone
    few([[1999]])
    with pytest.raises(ValueError, match=r"example 1 .*embedding_rows"):
        few([[1999], [2000]])
