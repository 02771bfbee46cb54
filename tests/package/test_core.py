"""The wall around the core: it needs neither SeqIO nor TensorFlow, and gives what it gives beside them."""

import json

import pytest

import ul2_tasks
from tests import programs
from tests.package import core


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """What a process makes in which they cannot be imported, and its folder."""
    pytest.importorskip("PIL", reason="the extra images is not installed")
    folder = tmp_path_factory.mktemp("alone")
    done = programs.run("-m", "tests.package.core", folder, check=True)
    return json.loads(done.stdout.splitlines()[-1]), folder


def test_each_file_of_the_core_is_imported_where_seqio_and_tensorflow_raise(alone):
    """A file that is no door and needs one of them fails in `alone`. A door that needs neither is in the core."""
    assert None not in alone[0].values() or not core.HAS_TORCH
    for room, doors in core.CORE.items():
        for door in doors:
            text = (core.PACKAGE / room / f"{door}.py").read_text()
            assert "import tensorflow" in text or "import seqio" in text, (room, door)


def test_it_makes_the_same_beside_them(alone, tmp_path):
    made, _ = alone
    assert json.loads(json.dumps(core.main(tmp_path))) == made | {"names": None} | {
        "texts": made["texts"] | {"fingerprint": _fingerprint(tmp_path)}
    }


def _fingerprint(folder) -> str:
    """Of files in another folder, so another one."""
    return ul2_tasks.Mixture("core", str(folder / "texts.jsonl")).fingerprint()
