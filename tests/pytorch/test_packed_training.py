"""Packed rows in models of Transformers: a row gives what each of its examples gives alone."""

import pickle
import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the extra torch is not installed")
transformers = pytest.importorskip("transformers", reason="the extra torch is not installed")

import ul2_tasks  # noqa: E402
from ul2_tasks import (  # noqa: E402
    HuggingFaceFeatureConverter,
    TaskLossTrainer,
    UL2IterableDataset,
    accept_packed_sequences,
    packed_attention_masks,
)
from ul2_tasks.random_access.tasks import TaskInfo  # noqa: E402

pytestmark = [pytest.mark.train, pytest.mark.usefixtures("seeded_torch")]

LENGTHS = {"inputs": 64, "targets": 48}
CHUNKS = {"r1": 24, "r2": 20, "x1": 24, "x2": 16, "s": 20}
ROWS = ul2_tasks.embedding_rows(ul2_tasks.default_vocabulary())
GEMMA = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 4, "num_attention_heads": 4, "head_dim": 8}
GEMMA |= {"vocab_size": ROWS, "num_key_value_heads": 2, "max_position_embeddings": 128, "sliding_window": 5, "pad_token_id": 0}
GEMMA |= {"layer_types": ["sliding_attention", "full_attention"] * 2}


def of_t5(name, implementation):
    sizes = {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4, "relative_attention_max_distance": 20}
    config = getattr(transformers, f"{name}Config")(vocab_size=ROWS, dropout_rate=0.0, decoder_start_token_id=0, **sizes)
    return getattr(transformers, f"{name}ForConditionalGeneration")._from_config(config, attn_implementation=implementation)


def t5gemma(implementation):
    sizes = {**GEMMA, "query_pre_attn_scalar": 8, "dropout_rate": 0.0}
    of_decoder = {"is_decoder": True, "cross_attention_hidden_size": 32}
    config = transformers.T5GemmaConfig(encoder=dict(sizes), decoder=sizes | of_decoder, dropout_rate=0.0, vocab_size=ROWS)
    return transformers.T5GemmaForConditionalGeneration._from_config(config, attn_implementation=implementation)


def t5gemma2(implementation):
    sizes = {**GEMMA, "query_pre_attn_scalar": 8, "dropout_rate": 0.0}
    images = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "image_size": 8}
    vision = {"model_type": "siglip_vision_model", "patch_size": 4, **images}
    encoder = {"text_config": dict(sizes), "vision_config": vision, "mm_tokens_per_image": 4}
    config = transformers.T5Gemma2Config(encoder=encoder, decoder=dict(sizes), dropout_rate=0.0)
    return transformers.T5Gemma2ForConditionalGeneration._from_config(config, attn_implementation=implementation)


MODELS = {
    "t5-sdpa": lambda: of_t5("T5", "sdpa"),
    "t5-eager": lambda: of_t5("T5", "eager"),
    "mt5-sdpa": lambda: of_t5("MT5", "sdpa"),
    "umt5-sdpa": lambda: of_t5("UMT5", "sdpa"),
    "umt5-eager": lambda: of_t5("UMT5", "eager"),
    "t5gemma-eager": lambda: t5gemma("eager"),
    "t5gemma2-sdpa": lambda: t5gemma2("sdpa"),
    "t5gemma2-eager": lambda: t5gemma2("eager"),
}


@pytest.fixture(params=MODELS)
def model(request):
    made = MODELS[request.param]().to(torch.float64)
    for name, weight in made.named_parameters():
        if weight.ndim > 1 and "vision" not in name:  # large enough that what is attended to matters
            torch.nn.init.normal_(weight, std=0.3)
    return accept_packed_sequences(made)


def packed_batch(rows=3, **converter):
    mixture = ul2_tasks.Mixture("packed", chunk_tokens=CHUNKS)
    converter = HuggingFaceFeatureConverter(pack=True, **converter)
    dataset = UL2IterableDataset(mixture, LENGTHS, feature_converter=converter)
    return next(iter(torch.utils.data.DataLoader(dataset, batch_size=rows)))


