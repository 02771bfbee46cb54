"""Documents to examples: nothing lost, lengths exact, bad input named."""

import functools

import numpy as np
import pytest
import seqio
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from sentencepiece import sentencepiece_model_pb2
from support import (
    DENOISERS,
    KINDS,
    SEQUENTIAL,
    byte_vocabulary,
    configured,
    denoise,
    denoiser_id,
    features,
    flat,
    mistral_model,
    restore,
    restore_all,
    special_for,
    token_dataset,
)

from ul2_tasks import T5GEMMA2, SequentialDenoiser, SpanDenoiser, chunk_length, default_vocabulary
from ul2_tasks.corpus.configuration import CorpusConfiguration
from ul2_tasks.corpus.tokenization import tokenize
from ul2_tasks.denoising.lengths import example_lengths
from ul2_tasks.denoising.preprocessors import chunk, not_text, prepend_mode, solve_features
from ul2_tasks.denoising.preprocessors import denoise as denoise_dataset
from ul2_tasks.graphs import traced_once
from ul2_tasks.vocabulary.special_ids import special_tokens

BYTES, MODES = byte_vocabulary()
EOS = 1
LENGTHS = {"inputs": 64, "targets": 64}


def random_documents(*lengths, low=3, high=259, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.integers(low, high, size=length).tolist() for length in lengths]


MANY_BYTES, MANY_MODES = byte_vocabulary(sentinels=300)
VOCABULARIES = {
    # name: (vocabulary, settings, ordinary ids)
    "bytes": (MANY_BYTES, {"modes": MANY_MODES}, (3, 259)),
    "default": (default_vocabulary(), {}, (600, 4096)),
    "mistral": (
        seqio.SentencePieceVocabulary(mistral_model()),
        {"sentinels": range(10, 700), "modes": {"[R]": 700, "[S]": 701, "[X]": 702}},
        (1100, 32000),
    ),
}


CASES = [("bytes", (64, 64)), ("bytes", (512, 512)), ("bytes", (30, 300)), ("default", (512, 512)), ("mistral", (200, 40))]
# Each builds a pipeline: a preset's denoisers and every kind in one case, in turn, and every kind in another one. The other
# denoisers have other numbers alone; the tests of the collator, which builds none, have them all.
READ = list(dict.fromkeys([*T5GEMMA2, *KINDS]))
COMBINED = [(denoiser, *CASES[number % 5]) for number, denoiser in enumerate(READ)]
COMBINED += [(denoiser, *CASES[(READ.index(denoiser) + 2) % 5]) for denoiser in KINDS]


@pytest.mark.parametrize(
    ("denoiser", "vocabulary", "sequence_length"),
    COMBINED,
    ids=lambda value: str(value) if isinstance(value, str | tuple) else denoiser_id(value),
)
def test_joined_documents_are_lossless_and_every_full_chunk_is_exact(denoiser, vocabulary, sequence_length):
    vocabulary, settings, ordinary = VOCABULARIES[vocabulary]
    documents = random_documents(0, 700, 1, 5, 0, 1500, 33, low=ordinary[0], high=ordinary[1])
    budgets = dict(zip(("inputs", "targets"), sequence_length))
    examples = denoise(documents, budgets, denoiser, vocabulary, **settings)

    special = special_tokens(vocabulary, denoiser.mode, **settings)
    chunks = [restore(example, denoiser, special) for example in examples]
    assert flat(chunks) == flat(documents), "token for token, in order, the tail included"

    full = chunk_length(denoiser, budgets, mode_tokens=len(special.mode))
    total = sum(map(len, documents))
    assert [len(chunk) for chunk in chunks] == [full.length] * (total // full.length) + [total % full.length] * (
        total % full.length > 0
    )
    fewest, most = denoiser.noise_range(full.length)
    uses_sentinel = getattr(denoiser, "sentinel", True)
    for example, tokens in zip(examples, chunks):
        assert len(example["inputs"]) <= budgets["inputs"]
        assert len(example["targets"]) <= budgets["targets"]
        if len(tokens) == full.length:
            spans = full.spans if uses_sentinel else 0
            noise = len(example["targets"]) - spans - 1
            assert fewest <= noise <= most
            assert len(example["inputs"]) == len(special.mode) + full.length - noise + spans + 1
            if fewest == most:
                assert (len(example["inputs"]), len(example["targets"])) == (full.inputs, full.targets)


