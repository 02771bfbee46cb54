"""`register_pictures`: what texts with pictures become under each denoiser, and what is refused or left out and counted."""

import itertools
import logging

import numpy as np
import pytest
import seqio
from picture_support import A_RUN, AROUND, MODES, RUN, SENTINELS, SPECIAL, VOCABULARY, S, in_memory, picture, read, registered
from support import DENOISERS, denoiser_id, restore, saved_and_resumed

import ul2_tasks
from ul2_tasks.denoising.denoisers import CausalDenoiser, SequentialDenoiser
from ul2_tasks.images.interleaved import PictureRun
from ul2_tasks.vocabulary.special_ids import special_tokens

PICTURES = [picture(colour) for colour in range(0, 250, 50)]
RECORD = ["A picture of a cat that sits: ", PICTURES[0], "It sleeps by day, and it hunts by night.", PICTURES[1], "End."]
LONG = ["x" * 300, PICTURES[2]]
BROKEN = ["Cut off:", PICTURES[3][:-20]]


def ids(text: str) -> list[int]:
    return list(VOCABULARY.encode(text))


def whole(record) -> list[int]:
    return list(itertools.chain.from_iterable(ids(place) if isinstance(place, str) else A_RUN for place in record))


def special_of(denoiser):
    return special_tokens(VOCABULARY, denoiser.mode, SENTINELS, MODES)


@pytest.mark.parametrize("denoiser", [each for each in DENOISERS if each.sentinel], ids=denoiser_id)
def test_texts_are_corrupted_piece_by_piece_and_pictures_are_whole(denoiser):
    name = f"law_{DENOISERS.index(denoiser)}"
    registered(name, RECORD, denoisers=denoiser)
    (example,) = read(f"{name}_mix")
    special = special_of(denoiser)
    assert restore(example, denoiser, special) == whole(RECORD), "nothing is lost, and the sentinels ascend"
    assert example["images"] == PICTURES[:2]
    inputs, targets = example["inputs"][len(special.mode) : -1], np.array(example["targets"][:-1])
    assert not {*RUN.ids} & {*targets}
    spans = np.split(targets, np.flatnonzero(np.isin(targets, SENTINELS)))[1:]
    pieces = cut_at_runs(inputs)
    assert len(pieces) == 3
    for text, piece in zip(RECORD[::2], pieces):
        used = [id for id in piece if id in SENTINELS]
        noise = sum(len(span) - 1 for span in spans if span[0] in used)
        fewest, most = denoiser.noise_range(len(text))
        assert len(used) == denoiser.noise_counts(len(text))[1]
        assert fewest <= noise <= most
        assert len(piece) == len(text) - noise + len(used)


def cut_at_runs(inputs: list[int]) -> list[list[int]]:
    """The texts between whole runs."""
    pieces, rest = [], inputs
    while RUN.start in rest:
        start = rest.index(RUN.start) - len(AROUND)
        assert rest[start : start + len(A_RUN)] == A_RUN
        pieces.append(rest[:start])
        rest = rest[start + len(A_RUN) :]
    return [*pieces, rest]


@pytest.mark.parametrize("sentinel", [True, False])
def test_the_prefix_ends_with_the_last_image(sentinel):
    denoiser = SequentialDenoiser(name="s", noise_density=0.1, mode="[S]", sentinel=sentinel)
    registered(f"last_{sentinel}", RECORD, denoisers=denoiser, split="last_image")
    (example,) = read(f"last_{sentinel}_mix")
    mark = SENTINELS[:1] if sentinel else []
    assert example["inputs"] == [260, *whole(RECORD[:-1]), *mark, 1]
    assert example["targets"] == [*mark, *ids(RECORD[-1]), 1]


def test_other_denoisers_beside_it_have_each_piece():
    registered("beside", RECORD, split="last_image")
    (r1,), (s,) = read("beside_r1"), read("beside_s")
    assert sum(id in SENTINELS for id in r1["targets"]) > 1
    assert s["targets"] == [SENTINELS[0], *ids(RECORD[-1]), 1]