def segments(batch):
    """Each example of packed rows as a batch of its own, without any mask: nothing is padded."""
    for row in range(len(batch["input_ids"])):
        for segment in range(1, int(batch["segment_ids"][row].max()) + 1):
            of_encoder = batch["segment_ids"][row] == segment
            example = {"input_ids": batch["input_ids"][row][of_encoder][None]}
            example["attention_mask"] = torch.ones_like(example["input_ids"])
            if "decoder_segment_ids" not in batch:
                yield example | {"labels": batch["labels"][row][of_encoder][None]}
                continue
            of_decoder = batch["decoder_segment_ids"][row] == segment
            for key in ("decoder_input_ids", "labels"):
                example[key] = batch[key][row][of_decoder][None]
            yield example | {"decoder_attention_mask": torch.ones_like(example["labels"])}


def summed_loss(model, batch):
    output = model(**batch, use_cache=False)
    loss = torch.nn.functional.cross_entropy(output.logits.flatten(0, 1), batch["labels"].flatten(), reduction="sum")
    mean = output.loss * (batch["labels"] >= 0).sum()
    torch.testing.assert_close(mean, loss, rtol=1e-5, atol=0, check_dtype=False)  # Gemma's is computed in float32
    return loss


def test_the_loss_and_the_gradients_of_a_packed_row_are_the_sums_of_those_of_its_examples(model):
    batch = packed_batch()
    assert (batch["segment_ids"].amax(1) >= 2).all()
    assert (batch["segment_ids"] == 0).any(), "there is padding, too"
    packed = summed_loss(model, batch)
    packed.backward()
    of_packed = [weight.grad for weight in model.parameters()]
    model.zero_grad()
    alone = torch.stack([summed_loss(model, example) for example in segments(batch)]).sum()
    alone.backward()
    torch.testing.assert_close(packed, alone, rtol=1e-6, atol=0)
    for one, other in zip(of_packed, (weight.grad for weight in model.parameters()), strict=True):
        assert (one is None) == (other is None)
        if one is not None:  # Gemma has its norms and softmax in float32
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5 * float(other.abs().max()))


WRONG = {
    "a token of the inputs is in the wrong segment": lambda batch: {"segment_ids": one_token_later(batch["segment_ids"])},
    "a target is in the wrong segment": lambda batch: {"decoder_segment_ids": one_token_later(batch["decoder_segment_ids"])},
    "targets read the inputs of another example": lambda batch: {"decoder_segment_ids": swapped(batch["decoder_segment_ids"])},
    "examples are not told apart": lambda batch: {key: (batch[key] > 0).long() for key in ("segment_ids", "decoder_segment_ids")},
}


def one_token_later(ids):
    """The second segment begins with the last token of the first."""
    return torch.where((ids == 1) & (ids.roll(-1, 1) == 2), 2, ids)


def swapped(ids):
    return torch.where((ids == 1) | (ids == 2), 3 - ids, ids)


@pytest.mark.parametrize("wrong", WRONG)
def test_one_wrong_segment_id_changes_the_loss(model, wrong):
    batch = packed_batch()
    right, changed = (float(summed_loss(model, each).detach()) for each in (batch, batch | WRONG[wrong](batch)))
    assert abs(changed / right - 1) > 1e-5


def test_segment_ids_are_names_alone(model):
    batch = packed_batch()
    other = batch | {key: swapped(batch[key]) for key in ("segment_ids", "decoder_segment_ids")}
    torch.testing.assert_close(summed_loss(model, batch), summed_loss(model, other), rtol=0, atol=0)


SIDES = {
    "segment_ids": ("input_ids", "position_ids"),
    "decoder_segment_ids": ("decoder_input_ids", "decoder_position_ids", "labels"),
}


def in_another_order(batch):
    """The last segment of one row first, and for each place of the decoder where it was."""
    made, orders = dict(batch), {}
    for ids, keys in SIDES.items():
        assert len(batch[ids]) == 1
        last = int(batch[ids].max())
        order = torch.argsort(torch.where(batch[ids][0] == 0, last + 1, batch[ids][0] % last), stable=True)
        made |= {key: batch[key][:, order] for key in (ids, *keys)}
        orders[ids] = order
    return made, orders["decoder_segment_ids"]


