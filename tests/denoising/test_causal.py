"""Causal language modelling: windows of the stream, exact to the token, alone and mixed with the other denoisers."""

import numpy as np
import pytest
import seqio
from hypothesis import given, settings
from hypothesis import strategies as st
from support import byte_vocabulary, denoise, flat

import ul2_tasks
from ul2_tasks import T5GEMMA2, CausalDenoiser, chunk_length
from ul2_tasks.denoising.reconstruction import invert
from ul2_tasks.example_features import DENOISER
from ul2_tasks.looking.texts.measure import measure
from ul2_tasks.mixtures.advice import best_chunk_tokens, best_lengths
from ul2_tasks.sources.memory import texts_in_memory
from ul2_tasks.vocabulary.special_ids import special_tokens

VOCABULARY = byte_vocabulary()[0]
LM = 262  # the id after the three modes of byte_vocabulary
MODES = {"[C]": LM}
EOS = 1
STREAM = [[*range(11, 19)], [*range(21, 24)]]  # 8 tokens and an EOS, 3 tokens and an EOS: 13


def windows(documents, length, **denoiser):
    examples = denoise(documents, {"inputs": 4, "targets": length}, CausalDenoiser(**denoiser), VOCABULARY, modes=MODES)
    assert all(example["inputs"].tolist() == [LM, EOS] for example in examples), "the mode, and nothing else"
    return [example["targets"].tolist() for example in examples]


def test_windows_of_5_in_a_stream_of_13():
    stream = [11, 12, 13, 14, 15, 16, 17, 18, EOS, 21, 22, 23, EOS]
    # A stride of 5, the window's: 13 = 5 + 5 + 3.
    assert windows(STREAM, 5) == [stream[0:5], stream[5:10], stream[10:13]]
    assert windows(STREAM, 5, keep_partial=False) == [stream[0:5], stream[5:10]]
    # A stride of 3: windows start at 0, 3, 6 and 9; that at 6 ends at 11, so two tokens are left for the one at 9,
    # which has 13 - 9 = 4. One at 12 would hold nothing new.
    assert windows(STREAM, 5, stride=3) == [stream[0:5], stream[3:8], stream[6:11], stream[9:13]]
    assert windows(STREAM, 5, stride=3, keep_partial=False) == [stream[0:5], stream[3:8], stream[6:11]]
    # 11 = 5 + 3 + 3 tokens end with a window: nothing is left.
    assert windows([stream[:8], [21]], 5, stride=3) == [stream[0:5], stream[3:8], [17, 18, EOS, 21, EOS]]


def test_documents_begin_with_bos_on_request():
    class WithBos(type(VOCABULARY)):
        bos_id = 2

    vocabulary = WithBos(extra_ids=103)
    examples = denoise(STREAM, {"inputs": 4, "targets": 20}, CausalDenoiser(bos=True), vocabulary, modes=MODES)
    assert [e["targets"].tolist() for e in examples] == [[2, *STREAM[0], EOS, 2, *STREAM[1], EOS]]


def test_documents_apart_have_windows_of_their_own():
    def apart(**denoiser):
        lengths = {"inputs": 4, "targets": 5}
        examples = denoise(STREAM, lengths, CausalDenoiser(**denoiser), VOCABULARY, modes=MODES, merge_examples=False)
        return [example["targets"].tolist() for example in examples]

    one, other = [*STREAM[0], EOS], [*STREAM[1], EOS]
    assert apart() == [one[0:5], one[5:9], other]
    assert apart(stride=3) == [one[0:5], one[3:8], one[6:9], other]
    assert apart(stride=3, keep_partial=False) == [one[0:5], one[3:8]]


@settings(max_examples=3, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 60), max_size=8),
    length=st.integers(2, 40),
    stride=st.integers(1, 40) | st.none(),
    merged=st.booleans(),
)
def test_windows_hold_every_token_and_each_once_as_a_new_one(sizes, length, stride, merged):
    stride = stride and min(stride, length)
    ids = iter(range(10**6))
    documents = [[3 + next(ids) % 250 for _ in range(size)] for size in sizes]
    lengths = {"inputs": 4, "targets": length}
    denoiser = CausalDenoiser(stride=stride)
    examples = denoise(documents, lengths, denoiser, VOCABULARY, modes=MODES, merge_examples=merged)
    found = [example["targets"].tolist() for example in examples]
    ended = [[*document, EOS] for document in documents if document]
    for stream in [flat(ended)] if merged else ended:
        starts = range(0, max(len(stream) - length, 0) + (stride or length), stride or length) if stream else ()
        wanted = [stream[start : start + length] for start in starts]
        assert found[: len(wanted)] == wanted
        found = found[len(wanted) :]
        old = length - (stride or length)
        assert flat([window if number == 0 else window[old:] for number, window in enumerate(wanted)]) == stream
    assert not found
    full = denoise(
        documents, lengths, CausalDenoiser(stride=stride, keep_partial=False), VOCABULARY, modes=MODES, merge_examples=merged
    )
    assert [e["targets"].tolist() for e in full] == [e["targets"].tolist() for e in examples if len(e["targets"]) == length]


