"""Packed rows in models of Transformers: a row gives what each of its examples gives alone, or the model fails by itself."""

import functools
import pickle
import types

import pytest

torch = pytest.importorskip("torch", reason="the extra torch is not installed")
transformers = pytest.importorskip("transformers", reason="the extra torch is not installed")

import ul2_tasks  # noqa: E402
from tests import tiny_models  # noqa: E402
from ul2_tasks import (  # noqa: E402
    HuggingFaceFeatureConverter,
    UL2IterableDataset,
    accept_packed_sequences,
    packed_attention_masks,
)
from ul2_tasks.pytorch.packed_attention import DECODERS  # noqa: E402

pytestmark = [pytest.mark.train, pytest.mark.usefixtures("seeded_torch")]

LENGTHS = {"inputs": 64, "targets": 48}
CHUNKS = {"r1": 24, "r2": 20, "x1": 24, "x2": 16, "s": 20}
PAIRS = ["t5-sdpa", "t5-eager", "mt5-sdpa", "umt5-sdpa", "umt5-eager", "t5gemma-eager", "t5gemma2-sdpa", "t5gemma2-eager"]
ONE_ROW = ["llama-sdpa", "qwen3-eager", "mistral-sdpa", "gemma3_text-sdpa", "gpt2-sdpa", "opt-eager"]


def made(name):
    """A model by its type, and the implementation of its attention."""
    kind, implementation = name.split("-")
    if kind.startswith("t5gemma"):
        return getattr(tiny_models, kind)(implementation=implementation)
    if kind.endswith("t5"):
        return tiny_models.t5(kind=kind.upper(), implementation=implementation, decoder_start_token_id=0)
    return tiny_models.decoder(kind, implementation=implementation)


def large(model):
    model = model.to(torch.float64)
    for name, weight in model.named_parameters():
        if weight.ndim > 1 and "vision" not in name:  # large enough that what is attended to matters
            torch.nn.init.normal_(weight, std=0.3)
    return model


@functools.cache
def packed_batch(rows=3, **converter):
    mixture = ul2_tasks.Mixture("packed", chunk_tokens=CHUNKS)
    converter = HuggingFaceFeatureConverter(pack=True, **converter)
    dataset = UL2IterableDataset(mixture, LENGTHS, feature_converter=converter)
    return types.MappingProxyType(next(iter(torch.utils.data.DataLoader(dataset, batch_size=rows))))


def segments(batch):
    """Each example of packed rows as a batch of its own, without any mask: nothing is padded."""
    for row in range(len(batch["packed_input_ids"])):
        for segment in range(1, int(batch["segment_ids"][row].max()) + 1):
            of_encoder = batch["segment_ids"][row] == segment
            example = {"input_ids": batch["packed_input_ids"][row][of_encoder][None]}
            example["attention_mask"] = torch.ones_like(example["input_ids"])
            if "decoder_segment_ids" not in batch:
                yield example | {"labels": batch["labels"][row][of_encoder][None]}
                continue
            of_decoder = batch["decoder_segment_ids"][row] == segment
            for key in ("decoder_input_ids", "labels"):
                example[key] = batch[key][row][of_decoder][None]
            yield example | {"decoder_attention_mask": torch.ones_like(example["labels"])}


def summed_loss(model, batch):
    output, labels = model(**batch), batch["labels"]
    logits = output.logits
    if "decoder_input_ids" not in batch:
        logits, labels = logits[:, :-1], labels[:, 1:]
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum")
    mean = output.loss * (batch["labels"] >= 0).sum()
    torch.testing.assert_close(mean, loss, rtol=1e-5, atol=0, check_dtype=False)  # Gemma's is computed in float32
    return loss