@pytest.mark.parametrize("denoiser", KINDS, ids=denoiser_id)
def test_documents_kept_apart_are_lossless_each_on_its_own(denoiser):
    documents = random_documents(0, 700, 1, 2, 3, 0, 900, 33, 0)
    examples = denoise(documents, LENGTHS, denoiser, BYTES, modes=MODES, merge_examples=False)
    special = special_for(denoiser, BYTES, MODES)
    full = chunk_length(denoiser, LENGTHS).length
    wanted = [document[start : start + full] for document in documents for start in range(0, len(document), full)]
    assert [restore(example, denoiser, special) for example in examples] == wanted
    for example, tokens in zip(examples, wanted):
        longest = example_lengths(denoiser, len(tokens), mode_tokens=1)
        assert len(example["inputs"]) <= longest[0]
        assert len(example["targets"]) <= longest[1]


@given(st.lists(st.lists(st.integers(3, 258), max_size=90), max_size=8), st.sampled_from(DENOISERS), st.booleans(), st.booleans())
@settings(max_examples=7)
def test_any_documents_of_any_length_pass(documents, denoiser, merge_examples, separate_documents):
    separate_documents &= merge_examples
    keywords = {"modes": MODES, "merge_examples": merge_examples, "separate_documents": separate_documents}
    examples = denoise(documents, {"inputs": 24, "targets": 24}, denoiser, BYTES, **keywords)
    special = special_for(denoiser, BYTES, MODES)
    restored = restore_all(examples, denoiser, special)
    if separate_documents:
        documents = [[*document, EOS] for document in documents if document]
    assert restored == flat(documents)
    for example in examples:
        assert len(example["inputs"]) > 0
        assert 0 not in example["inputs"]
        assert 0 not in example["targets"]


@pytest.mark.parametrize("separate", [True, False])
def test_an_eos_between_joined_documents_is_a_choice(separate):
    documents = [[10, 11], [], [12], [13, 14, 15]]
    (example,) = denoise(documents, LENGTHS, T5GEMMA2[0], BYTES, modes=MODES, separate_documents=separate)
    special = special_for(T5GEMMA2[0], BYTES, MODES)
    joined = restore(example, T5GEMMA2[0], special)
    assert joined == ([10, 11, EOS, 12, EOS, 13, 14, 15, EOS] if separate else [10, 11, 12, 13, 14, 15])


def test_a_one_token_document_is_all_noise_and_an_empty_one_adds_nothing():
    (example,) = denoise([[], [77], []], LENGTHS, T5GEMMA2[0], BYTES, modes=MODES, merge_examples=False)
    assert example["inputs"].tolist() == [MODES["[R]"], 361, EOS]
    assert example["targets"].tolist() == [361, 77, EOS]
    assert denoise([[], []], LENGTHS, T5GEMMA2[0], BYTES, modes=MODES) == []
    assert denoise([], LENGTHS, T5GEMMA2[0], BYTES, modes=MODES) == []


@pytest.mark.parametrize("merge_examples", [True, False])
def test_a_document_longer_than_t5s_65536_tokens_is_used_whole(merge_examples):
    (document,) = random_documents(200_001)
    denoiser = T5GEMMA2[-1]
    examples = denoise([document], {"inputs": 512, "targets": 512}, denoiser, BYTES, modes=MODES, merge_examples=merge_examples)
    special = special_for(denoiser, BYTES, MODES)
    assert restore_all(examples, denoiser, special) == document


