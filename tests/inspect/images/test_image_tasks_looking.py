"""`ul2 show`, `stats`, `lengths`, `report` and `doctor` of `register_image_text`: what they say of images and of faults."""

import numpy as np
import pytest
from click.testing import CliRunner
from image_support import NOISE, S, image, registered

import ul2_tasks
from ul2_tasks.cli import main
from ul2_tasks.denoisers.denoisers import T5GEMMA2
from ul2_tasks.denoisers.reconstruction import invert
from ul2_tasks.inspect.images.length_table import look_at_image_lengths
from ul2_tasks.inspect.images.measure import look_at_corpus, make_examples, measure_image_tasks
from ul2_tasks.inspect.tasks import image_tasks

LONG = {"inputs": 128, "targets": 128}
RECORDS = [
    ["An image of a cat that sits: ", image(1), "It sleeps by day, and it hunts by night."],
    ["Two images: ", image(2), NOISE, "One is noise."],
]


def ul2(*arguments, columns=600):
    done = CliRunner().invoke(main, list(map(str, arguments)), env={"COLUMNS": str(columns)})
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done


@pytest.fixture(scope="module")
def images():
    return registered("looked_images", *RECORDS, denoisers=[T5GEMMA2[0], S])


@pytest.mark.parametrize("split", [None, "last_image"])
def test_the_law_of_examples(split):
    """They are their records, put together again; each text has the noise tokens and spans of its length, and no image has any."""
    name = registered(
        f"looked_law_{split}", *RECORDS, denoisers=S if split else [T5GEMMA2[0], S], **({"split": split} if split else {})
    )
    tasks = image_tasks(ul2_tasks.description_of(name))
    for task in tasks:
        fit = task.limits(LONG)
        looked = look_at_corpus(task.corpus, "train")
        made = list(make_examples(task, tasks, looked, LONG, seed=0).examples)
        assert made
        for example in made:
            whole = invert({"inputs": example.inputs, "targets": example.targets}, task.denoiser, fit.special)
            assert whole.chunk.tolist() == example.source.tokens.tolist()
            assert len(example.inputs) <= 128 >= len(example.targets)
            ends = np.cumsum(example.source.pieces)
            for number, (length, end) in enumerate(zip(example.source.pieces, ends)):
                noise = whole.is_noise[end - length : end]
                begins = int((noise & ~np.append(whole.is_noise[end - length - 1] if end > length else False, noise[:-1])).sum())
                if fit.recipe.splits_once:
                    wanted = (length, bool(length)) if number == len(ends) - 1 else (0, 0)
                else:
                    wanted = task.denoiser.noise_counts(length) if number % 2 == 0 and length else (0, 0)
                assert (int(noise.sum()), begins) == wanted


@pytest.mark.parametrize(
    ("name", "records", "lengths", "said"),
    [
        ("damaged", [RECORDS[0], ["Cut off:", NOISE[: len(NOISE) // 2]]], "128,128", "train, record 1: the image is damaged"),
        ("too_long", RECORDS, "20,128", "records make no example, because its inputs are too long"),
    ],
)
def test_the_doctor_tells_what_is_wrong(name, records, lengths, said):
    registered(f"looked_{name}", *records, denoisers=S)
    done = ul2("doctor", f"looked_{name}", "--lengths", lengths)
    assert done.exit_code == 1
    assert said in done.stdout


LENGTHS = {"inputs": 64, "targets": 40}
LONGER = [[f"Number <i>{n}</i>: ", image(n), "and on " * (n % 7 + 1), image(1)] for n in range(60)]


@pytest.fixture(scope="module")
def longer():
    return registered("looked_longer", *LONGER, denoisers=T5GEMMA2[::4], on_unusable="skip")


def test_what_is_looked_at_is_what_training_reads(longer):
    """Each task makes an example of each record that all of them can take."""
    statistics = measure_image_tasks(ul2_tasks.description_of(longer), LENGTHS)
    assert {task.examples for task in statistics.tasks} == {len(ul2_tasks.examples(longer, LENGTHS))}


def test_lengths_say_how_full_sequences_are(longer):
    found = look_at_image_lengths(ul2_tasks.description_of(longer), LENGTHS)
    assert [way.name for way in found.ways] == ["now", "half", "double"]
    assert (found.problems, list(found.corpora)) == ([], [f"{longer.removesuffix('_mix')}_corpus"])
    for way in found.ways:
        measured = measure_image_tasks(ul2_tasks.description_of(longer), way.sequence_length)
        for task, other in zip(way.tasks, measured.tasks, strict=True):
            assert (task.task, task.examples, task.left_out) == (other.task, other.examples, other.unusable)
            for key, length in other.lengths.items():
                assert key == "chunk" or (length is None and task.tokens[key] is None) or task.tokens[key] == length.mean
            assert task.fill == pytest.approx(other.fill)