@pytest.mark.parametrize("stride", [None, 7, 16])
def test_a_long_stream_is_cut_alike_across_blocks(monkeypatch, stride):
    monkeypatch.setattr("ul2_tasks.denoising.preprocessors.TOKENS_PER_BLOCK", 40)
    documents = [[3 + n % 250 for n in range(size)] for size in range(1, 40)]
    stream = flat([*document, EOS] for document in documents)
    step = stride or 16
    wanted = [stream[start : start + 16] for start in range(0, len(stream) - 16 + step, step)]
    assert windows(documents, 16, stride=stride) == wanted


def test_an_example_is_put_together_again():
    special = special_tokens(VOCABULARY, "[C]", modes=MODES)
    (example,) = denoise(STREAM, {"inputs": 4, "targets": 13}, CausalDenoiser(), VOCABULARY, modes=MODES)
    whole = invert(example, CausalDenoiser(), special)
    assert whole.chunk.tolist() == flat([*document, EOS] for document in STREAM)
    assert whole.is_noise.all()
    assert whole.spans.tolist() == [13]


def test_the_window_is_the_targets_budget():
    chunk = chunk_length(CausalDenoiser(), {"inputs": 2, "targets": 512})
    assert (chunk.length, chunk.noise, chunk.spans, chunk.inputs, chunk.targets) == (512, 512, 1, 2, 512)
    assert chunk_length(CausalDenoiser(), {"targets": 512}).length == 512
    assert chunk_length(CausalDenoiser(), {"inputs": 2, "targets": 512}, chunk_tokens=100).length == 100


@pytest.mark.parametrize(
    ("denoiser", "lengths", "message"),
    [
        (
            CausalDenoiser(stride=6),
            {"inputs": 4, "targets": 5},
            r"denoiser 'lm': stride must be at most 5, the.*got 6, which would skip tokens",
        ),
        (
            CausalDenoiser(),
            {"inputs": 1, "targets": 5},
            r"sequence_length must hold what denoiser 'lm'.*of 2, got inputs 1, targets 5",
        ),
        (CausalDenoiser(), {"inputs": 4}, r"denoiser 'lm': sequence_length must be.*got \{'inputs': 4\} without 'targets'"),
        (
            CausalDenoiser(bos=True),
            {"inputs": 4, "targets": 5},
            r"denoiser 'lm': bos must be False with.*object at.*, whose BOS is None",
        ),
    ],
)
def test_what_does_not_fit_is_said(denoiser, lengths, message):
    with pytest.raises(ValueError, match=message):
        denoise(STREAM, lengths, denoiser, VOCABULARY, modes=MODES)


@pytest.mark.parametrize(
    ("field", "value"), [("stride", 0), ("stride", 2.5), ("stride", True), ("keep_partial", 1), ("bos", "yes"), ("weight", 0)]
)
def test_bad_fields_are_refused(field, value):
    with pytest.raises(ValueError, match=f"CausalDenoiser 'lm': {field} must be .*, got {value!r}"):
        CausalDenoiser(**{field: value})


TEXTS = ["a" * 7, "b" * 3]


@pytest.fixture(scope="module")
def registered():
    return ul2_tasks.register("causal", texts_in_memory(TEXTS), "bytes", [CausalDenoiser(bos=False)])