@pytest.mark.parametrize("denoiser", [T5GEMMA2[1], T5GEMMA2[4]], ids=denoiser_id)  # that of most spans, that of one
def test_t5gemma2s_own_lengths_with_gemmas_layout(denoiser, tmp_path):
    """16,384 inputs and targets; `<unused..>` sentinels that are not the last ids, as in Gemma's vocabulary."""
    vocabulary = gemma_like(tmp_path / "gemma_like.model", sentinels=1300)
    (document,) = random_documents(70_000, low=600, high=4096)
    budgets = {"inputs": 16384, "targets": 16384}
    examples = denoise([document], budgets, denoiser, vocabulary, sentinels="<unused{}>")

    special = special_tokens(vocabulary, denoiser.mode, sentinels="<unused{}>")
    assert special.sentinels == tuple(range(4096, 4096 + 1300))
    assert vocabulary.vocab_size > 4096 + 1300
    assert restore_all(examples, denoiser, special) == document
    full = chunk_length(denoiser, budgets)
    assert (len(examples[0]["inputs"]), len(examples[0]["targets"])) == (full.inputs, full.targets)
    if denoiser.name == "r2":
        assert full.spans == 1260


def gemma_like(path, sentinels):
    """The default model with `<unused0>` .. in the middle, and ordinary pieces after them."""
    model = sentencepiece_model_pb2.ModelProto.FromString(default_vocabulary().sp_model)
    for number in range(sentinels):
        model.pieces.add(piece=f"<unused{number}>", type=sentencepiece_model_pb2.ModelProto.SentencePiece.USER_DEFINED)
    for number in range(50):
        model.pieces.add(piece=f"ordinary{number}", score=-20)
    path.write_bytes(model.SerializeToString())
    return seqio.SentencePieceVocabulary(str(path))


def test_8192_tokens_need_455_sentinels_and_100_are_refused_with_the_choices():
    documents = random_documents(20_000)
    budgets = {"inputs": 8192, "targets": 8192}
    with pytest.raises(ValueError, match=r"denoiser 'r1' needs 455 sentinels for a chunk.*tokens, but the vocabulary has 100"):
        denoise(documents, budgets, T5GEMMA2[0], BYTES, modes=MODES)
    vocabulary, modes = byte_vocabulary(sentinels=455)
    examples = denoise(documents, budgets, T5GEMMA2[0], vocabulary, modes=modes)
    special = special_for(T5GEMMA2[0], vocabulary, modes)
    assert restore_all(examples, T5GEMMA2[0], special) == documents[0]
    capped = denoise(documents, budgets, T5GEMMA2[0], BYTES, modes=MODES, chunk_tokens=2000)
    assert len(restore(capped[0], T5GEMMA2[0], special_for(T5GEMMA2[0], BYTES, MODES))) == 2000


@pytest.mark.parametrize("cap", [2, 50, 10**6])
def test_chunk_tokens_caps_the_chunks(cap):
    documents = random_documents(500)
    examples = denoise(documents, LENGTHS, T5GEMMA2[3], BYTES, modes=MODES, chunk_tokens=cap)
    special = special_for(T5GEMMA2[3], BYTES, MODES)
    lengths = [len(restore(example, T5GEMMA2[3], special)) for example in examples]
    full = min(cap, chunk_length(T5GEMMA2[3], LENGTHS).length)
    assert lengths[:-1] == [full] * (len(lengths) - 1)
    assert sum(lengths) == 500


def test_a_mode_of_several_tokens_counts_in_the_budget():
    text = "[NLU] "
    denoiser = T5GEMMA2[0]
    (example, *_) = denoise(random_documents(500), LENGTHS, denoiser, BYTES, modes={**MODES, "[R]": text})
    assert bytes(id - 3 for id in example["inputs"][: len(text)].tolist()).decode() == text
    assert len(example["inputs"]) == 64 == chunk_length(denoiser, LENGTHS, mode_tokens=len(text)).inputs


