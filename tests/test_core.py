"""The wall around the core: it needs neither SeqIO nor TensorFlow, and gives what it gives beside them."""

import json
import os
import subprocess
import sys

import core
import pytest
import seqio
from new_process import FOLDERS, TESTS

import ul2_tasks
from ul2_tasks.mixtures import advice


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """What a process makes in which they cannot be imported, and its folder."""
    pytest.importorskip("PIL", reason="the extra images is not installed")
    folder = tmp_path_factory.mktemp("alone")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS.parent), *FOLDERS])}
    done = subprocess.run([sys.executable, TESTS / "core.py", folder], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1]), folder


def test_each_file_of_the_core_is_imported_where_seqio_and_tensorflow_raise(alone):
    """A file that is no door and needs one of them fails in `alone`. A door that needs neither is in the core."""
    assert None not in alone[0].values() or not core.HAS_TORCH
    for room, doors in core.CORE.items():
        for door in doors:
            text = (core.PACKAGE / room / f"{door}.py").read_text()
            assert "import tensorflow" in text or "import seqio" in text or "corpus.view import" in text, (room, door)


def test_it_makes_the_same_beside_them(alone, tmp_path, monkeypatch):
    made, _ = alone
    for name in ("POOL", "POOLS", "FRACTIONS"):  # which `core.commands` sets, here for all tests after it
        monkeypatch.setattr(advice, name, getattr(advice, name))
    assert json.loads(json.dumps(core.main(tmp_path))) == made | {"texts": made["texts"] | {"fingerprint": _fingerprint(tmp_path)}}


def _fingerprint(folder) -> str:
    """Of files in another folder, so another one."""
    return ul2_tasks.Mixture("core", str(folder / "texts.jsonl")).fingerprint()


def test_a_mixture_has_the_examples_of_its_name(alone):
    """As a description, in a process without SeqIO; and registered, with its cache in SeqIO's own directories."""
    made, folder = alone
    name = ul2_tasks.register("core", str(folder / "texts.jsonl"))
    before = seqio.get_global_cache_dirs()
    seqio.set_global_cache_dirs([str(folder / "CACHE")])
    try:
        assert core.digest(ul2_tasks.examples(name, core.LENGTHS, seed=3)[:20]) == made["texts"]["from a cache"]
        assert core.digest(ul2_tasks.examples(name, core.LENGTHS, seed=3, pack=True)[:5]) == made["texts"]["packed"]
        cached = seqio.get_mixture_or_task(name).get_dataset(core.LENGTHS, "train", use_cached=True, seed=3, num_epochs=1)
        ul2_tasks.register("also", denoisers="UL2")
        mixed = ul2_tasks.mix("mixed", {name: 2, "also_mix": 1.5})
        assert core.digest(ul2_tasks.examples(mixed, core.LENGTHS, seed=3)[:20]) == made["texts"]["mixed"]
        first = next(cached.as_numpy_iterator())
        assert first["inputs"].tolist() == ul2_tasks.examples(name, core.LENGTHS, seed=3)[0]["inputs"].tolist()
    finally:
        seqio.set_global_cache_dirs(before)
    assert made["texts"]["from memory"] == made["texts"]["from a cache"]


def test_two_mixtures_are_equal_if_their_arguments_are(tmp_path):
    (tmp_path / "a.txt").write_text("a text\n")
    spec = str(tmp_path / "a.txt")
    source = ul2_tasks.open_source(spec, documents="line")
    same = ul2_tasks.Mixture("one", source), ul2_tasks.Mixture("one", ul2_tasks.open_source(spec, documents="line"))
    assert same[0] == same[1]
    assert hash(same[0]) == hash(same[1])
    assert same[0].fingerprint() == same[1].fingerprint()
    for other in (
        ul2_tasks.Mixture("two", source),
        ul2_tasks.Mixture("one", source, denoisers="UL2"),
        ul2_tasks.Mixture("one", source, "bytes"),
        ul2_tasks.Mixture("one", source, separate_documents=True),
        ul2_tasks.Mixture("one"),
    ):
        assert other != same[0]
    assert ul2_tasks.Mixture("two", source).fingerprint() == same[0].fingerprint(), "a name changes no example"
    assert ul2_tasks.Mixture("one", source, separate_documents=True).fingerprint() != same[0].fingerprint()