def test_segments_in_another_order_give_the_same_outputs_in_that_order(model):
    batch = packed_batch(rows=1)
    other, order = in_another_order(batch)
    assert (order != torch.arange(len(order))).any()
    one, two = (model(**each, use_cache=False).logits for each in (batch, other))
    is_target = other["decoder_segment_ids"] > 0
    torch.testing.assert_close(one[:, order][is_target], two[is_target], rtol=1e-5, atol=1e-5)


def test_a_model_that_accepts_packed_sequences_takes_all_else_as_before(model):
    batch = packed_batch()
    example = next(segments(batch))
    plain = type(model)._from_config(model.config, attn_implementation=model.config._attn_implementation).to(torch.float64)
    plain.load_state_dict(model.state_dict())
    torch.testing.assert_close(model(**example).logits, plain(**example).logits, rtol=0, atol=0)
    assert accept_packed_sequences(accept_packed_sequences(model)) is model
    assert [len(each._forward_pre_hooks) for each in (model.get_encoder(), model.get_decoder())] == [1, 1]
    copied = pickle.loads(pickle.dumps(model))
    torch.testing.assert_close(copied(**batch).logits, model(**batch).logits, rtol=0, atol=0)
    generated = [each.generate(example["input_ids"], max_new_tokens=4, do_sample=False) for each in (model, plain)]
    torch.testing.assert_close(*generated)


def test_gradient_checkpointing_gives_the_same(model):
    batch = packed_batch()
    model.train()
    one = summed_loss(model, batch).detach()
    model.gradient_checkpointing_enable()
    two = summed_loss(model, batch)
    two.backward()
    torch.testing.assert_close(one, two.detach(), rtol=1e-12, atol=0)


@pytest.mark.parametrize(("name", "rows", "reference"), [("t5", 1, "sdpa"), ("t5gemma", 2, "eager")])
def test_flex_attention_gives_what_other_attention_gives(name, rows, reference):
    batch = packed_batch(rows=rows)
    make = {"t5": lambda implementation: of_t5("T5", implementation), "t5gemma": t5gemma}[name]
    models = [make(implementation) for implementation in (reference, "flex_attention")]
    models[1].load_state_dict(models[0].state_dict())
    with torch.no_grad(), torch.compiler.set_stance("force_eager"):  # compiling takes a minute
        one, two = (accept_packed_sequences(each).eval()(**batch, use_cache=False).loss for each in models)
    torch.testing.assert_close(one, two, rtol=1e-5, atol=0)


def test_masks_of_a_model_share_one_function_of_which_flex_attention_compiles_few_kernels():
    """The kernel is compiled again for each function, and after some eight of them no more."""
    masks = []
    model = accept_packed_sequences(t5gemma("flex_attention"))
    for module in (model.get_encoder(), model.get_decoder()):
        module.register_forward_pre_hook(lambda module, args, kwargs: masks.append(kwargs) or (args, kwargs), with_kwargs=True)
    with torch.no_grad(), torch.compiler.set_stance("force_eager"):
        for _ in range(2):
            model.eval()(**packed_batch(rows=2), use_cache=False)
    of_layers = [mask for kwargs in masks for key in kwargs if key.endswith("attention_mask") for mask in kwargs[key].values()]
    assert len(of_layers) == 2 * 5, "full and sliding of the encoder and the decoder, and cross"
    assert len({mask.mask_mod.__code__ for mask in of_layers}) == 1


def test_flex_attention_of_t5_takes_one_row():
    with pytest.raises(ValueError, match="the batch must have one row for a T5Stack with flex_attention, got 3"):
        accept_packed_sequences(of_t5("T5", "flex_attention"))(**packed_batch())