@pytest.mark.parametrize(
    ("record", "settings", "cause"),
    [
        (["A cat.", PICTURES[0]], {"split": "last_image"}, "no text comes after the last picture"),
        (["A cat."], {"split": "last_image"}, "there is no picture after which it could be split"),
        ([PICTURES[0]], {}, "there is no text"),
        (LONG, {}, "its targets are too long: up to 227 tokens, of 120 in sequence_length"),
        (
            [*PICTURES * 3, "Many."],
            {},
            "its inputs are too long: up to 155 tokens, 15 pictures among them, of 120 in sequence_length",
        ),
        (
            ["abc" * 9, PICTURES[0], "def"],
            {"denoisers": SequentialDenoiser(name="s", noise_density=0.5, sentinel=False)},
            "several",
        ),
        (["abcd", PICTURES[0], "efgh"], {"sentinels": [365]}, "too few sentinels: it needs 2, and the vocabulary has 1"),
    ],
    ids=["nothing after", "no picture", "no text", "long text", "many pictures", "no sentinel", "few sentinels"],
)
def test_a_record_that_makes_no_example_is_named_or_counted(record, settings, cause, request, caplog):
    name = f"unfit_{request.node.callspec.id.replace(' ', '_')}"
    good = ["Hi:", PICTURES[0], "It is."] if "sentinels" not in settings and "denoisers" not in settings else [PICTURES[0], "abcd"]
    settings = {"denoisers": S, **settings}
    registered(f"{name}_raise", good, record, **settings)
    with pytest.raises(Exception, match=cause):
        read(f"{name}_raise_mix", (120, 120))
    registered(f"{name}_skip", good, record, unfit="skip", **settings)
    with caplog.at_level(logging.WARNING):
        (example,) = read(f"{name}_skip_mix", (120, 120))
    assert example["images"] == PICTURES[:1]
    assert f"{name}_skip_s: 1 records until now make no example" in caplog.text
    registered(f"{name}_alone", record, unfit="skip", **settings)
    with pytest.raises(ValueError, match="makes no example of split 'train': 1 of its records because"):
        read(f"{name}_alone_mix", (120, 120), num_epochs=None)


def test_an_example_of_exactly_the_budget_is_made():
    registered("exact", RECORD, denoisers=S)
    (example,) = read("exact_s")
    lengths = len(example["inputs"]), len(example["targets"])
    assert read("exact_s", lengths) == [example]
    for shorter in ((lengths[0] - 1, lengths[1]), (lengths[0], lengths[1] - 1)):
        with pytest.raises(Exception, match="too long"):
            read("exact_s", shorter)


@pytest.mark.parametrize(
    ("record", "problem"),
    [
        (BROKEN, "record 1 of split train: the picture is damaged"),
        (["no picture:", b"text"], "record 1 of split train: the picture begins with"),
    ],
)
def test_a_record_with_a_problem_is_named_or_counted(record, problem, request):
    name = f"problem_{len(record[0])}"
    registered(f"{name}_raise", RECORD, record, denoisers=S)
    with pytest.raises(Exception, match=problem):
        read(f"{name}_raise_mix")
    registered(f"{name}_skip", RECORD, record, denoisers=S, on_error="skip")
    assert len(read(f"{name}_skip_mix")) == 1


