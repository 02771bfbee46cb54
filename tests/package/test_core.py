"""The wall around the core: it needs neither SeqIO nor TensorFlow, and gives what it gives beside them."""

import json

import pytest

import ul2_tasks
from tests import programs
from tests.package import core


def test_where_seqio_and_tensorflow_raise_each_file_of_the_core_is_imported_and_makes_what_it_makes_beside_them(tmp_path):
    pytest.importorskip("PIL", reason="the extra images is not installed")
    alone = tmp_path / "alone"
    alone.mkdir()
    done = programs.run("-m", "tests.package.core", alone, check=True)
    made = json.loads(done.stdout.splitlines()[-1])
    made["texts"]["fingerprint"] = _fingerprint(tmp_path)
    assert json.loads(json.dumps(core.main(tmp_path))) == made


def _fingerprint(folder) -> str:
    """Of files in another folder, so another one."""
    return ul2_tasks.Mixture("core", str(folder / "texts.jsonl")).fingerprint()