@pytest.mark.parametrize("name", [*PAIRS, *ONE_ROW])
def test_the_loss_and_the_gradients_of_a_packed_row_are_the_sums_of_those_of_its_examples(name):
    model = accept_packed_sequences(large(made(name)))
    batch = packed_batch(decoder_only=name in ONE_ROW)
    assert (batch["segment_ids"].amax(1) >= 2).all()
    assert (batch["segment_ids"] == 0).any(), "there is padding, too"
    packed = summed_loss(model, batch)
    packed.backward()
    of_packed = [weight.grad for weight in model.parameters()]
    model.zero_grad()
    alone = torch.stack([summed_loss(model, example) for example in segments(batch)]).sum()
    alone.backward()
    torch.testing.assert_close(packed, alone, rtol=1e-6, atol=0)
    of_alone = [weight.grad for weight in model.parameters()]
    largest = max(float(each.abs().max()) for each in of_alone if each is not None)
    for one, other in zip(of_packed, of_alone, strict=True):
        assert (one is None) == (other is None)
        if (
            one is not None
        ):  # norms and softmax are in float32, also that of OPT's keys, whose biases have no gradient but this noise
            torch.testing.assert_close(one, other, rtol=1e-4, atol=max(1e-5 * float(other.abs().max()), 1e-6 * largest))


@pytest.mark.parametrize("name", PAIRS)
def test_a_model_that_accepts_packed_sequences_takes_all_else_as_before(name):
    model, batch = accept_packed_sequences(large(made(name))), packed_batch()
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


@pytest.mark.parametrize(("kind", "rows", "reference"), [("t5", 1, "sdpa"), ("t5gemma", 2, "eager")])
def test_flex_attention_gives_what_other_attention_gives(kind, rows, reference):
    models = [made(f"{kind}-{implementation}") for implementation in (reference, "flex_attention")]
    with torch.no_grad(), torch.compiler.set_stance("force_eager"):  # compiling takes a minute
        one, two = (accept_packed_sequences(each).eval()(**packed_batch(rows=rows), use_cache=False).loss for each in models)
    torch.testing.assert_close(one, two, rtol=1e-5, atol=0)


@pytest.mark.parametrize("kind", DECODERS)
def test_each_type_of_decoder_keeps_the_examples_of_a_row_apart(kind):
    implementation = "eager" if kind in ("gemma2", "gpt_oss") else "sdpa"
    model = tiny_models.decoder(kind, implementation=implementation, initializer_range=0.4, init_std=0.4).eval()
    batch = packed_batch(rows=1, decoder_only=True)
    with torch.no_grad():
        alone = sum(summed_loss(model, example) for example in segments(batch))
        torch.testing.assert_close(summed_loss(accept_packed_sequences(model), batch), alone, rtol=2e-6, atol=0)


def test_masks_with_prefixes_let_an_example_attend_to_all_of_its_inputs():
    model = large(made("llama-sdpa"))
    batch = packed_batch(decoder_only=True)

    def loss(rows, **mask):
        given = {"input_ids": rows["packed_input_ids"], "position_ids": rows["position_ids"], "labels": rows["labels"]}
        return float((model(**given, **mask, use_cache=False).loss * (rows["labels"] >= 0).sum()).detach())

    alone = 0.0
    for row in range(len(batch["labels"])):
        for segment in range(1, int(batch["segment_ids"][row].max()) + 1):
            example = {key: values[row][batch["segment_ids"][row] == segment][None] for key, values in batch.items()}
            places = example["position_ids"][0]
            attends = (places <= places[:, None]) | (places < example["prefix_length"][0])
            alone += loss(example, attention_mask=attends[None, None])
    with_positions = loss(batch, attention_mask=packed_attention_masks(batch)["decoder"])
    without = {key: values for key, values in batch.items() if key != "position_ids"}
    assert with_positions == pytest.approx(alone, rel=1e-6)
    assert loss(batch, attention_mask=packed_attention_masks(without)["decoder"]) == with_positions
    causal = {key: values for key, values in batch.items() if key != "prefix_length"}
    assert loss(batch, attention_mask=packed_attention_masks(causal)["decoder"]) != pytest.approx(alone, rel=1e-6)
    with pytest.raises(ValueError, match="prefix_length"):
        packed_attention_masks({**batch, "prefix_length": batch["prefix_length"][:, 0]})


class Calls(torch.nn.Module):
    """Calls the forward of a model, past its hooks, as adapters of PEFT do."""

    def __init__(self, model):
        super().__init__()
        self.model, self.config = model, model.config

    def forward(self, input_ids=None, attention_mask=None, labels=None, **more):
        return self.model.forward(input_ids=input_ids, attention_mask=attention_mask, labels=labels, **more)