def test_pictures_are_never_trimmed():
    registered("trim", RECORD, denoisers=S)
    task = seqio.TaskRegistry.get("trim_s")
    for provider in (task, seqio.MixtureRegistry.get("trim_mix")):
        with pytest.raises(ValueError, match=r"sequence_length has \['images'\]"):
            provider.get_dataset({"inputs": 256, "targets": 256, "images": 1}, seed=0)
    with pytest.raises(ValueError, match="sequence_length is None"):
        task.get_dataset(None)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"picture": PictureRun()}, "the vocabulary has 369 ids; give picture"),
        ({"sentinels": [*SENTINELS, 263]}, "263: 'a sentinel'"),
        ({"modes": MODES | {"[S]": [260, 262]}}, "262: \"the mode '\\[S\\]'\""),
        ({"picture": PictureRun(1, 263, 264)}, "1: 'EOS'"),
    ],
    ids=["beyond", "sentinel", "mode", "eos"],
)
def test_the_ids_of_pictures_are_theirs_alone(settings, message, request):
    registered(f"ids_{request.node.callspec.id}", RECORD, denoisers=S, **settings)
    with pytest.raises(ValueError, match=message):
        read(f"ids_{request.node.callspec.id}_mix")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"split": "last"}, "split is 'last', expected one of"),
        ({"unfit": "drop"}, "unfit is 'drop'"),
        ({"on_error": "drop"}, "on_error is 'drop'"),
        ({"denoisers": CausalDenoiser()}, r"denoisers \['lm'\] keep nothing"),
        ({"picture": (1, 2, 3)}, "expected a PictureRun"),
    ],
)
def test_other_arguments_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        registered("refused", RECORD, **settings)


def test_the_same_arguments_change_nothing_and_others_are_named():
    source = in_memory(RECORD)
    assert ul2_tasks.register_pictures("twice", source, VOCABULARY, **SPECIAL) == "twice_mix"
    assert ul2_tasks.register_pictures("twice", in_memory(RECORD), VOCABULARY, **SPECIAL) == "twice_mix"
    with pytest.raises(ValueError, match="split is 'pieces', got 'last_image'"):
        ul2_tasks.register_pictures("twice", source, VOCABULARY, split="last_image", **SPECIAL)


MANY = [[f"Record {n}: ", picture(n), f"It is number {n} of {40 - n % 3}."] for n in range(40)]


def test_an_epoch_has_every_record_once_in_an_order_and_with_noise_of_its_own():
    registered("many", *MANY)
    plain = read("many_r2")
    assert [example["images"] for example in plain] == [[record[1]] for record in MANY]
    shuffled = read("many_r2", shuffle=True)
    assert shuffled != plain
    assert sorted(example["images"] for example in shuffled) == sorted(example["images"] for example in plain)
    assert shuffled == read("many_r2", shuffle=True)
    assert read("many_r2", shuffle=True, seed=1) != shuffled
    two = read("many_r2", num_epochs=2)
    assert two[:40] == plain
    assert two[40:] != plain, "another epoch, other noise"
    hosts = [read("many_r2", shard_info=seqio.ShardInfo(host, 3)) for host in range(3)]
    assert sorted(example["images"] for host in hosts for example in host) == sorted(example["images"] for example in plain)
    others = read("many_x2", shuffle=True)
    assert [each["images"] for each in others] != [each["images"] for each in shuffled], "denoisers read other orders"


def test_the_mixture_has_each_denoiser_at_its_rate():
    registered("rates", *MANY)
    dataset = seqio.MixtureRegistry.get("rates_mix").get_dataset({"inputs": 256, "targets": 256}, seed=0)
    modes = [int(example["inputs"][0]) for example in dataset.take(400).as_numpy_iterator()]
    counts = np.array([modes.count(mode) for mode in MODES.values()])
    assert (abs(counts - [100, 200, 100]) < 45).all()


def test_an_iterator_resumes_in_its_own_pipeline_alone(tmp_path):
    def make(seed=0):
        return seqio.TaskRegistry.get("many_s").get_dataset({"inputs": 256, "targets": 256}, seed=seed, num_epochs=None)

    registered("many", *MANY)
    saved, resumed = saved_and_resumed(make, 25, tmp_path)
    for _ in range(30):
        one, other = next(saved), next(resumed)
        assert all(np.array_equal(one[key], other[key]) for key in one)
    with pytest.raises(Exception, match="saved by another pipeline"):
        saved_and_resumed(iter([make(), make(seed=1)]).__next__, 5, tmp_path)[1].__next__()
