"""Pipelines as users run them: in a process with the package's own sizes, and a TensorFlow of which nothing is changed for speed.

`tests/conftest.py` says what is otherwise changed.
"""

import json
import pathlib
import pkgutil
import sys

import new_process
import pipelines
import pytest
import tensorflow as tf
from conftest import SMALL, release
from every_law import folder  # noqa: F401
from pipelines import CHAT, TEXTS, digests, take
from support import iterate_tuned

PIPELINES = {row.name: row for row in (*TEXTS, *CHAT) if row.name in ("text stream", "texts, indexed", "conversations")}
COUNT = 20
PROGRAM = f"import sys; sys.path[:0] = {new_process.FOLDERS}; import test_as_released; test_as_released.read(*sys.argv[1:])"


def read(path: str, phase: str) -> None:
    """What a user's process does: it reads, saves and reads on; or it reads the same, restores, and reads on."""
    assert tf.data.Dataset.__iter__ is iterate_tuned
    assert all(size > SMALL[name] for name, size in sizes().items())
    pipelines.use(pathlib.Path(path))
    given = {}
    for name, row in PIPELINES.items():
        iterator = iter(row.build())
        checkpoint = tf.train.Checkpoint(iterator=iterator)
        begun = digests(take(iterator, COUNT))
        if phase == "whole":
            checkpoint.write(f"{path}/released {name}")
        else:
            del iterator, checkpoint
            iterator = iter(row.build())
            tf.train.Checkpoint(iterator=iterator).read(f"{path}/released {name}").assert_consumed()
        given[name] = [begun, digests(take(iterator, COUNT))]
    json.dump(given, sys.stdout)


def sizes() -> dict[str, int]:
    return {name: pkgutil.resolve_name(name) for name in SMALL}


@pytest.fixture(scope="module")
def told(request) -> dict[str, dict[str, list[list[str]]]]:
    """What one process gives that is not interrupted, and another one, with the states of the first."""
    with pytest.MonkeyPatch.context() as patch:
        release(patch)
        path = request.getfixturevalue("folder")
        done = {phase: new_process.run("-c", PROGRAM, path, phase, check=True) for phase in ("whole", "resumed")}
    return {phase: json.loads(process.stdout.splitlines()[-1]) for phase, process in done.items()}


@pytest.mark.parametrize("name", PIPELINES)
def test_a_new_process_gives_the_same_bytes_and_goes_on(told, name):
    whole, resumed = (told[phase][name] for phase in ("whole", "resumed"))
    assert resumed == whole
    assert len({*whole[0], *whole[1]}) > COUNT
