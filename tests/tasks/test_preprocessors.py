"""Documents to examples: nothing lost, lengths exact, bad input named."""

import functools

import numpy as np
import pytest
import seqio
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support import (
    DENOISERS,
    byte_vocabulary,
    denoise,
    described,
    features,
    flat,
    restore,
    restore_all,
    special_for,
    token_dataset,
)
from ul2_tasks import T5GEMMA2, MemoryDataSource, SpanDenoiser, chunk_length, register, seqio_vocabulary
from ul2_tasks.tasks.preprocessors import denoise as denoise_chunks
from ul2_tasks.tasks.preprocessors import prepend_mode, split_into_chunks

BYTES, MODES = byte_vocabulary()
EOS = 1
LENGTHS = {"inputs": 64, "targets": 64}


def random_documents(*lengths, low=3, high=259, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.integers(low, high, size=length).tolist() for length in lengths]


@given(
    st.lists(st.lists(st.integers(3, 258), max_size=90), max_size=8),
    st.sampled_from(DENOISERS),
    st.booleans(),
    st.booleans(),
    st.integers(12, 40),
    st.integers(12, 40),
)
@settings(max_examples=12)
def test_any_documents_of_any_length_pass(documents, denoiser, merge_examples, separate_documents, inputs, targets):
    """Token for token, in order, the tail included; full chunks have the lengths that were solved."""
    separate_documents &= merge_examples
    keywords = {"modes": MODES, "merge_examples": merge_examples, "separate_documents": separate_documents}
    budgets = {"inputs": inputs, "targets": targets}
    examples = denoise(documents, budgets, denoiser, BYTES, **keywords)
    special, full = special_for(denoiser, BYTES, MODES), chunk_length(denoiser, budgets, mode_tokens=1)
    chunks = [restore(example, denoiser, special) for example in examples]
    if separate_documents:
        documents = [[*document, EOS] for document in documents if document]
    assert flat(chunks) == flat(documents)
    fewest, most = denoiser.noise_range(full.length)
    for example, tokens in zip(examples, chunks):
        sizes = len(example["inputs"]), len(example["targets"])
        assert (0 < sizes[0] <= inputs, sizes[1] <= targets, len(tokens) <= full.length) == (True, True, True)
        assert fewest != most or len(tokens) < full.length or sizes == (full.inputs, full.targets)
        assert 0 not in example["inputs"]
        assert 0 not in example["targets"]
    if merge_examples and examples:
        assert all(len(tokens) == full.length for tokens in chunks[:-1])


def test_a_one_token_document_is_all_noise_and_an_empty_one_adds_nothing():
    (example,) = denoise([[], [77], []], LENGTHS, T5GEMMA2[0], BYTES, modes=MODES, merge_examples=False)
    assert example["inputs"].tolist() == [MODES["[R]"], 361, EOS]
    assert example["targets"].tolist() == [361, 77, EOS]
    assert denoise([[], []], LENGTHS, T5GEMMA2[0], BYTES, modes=MODES) == []
    assert denoise([], LENGTHS, T5GEMMA2[0], BYTES, modes=MODES) == []


def test_a_mode_of_several_tokens_counts_in_the_budget():
    text = "[NLU] "
    denoiser = T5GEMMA2[0]
    (example, *_) = denoise(random_documents(500), LENGTHS, denoiser, BYTES, modes={**MODES, "[R]": text})
    assert bytes(id - 3 for id in example["inputs"][: len(text)].tolist()).decode() == text
    assert len(example["inputs"]) == 64 == chunk_length(denoiser, LENGTHS, mode_tokens=len(text)).inputs


@pytest.mark.parametrize(("bad", "merge_examples"), [(361, True), (0, False)], ids=["joined", "apart"])
def test_an_id_that_no_text_may_have_is_refused_by_number(bad, merge_examples):
    documents = [[10, 11, 12], [20, bad, 21]]
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"id beyond the 362 of the vocabulary") as error:
        denoise(documents, LENGTHS, T5GEMMA2[0], BYTES, modes=MODES, merge_examples=merge_examples)
    assert f"[{bad}]" in str(error.value)


PLAIN = SpanDenoiser(name="d", mean_span_length=3, noise_density=0.15)


def test_bad_features_fail_when_the_dataset_is_built():
    build = functools.partial(split_into_chunks, token_dataset([[5]]), LENGTHS, denoiser=T5GEMMA2[0], modes=MODES)
    for output_features, argument in (
        ({"targets": seqio.Feature(BYTES)}, "output_features"),
        ({"targets": seqio.Feature(BYTES), "inputs": seqio.Feature(seqio.ByteVocabulary(extra_ids=7))}, "one vocabulary"),
    ):
        with pytest.raises(ValueError, match=argument):
            build(output_features)
    no_eos = {"vocabulary": seqio.PassThroughVocabulary(size=100), "sentinels": range(50, 90)}
    for arguments, argument in (
        (no_eos, "add_eos"),
        ({**no_eos, "add_eos": False, "separate_documents": True}, "separate_documents"),
        ({"vocabulary": BYTES, "separate_documents": True, "merge_examples": False}, "separate_documents"),
    ):
        with pytest.raises(ValueError, match=argument):
            denoise([[5]], LENGTHS, PLAIN, **arguments)