WRAPPERS = {
    "itself": lambda model: model,
    "DistributedDataParallel": lambda model: torch.nn.parallel.DistributedDataParallel(model),
    "torch.compile": functools.partial(torch.compile, backend="eager"),
    "adapters": Calls,
    "accelerate": lambda model: accelerator().prepare(model),
}


def accelerator():
    import accelerate

    return accelerate.Accelerator(cpu=True)


@pytest.fixture(scope="module")
def process_group(tmp_path_factory):
    store = torch.distributed.FileStore(str(tmp_path_factory.mktemp("group") / "store"), 1)
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.parametrize("name", [*PAIRS, *ONE_ROW, "mamba-eager"])
def test_packed_rows_fail_in_a_model_that_was_not_made_to_accept_them(name, tmp_path):
    """Also where Trainer leaves out what is no argument of the model."""
    model, batch = made(name), packed_batch(decoder_only=name not in PAIRS)
    with pytest.raises((ValueError, TypeError)):
        model(**batch)
    for remove in (True, False) if name in ("t5-sdpa", "t5gemma2-sdpa", "llama-sdpa") else ():
        with pytest.raises((ValueError, TypeError)):
            trainer(model, single_rows(batch), tmp_path, remove).train()


def single_rows(batch):
    return [{key: values[row] for key, values in batch.items()} for row in range(len(batch["labels"]))]


def trainer(model, rows, folder, remove_unused_columns):
    arguments = transformers.TrainingArguments(
        str(folder), max_steps=1, remove_unused_columns=remove_unused_columns, report_to="none", use_cpu=True, logging_steps=1
    )
    return transformers.Trainer(model, arguments, train_dataset=rows)


@pytest.mark.parametrize("wrapper", WRAPPERS)
@pytest.mark.parametrize("name", ["t5-sdpa", "llama-sdpa"])
def test_a_model_that_is_wrapped_accepts_packed_rows_or_fails(name, wrapper, process_group):
    model, batch = made(name).eval(), packed_batch(decoder_only=name in ONE_ROW)
    with pytest.raises((ValueError, TypeError)):
        WRAPPERS[wrapper](model)(**batch)
    accept_packed_sequences(model)
    expected = model(**batch).loss
    torch.testing.assert_close(WRAPPERS[wrapper](model)(**batch).loss, expected)


@pytest.mark.parametrize("name", ["t5-sdpa", "llama-sdpa"])
def test_a_part_of_a_packed_batch_is_an_error(name, tmp_path):
    model, batch = accept_packed_sequences(made(name)), packed_batch(decoder_only=name in ONE_ROW)
    needed = ["packed_input_ids", *(["position_ids"] if name in ONE_ROW else ["segment_ids", "decoder_segment_ids"])]
    for key in needed:
        with pytest.raises(ValueError, match=key):
            model(**{other: values for other, values in batch.items() if other != key})
    with pytest.raises(ValueError, match="packed_input_ids"):
        trainer(model, single_rows(batch), tmp_path, True).train()
    trained = trainer(model, single_rows(batch), tmp_path, False)
    expected = float(model.eval()(**batch).loss.detach())
    trained.train()
    assert trained.state.log_history[0]["loss"] == pytest.approx(expected, abs=1e-4)


def test_other_models_and_attention_are_errors():
    encoder = transformers.T5EncoderModel(transformers.T5Config(vocab_size=16, d_model=8, num_layers=1))
    for call, arguments, named in (
        (accept_packed_sequences, [made("mamba-eager")], "model"),
        (accept_packed_sequences, [encoder], "model"),
        (packed_attention_masks, [{"input_ids": torch.ones(1, 3, dtype=torch.long)}], "segment_ids"),
        (packed_attention_masks, [packed_batch(), "flash_attention_2"], "attention implementation"),
    ):
        with pytest.raises(ValueError, match=named):
            call(*arguments)
    for name, rows in (("llama-sdpa", 3), ("gpt2-sdpa", 1)):
        model = accept_packed_sequences(made(name))
        model.config._attn_implementation = "flash_attention_2"
        with pytest.raises(ValueError, match="flash_attention_2"):
            model(**packed_batch(rows=rows, decoder_only=True))