def test_a_decoder_only_model_takes_packed_rows_with_and_without_prefixes():
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = transformers.LlamaConfig(vocab_size=ROWS, pad_token_id=0, bos_token_id=None, eos_token_id=1, **sizes)
    model = transformers.LlamaForCausalLM._from_config(config, attn_implementation="sdpa").to(torch.float64)
    batch = packed_batch(decoder_only=True)
    inputs = {key: batch[key] for key in ("input_ids", "position_ids", "labels")}

    def loss(use_prefix, rows):
        of_mask = rows if use_prefix else {key: rows[key] for key in rows if key != "prefix_length"}
        mask = packed_attention_masks(of_mask)["decoder"]
        output = model(**{key: rows[key] for key in inputs}, attention_mask=mask, use_cache=False)
        return output.loss * (rows["labels"] >= 0).sum()

    alone = {False: 0.0, True: 0.0}
    for row in range(len(batch["input_ids"])):
        for segment in range(1, int(batch["segment_ids"][row].max()) + 1):
            example = {key: values[row][batch["segment_ids"][row] == segment][None] for key, values in batch.items()}
            for use_prefix in alone:
                alone[use_prefix] += loss(use_prefix, example).detach()
    for use_prefix, expected in alone.items():
        torch.testing.assert_close(loss(use_prefix, batch).detach(), expected, rtol=1e-6, atol=0)
    assert abs(float(alone[True] / alone[False] - 1)) > 1e-6, "a prefix is attended to from both sides"
    causal = model(**inputs, use_cache=False).loss * (batch["labels"] >= 0).sum()
    torch.testing.assert_close(causal.detach(), alone[False], rtol=1e-6, atol=0)  # Transformers finds segments by positions


def test_examples_that_would_attend_to_each_other_are_told(tmp_path):
    """Trainer leaves out segment ids by default, and a model that does not know them ignores them; without a mask none is cut."""
    model, batch = accept_packed_sequences(of_t5("T5", "sdpa")), packed_batch()
    left = {key: batch[key] for key in ("input_ids", "decoder_input_ids", "labels")}
    with pytest.warns(UserWarning, match=r"a batch has neither segment_ids nor attention_mask\. .* set remove_unused_columns"):
        model.train()(**left)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.train()(**left, attention_mask=torch.ones_like(left["input_ids"]))
        model.train()(**batch)
        model.eval()(**left)
    rows = [{key: values[0] for key, values in batch.items()} | {"task_id": torch.where(batch["labels"][0] < 0, -1, 0)}]
    arguments = transformers.TrainingArguments(
        str(tmp_path), max_steps=1, remove_unused_columns=False, report_to="none", use_cpu=True
    )
    tasks = [TaskInfo("packed_s", "s", "packed_corpus")]
    with pytest.raises(ValueError, match="model must accept packed sequences for a batch with segment_ids, got T5ForConditional"):
        TaskLossTrainer(of_t5("T5", "sdpa"), arguments, train_dataset=rows, tasks=tasks).train()


def test_trainer_trains_on_packed_rows(tmp_path):
    mixture = ul2_tasks.Mixture("packed", chunk_tokens=CHUNKS)
    dataset = UL2IterableDataset(mixture, LENGTHS, feature_converter=HuggingFaceFeatureConverter(pack=True), batch_size=4)
    model = accept_packed_sequences(of_t5("T5", "sdpa"))
    arguments = transformers.TrainingArguments(
        str(tmp_path), max_steps=3, per_device_train_batch_size=4, remove_unused_columns=False, report_to="none", save_steps=3
    )
    result = transformers.Trainer(model, arguments, train_dataset=dataset).train()
    assert np.isfinite(result.training_loss)
    with torch.no_grad():
        batch = packed_batch()
        loaded = transformers.T5ForConditionalGeneration.from_pretrained(tmp_path / "checkpoint-3")
        torch.testing.assert_close(accept_packed_sequences(loaded)(**batch).loss, model.eval()(**batch).loss)


def test_other_models_and_attention_are_errors():
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
    llama = transformers.LlamaForCausalLM(transformers.LlamaConfig(vocab_size=16, **sizes))
    with pytest.raises(ValueError, match=r"model must be an encoder-decoder model .*, got LlamaForCausalLM. Pass the masks"):
        accept_packed_sequences(llama)
    encoder = transformers.T5EncoderModel(transformers.T5Config(vocab_size=16, d_model=8, num_layers=1))
    with pytest.raises(ValueError, match=r"model must be .*, got T5EncoderModel"):
        accept_packed_sequences(encoder)
    with pytest.raises(ValueError, match=r"batch must have segment_ids, got .*remove_unused_columns=False"):
        packed_attention_masks({"input_ids": torch.ones(1, 3, dtype=torch.long)})
    batch = packed_batch()
    with pytest.raises(ValueError, match=r"attention implementation must be one of .*, got 'flash_attention_2'"):
        packed_attention_masks(batch, "flash_attention_2")