def test_noise_is_new_for_each_seed_denoiser_and_content_and_the_same_otherwise():
    documents = random_documents(1900)
    one, twin = (SpanDenoiser(name=name, mean_span_length=3, noise_density=0.15, mode="[R]") for name in ("a", "b"))

    def positions(documents, denoiser=one, seed=0):
        examples = denoise(documents, LENGTHS, denoiser, BYTES, seed=seed, modes=MODES)
        return [np.flatnonzero(example["inputs"] > MODES["[X]"]).tolist() for example in examples]

    same = positions(documents)
    assert positions(documents) == same
    shifted = [[3 + (id - 2) % 256 for id in documents[0]]]
    for other in (positions(documents, seed=1), positions(documents, twin), positions(shifted)):
        assert np.mean([a == b for a, b in zip(same, other)]) < 0.05


STOCK = [f"text {number} of the corpus, and {number} more" for number in range(80)]


@pytest.mark.parametrize("settings", [{}, {"separate_documents": True}, {"merge_examples": False}], ids=["joined", "eos", "apart"])
def test_registered_tasks_are_exact_through_the_stock_get_dataset(settings):
    """A plain task of the same steps gives the same, alone and in a plain mixture."""
    source = MemoryDataSource(lambda: STOCK, validation=0)
    name = register(f"stock_{'_'.join(settings)}", source, BYTES, T5GEMMA2[::2], modes=MODES, **settings)
    in_order = [record.text.decode() for shard in source.shards("train") for record in source.read(shard)]
    documents = [[*BYTES.encode(text), *[EOS] * ("separate_documents" in settings)] for text in in_order]
    plain = []
    for task in seqio.get_mixture_or_task(name).tasks:
        arguments = LENGTHS, "train", False, False
        examples = list(seqio.Task.get_dataset(task, *arguments, seed=1).as_numpy_iterator())
        special, full = special_for(task.denoiser, BYTES, MODES), described(task).solve(LENGTHS).full
        assert restore_all(examples, task.denoiser, special) == flat(documents)
        exact = [example for example in examples if len(restore(example, task.denoiser, special)) == full.length]
        assert {(len(example["inputs"]), len(example["targets"])) for example in exact} <= {(full.inputs, full.targets)}
        assert len(exact) >= len(examples) - (1 if not settings.keys() & {"merge_examples"} else len(STOCK))

        plain.append(seqio.Task(f"plain_{task.name}", task.source, task.output_features, preprocessors=task.preprocessors))
        of_plain = list(plain[-1].get_dataset(*arguments, seed=1).as_numpy_iterator())
        assert [each["inputs"].tolist() for each in of_plain] == [each["inputs"].tolist() for each in examples]
    mixture = seqio.Mixture(f"plain_{name}", [(task, 1) for task in plain])
    mixed = mixture.get_dataset(LENGTHS, "train", seed=1).take(20).as_numpy_iterator()
    assert all(len(each[key]) <= 64 for each in mixed for key in LENGTHS)


def test_eos_may_be_left_to_a_later_step():
    build = {"sequence_length": LENGTHS, "output_features": features(BYTES)}
    given = {"denoiser": T5GEMMA2[0], "modes": MODES}
    documents = random_documents(300, 40)

    def examples(*steps):
        with seqio.utils.map_seed_manager(0):
            dataset = split_into_chunks(token_dataset(documents), **build, **given)
            for step in steps:
                dataset = step(dataset)
            return [[each[key].tolist() for key in LENGTHS] for each in dataset.as_numpy_iterator()]

    later = functools.partial(seqio.preprocessors.append_eos, output_features=features(BYTES))
    assert examples(functools.partial(denoise_chunks, **build, **given, append_eos=False), later) == examples(
        functools.partial(denoise_chunks, **build, **given)
    )


@pytest.mark.parametrize(
    ("example", "mode", "argument"),
    [
        ({"targets": [1]}, "[R]", "inputs"),
        ({"inputs": "a text"}, "[R]", "inputs"),
        ({"inputs": [[1]]}, "[R]", "inputs"),
        ({"inputs": [1]}, "[Q]", "mode"),
    ],
)
def test_what_has_no_place_for_a_mode_is_refused(example, mode, argument):
    with pytest.raises(ValueError, match=argument):
        prepend_mode(tf.data.Dataset.from_tensors(example), features(seqio_vocabulary()), mode=mode)