def test_seqios_decoder_converters_shift_by_one(registered):
    """Ten letters and two EOS in windows of 5."""
    arguments = {"dataset_split": "train", "shuffle": False, "num_epochs": 1}
    rows = list(
        seqio.get_dataset(
            "causal_lm", {"targets": 6}, feature_converter=seqio.LMFeatureConverter(pack=False), **arguments
        ).as_numpy_iterator()
    )
    targets = np.stack([row["decoder_target_tokens"] for row in rows])
    a, b = 100, 101  # ByT5: the byte and three
    assert sorted(flat(targets)) == sorted([a] * 7 + [b] * 3 + [EOS] * 2)
    for row in rows:
        np.testing.assert_array_equal(row["decoder_input_tokens"], [0, *row["decoder_target_tokens"][:-1]])
        np.testing.assert_array_equal(row["decoder_loss_weights"], row["decoder_target_tokens"] > 0)
    (row, *_) = seqio.get_dataset(
        "causal_lm", {"inputs": 3, "targets": 6}, feature_converter=seqio.PrefixLMFeatureConverter(pack=False), **arguments
    ).as_numpy_iterator()
    mode = 262
    np.testing.assert_array_equal(row["decoder_target_tokens"], [mode, EOS, *targets[0], 0])
    np.testing.assert_array_equal(row["decoder_input_tokens"], [0, mode, EOS, *targets[0]])
    np.testing.assert_array_equal(row["decoder_loss_weights"], [0, 0, *[1] * 6, 0])


def test_half_ul2_half_causal_lm():
    name = ul2_tasks.register("half", denoisers=[*T5GEMMA2[::4], CausalDenoiser(weight=5)])
    mixture = seqio.get_mixture_or_task(name)
    special = {task.denoiser.name: (task.denoiser, task.special_tokens()) for task in mixture.tasks}
    assert special["lm"][1].mode == (4096,), "appended to the default vocabulary"
    assert special["r1"][1] == special_tokens(ul2_tasks.default_vocabulary(), "[R]")
    lengths = {"inputs": 64, "targets": 64}
    dataset = mixture.get_dataset(lengths, seed=0, num_epochs=None, passthrough_features=[DENOISER]).take(1000)
    drawn = []
    for example in dataset.as_numpy_iterator():
        drawn.append(example[DENOISER].decode())
        whole = invert(example, *special[drawn[-1]])
        assert whole.is_noise.all() == (drawn[-1] == "lm")
        assert len(example["targets"]) <= 64
    assert abs(drawn.count("lm") - 500) < 4.5 * 1000**0.5 / 2


def test_the_collator_asks_for_all_of_an_example():
    lengths = {"inputs": 4, "targets": 16}
    collate = ul2_tasks.UL2DataCollator(VOCABULARY, lengths, [CausalDenoiser()], modes=MODES, return_tensors="np")
    batch = collate([STREAM[0], STREAM[1]])
    np.testing.assert_array_equal(batch["input_ids"], [[LM, EOS, 0, 0, 0, 0, 0, 0]] * 2)
    np.testing.assert_array_equal(batch["labels"], [STREAM[0], STREAM[1] + [-100] * 5])
    collate = ul2_tasks.UL2DataCollator(
        VOCABULARY, lengths, [CausalDenoiser()], modes=MODES, return_tensors="np", decoder_only=True, pad_to_multiple_of=1
    )
    np.testing.assert_array_equal(collate([STREAM[1]])["labels"], [[-100, -100, *STREAM[1]]])


def test_it_is_measured_and_advised_as_all_others(quick_advice):
    denoisers = [T5GEMMA2[0], CausalDenoiser(weight=5), CausalDenoiser(name="lm_20", stride=20, weight=5)]
    name = ul2_tasks.register("causal_measured", denoisers=denoisers)
    lengths = {"inputs": 48, "targets": 48}
    statistics = measure(name, lengths, examples=100)
    assert statistics.passed, statistics.checks
    for task in statistics.tasks[:2]:
        assert task.task.startswith("causal_measured_lm")
        assert task.corruption_rate == {"expected": 1, "measured": 1}
        assert task.lengths["targets"].min == task.lengths["targets"].max == 48
    advice = best_chunk_tokens(denoisers, lengths)
    assert advice["lm"] >= 2
    assert advice["lm_20"] >= 20
    assert best_lengths(denoisers, lengths)["targets"] > 48, "of this mixture most is targets"


def test_a_vocabulary_without_the_mode_says_so():
    with pytest.raises(ValueError, match=r"mode '\[C\]' must be a piece of.*, got a text of 3 tokens: \(1882, 907, 1148\)"):
        denoise(STREAM, {"inputs": 4, "targets": 5}, CausalDenoiser(), ul2_tasks.default_vocabulary())


def test_no_document_is_no_window():
    assert windows([[], []], 5, stride=3) == []