def test_features_without_eos_get_none():
    denoiser = T5GEMMA2[0]
    (example, *_) = denoise(random_documents(500), LENGTHS, denoiser, BYTES, modes=MODES, add_eos=False)
    assert EOS not in example["inputs"].tolist() + example["targets"].tolist()
    assert len(example["inputs"]) == 64 == chunk_length(denoiser, LENGTHS, add_eos=(False, False)).inputs


@pytest.mark.parametrize(("merge_examples", "short_rows"), [(True, 1), (False, 300 - 300 // 69)], ids=["joined", "apart"])
def test_blocks_hold_rows_of_all_lengths_up_to_the_chunk(merge_examples, short_rows):
    documents = random_documents(*range(301))
    blocks = list(
        chunk(
            token_dataset(documents),
            solve_features(LENGTHS, features(BYTES), configured(T5GEMMA2[0], modes=MODES, merge_examples=merge_examples)),
        ).as_numpy_iterator()
    )
    full = chunk_length(T5GEMMA2[0], LENGTHS).length
    lengths = np.concatenate([block["length"] for block in blocks])
    assert lengths.sum() == sum(range(301))
    assert lengths.max() == full
    assert (lengths < full).sum() == short_rows
    for block in blocks:
        for tokens, length in zip(block["tokens"], block["length"]):
            assert (tokens[:length] > 0).all()
            assert (tokens[length:] == 0).all()


@pytest.mark.parametrize(("bad", "merge_examples"), [(361, True), (0, False)], ids=["joined", "apart"])
def test_an_id_that_no_text_may_have_is_refused_by_number(bad, merge_examples):
    documents = [[10, 11, 12], [20, bad, 21]]
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"id beyond the 362 of the vocabulary") as error:
        denoise(documents, LENGTHS, T5GEMMA2[0], BYTES, modes=MODES, merge_examples=merge_examples)
    assert f"[{bad}]" in str(error.value)


@pytest.mark.parametrize("bad", [0, 361, 262, MODES["[X]"], -1, 9999], ids=["pad", "first", "last", "mode", "negative", "beyond"])
def test_such_ids_are_found_among_others(bad):
    reserved = special_for(T5GEMMA2[0], BYTES, MODES).reserved
    find = functools.partial(not_text, reserved=reserved, vocab_size=BYTES.vocab_size)
    assert find(tf.constant([10, 11, 12, 20, bad, 21])).numpy().tolist() == [bad]
    assert find(tf.constant([10, 11, 12, 20, 21])).numpy().tolist() == []


@pytest.mark.parametrize(
    ("sequence_length", "message"),
    [
        (None, "sequence_length must be .*, got None"),
        ({"inputs": 64}, r"denoiser 'r1': sequence_length must be.*got \{'inputs': 64\} without 'targets'"),
        ({"targets": 64}, r"denoiser 'r1': sequence_length must be.*got \{'targets': 64\} without 'inputs'"),
        ({"inputs": 3, "targets": 64}, r"sequence_length must hold what denoiser 'r1'.*of 3, got inputs 3, targets 64"),
    ],
)
def test_bad_lengths_fail_when_the_dataset_is_built(sequence_length, message):
    configuration = configured(T5GEMMA2[0], modes=MODES)
    with pytest.raises(ValueError, match=message):
        denoise_dataset(token_dataset([[5]]), sequence_length, features(BYTES), configuration=configuration)


PLAIN = SpanDenoiser(name="d", mean_span_length=3, noise_density=0.15)


def test_bad_features_fail_when_the_dataset_is_built():
    configuration = configured(T5GEMMA2[0], modes=MODES)
    build = functools.partial(denoise_dataset, token_dataset([[5]]), LENGTHS, configuration=configuration)
    with pytest.raises(ValueError, match=r"output_features must be inputs and targets, got \['targets'\] without \['inputs'\]"):
        build({"targets": seqio.Feature(BYTES)})
    with pytest.raises(ValueError, match="inputs and targets must have one vocabulary"):
        build({"targets": seqio.Feature(BYTES), "inputs": seqio.Feature(seqio.ByteVocabulary(extra_ids=7))})
    with pytest.raises(ValueError, match=r"PassThroughVocabulary\(size=100, eos_id=None\).*with add_eos=True, but has none"):
        denoise([[5]], LENGTHS, PLAIN, seqio.PassThroughVocabulary(size=100), sentinels=range(50, 90))


@pytest.mark.parametrize("setting", [{"merge_examples": False}, {"merge_examples": True}])
def test_a_separator_that_cannot_be_is_refused(setting):
    vocabulary = BYTES if not setting["merge_examples"] else seqio.PassThroughVocabulary(size=100)
    sentinels = range(50, 90) if setting["merge_examples"] else None
    with pytest.raises(ValueError, match="separate_documents needs merge_examples=True and a vocabulary with an EOS, got"):
        denoise([[5]], LENGTHS, PLAIN, vocabulary, add_eos=False, sentinels=sentinels, separate_documents=True, **setting)


def test_a_configuration_with_empty_inputs_is_refused():
    plain = SequentialDenoiser(name="plain", noise_density=0.75, sentinel=False)
    with pytest.raises(ValueError, match=r"denoiser 'plain' must make inputs of at least.*packing pairs with wrong targets"):
        denoise([[5]], LENGTHS, plain, BYTES, modes=MODES, add_eos=False)
    assert denoise([[5]], LENGTHS, plain, BYTES, modes=MODES)[0]["inputs"].tolist() == [EOS]


def test_documents_of_one_static_length_and_of_int64_pass():
    tokens = np.random.default_rng(0).integers(3, 259, size=(10, 50))
    dataset = tf.data.Dataset.from_tensor_slices({"targets": tokens, "other": np.arange(10)})
    denoiser = T5GEMMA2[1]
    examples = denoise_dataset(dataset, LENGTHS, features(BYTES), configuration=configured(denoiser, modes=MODES))
    restored = restore_all(examples.as_numpy_iterator(), denoiser, special_for(denoiser, BYTES, MODES))
    assert restored == tokens.ravel().tolist()


def test_noise_is_new_for_each_seed_denoiser_and_content_and_the_same_otherwise():
    documents = random_documents(1900)  # a block of chunks, whose tokens decide its noise
    denoiser, twin = (SpanDenoiser(name=name, mean_span_length=3, noise_density=0.15, mode="[R]") for name in ("a", "b"))

    def positions(documents, denoiser, seed):
        sentinels = special_for(denoiser, BYTES, MODES).sentinels
        examples = denoise(documents, LENGTHS, denoiser, BYTES, seed=seed, modes=MODES)
        return [np.flatnonzero(np.isin(example["inputs"], sentinels)).tolist() for example in examples]

    same = positions(documents, denoiser, 0)
    assert positions(documents, denoiser, 0) == same
    others = {
        "seed": positions(documents, denoiser, 1),
        "denoiser": positions(documents, twin, 0),
        "tokens": positions([[3 + (documents[0][0] - 2) % 256, *documents[0][1:]]], denoiser, 0),
    }
    for name, other in others.items():
        equal = np.mean([a == b for a, b in zip(same, other)])
        assert equal < 0.05, f"another {name} must draw other noise; {equal:.0%} of {len(same)} chunks are masked alike"


@pytest.mark.parametrize("denoiser", [T5GEMMA2[0], SEQUENTIAL[2]], ids=denoiser_id)  # of equal lengths, and of drawn ones
def test_a_plain_seqio_task_takes_the_preprocessors_as_they_are(denoiser):
    """Another's own task, with stock SeqIO around the preprocessors."""
    output_features = features(BYTES)
    task = seqio.Task(
        "own_task",
        source=seqio.FunctionDataSource(
            lambda split, shuffle_files, seed=None: tf.data.Dataset.from_tensor_slices(
                {"text": ["one document", "and another one"] * 40}
            ),
            splits=["train"],
        ),
        preprocessors=[
            functools.partial(tokenize, configuration=CorpusConfiguration()),
            functools.partial(denoise_dataset, configuration=configured(denoiser, modes=MODES)),
        ],
        output_features=output_features,
    )
    examples = list(task.get_dataset(LENGTHS, split="train", shuffle=False, seed=1).as_numpy_iterator())
    special = special_for(denoiser, BYTES, MODES)
    restored = restore_all(examples, denoiser, special)
    assert BYTES.decode(restored) == "one documentand another one" * 40
    assert denoiser.noise_counts(len(restore(examples[0], denoiser, special)))[1] >= 1


@pytest.mark.parametrize(("merge_examples", "separate_documents"), [(True, False), (True, True), (False, False)])
def test_documents_in_batches_make_the_chunks_of_documents_one_by_one(merge_examples, separate_documents):
    """Empty documents among them, and batches without any token."""
    documents = [[5] * 3, [], [6] * 200, [7], [], [], [8] * 90]
    configuration = configured(T5GEMMA2[0], modes=MODES, merge_examples=merge_examples, separate_documents=separate_documents)
    solution = solve_features(LENGTHS, features(BYTES), configuration)
    one_by_one = chunk(token_dataset(documents), solution)
    batches = chunk(token_dataset(documents).ragged_batch(2), solution)
    rows = [
        [row[:length].tolist() for block in blocks.as_numpy_iterator() for row, length in zip(block["tokens"], block["length"])]
        for blocks in (one_by_one, batches)
    ]
    assert rows[0] == rows[1]
    assert sum(map(len, rows[0])) == 294 + 4 * separate_documents


def with_mode_before(example, vocabulary, **arguments):
    dataset = prepend_mode(tf.data.Dataset.from_tensors(example), features(vocabulary), **arguments)
    return next(dataset.as_numpy_iterator())


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("tokens", [[], [7], [7, 8, 9]])
def test_a_mode_goes_before_the_inputs_and_all_else_stays(tokens, dtype):
    vocabulary = default_vocabulary()
    mode = special_tokens(vocabulary, "[X]").mode
    example = {"inputs": np.array(tokens, dtype), "targets": np.array([5], np.int32), "note": b"kept"}
    found = with_mode_before(example, vocabulary, mode="[X]")
    assert found["inputs"].dtype == dtype
    assert found["inputs"].tolist() == [*mode, *tokens]
    assert found["targets"].tolist() == [5]
    assert found["note"] == b"kept"


def test_a_mode_before_the_inputs_may_be_an_id_or_a_text():
    example = {"inputs": np.array([7], np.int32)}
    assert with_mode_before(example, BYTES, mode="[R]", modes=MODES)["inputs"].tolist() == [259, 7]
    as_text = with_mode_before(example, BYTES, mode="[R]", modes={"[R]": "[NLU] "})["inputs"].tolist()
    assert as_text == [*BYTES.encode("[NLU] "), 7]


@pytest.mark.parametrize(
    ("example", "mode", "message"),
    [
        ({"targets": [1]}, "[R]", r"its examples must have a feature inputs, before.*\['targets'\]\. Name the feature inputs"),
        ({"inputs": "a text"}, "[R]", r"inputs must be \[tokens\] of integers for a mode to go before them, got"),
        ({"inputs": [[1]]}, "[R]", r"inputs must be \[tokens\] of integers for a mode to go before them, got"),
        ({"inputs": [1]}, "[Q]", r"mode '\[Q\]' must be a piece of.*, got a text of 3 tokens: \(1882, 343, 1148\)"),
    ],
)
def test_what_has_no_place_for_a_mode_is_refused(example, mode, message):
    with pytest.raises(ValueError, match=message):
        with_mode_before(example, default_vocabulary(), mode=mode)


def test_what_datasets_share_is_traced_once():
    traced = []

    def plus(number, *, added):
        traced.append(added)
        return number + added

    for added, wanted in ((1, [1, 2]), (1, [1, 2]), (5, [5, 6])):
        function = traced_once(plus, added=added)
        dataset = tf.data.Dataset.range(2).map(lambda number, function=function: function(number))
        assert list(dataset.as_numpy_iterator()) == wanted
    assert traced == [1, 5]
