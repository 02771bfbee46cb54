"""What earlier releases saved, by `save_release.py`, goes on: checkpoints, states, caches, exports and records of runs."""

from __future__ import annotations

import functools
import json
import pathlib

import pytest
import tensorflow as tf
from conftest import release
from golden_files import differences
from golden_pipelines import CACHED, CHECKPOINTS, FOLDER, digests
from rich.console import Console
from save_release import EXPORTS, as_numpy, rest_of, save_exports, unpack, write_exports
from support import iterate_tuned

from ul2_tasks import read_examples
from ul2_tasks.corpus.build_cache import build
from ul2_tasks.looking.verification import examine

NOT_KEPT = {"ul2_tasks", "versions", "version", "seqio_version", "git_revision"}
BY_NUMBER = ("number", "number_packed_batches")  # whose fingerprints are others since
RELEASES = sorted((FOLDER / "saved").iterdir())


def of_each(kind: str) -> pytest.MarkDecorator:
    """A test for each thing of a kind that a release saved."""
    cases = [(release, name) for release in RELEASES for name in loaded(release, "continuations")[kind] if name not in BY_NUMBER]
    return pytest.mark.parametrize(("saved", "name"), cases, ids=[f"{release.name}-{name}" for release, name in cases])


def loaded(saved: pathlib.Path, name: str):
    return json.loads((saved / f"{name}.json").read_text(encoding="utf-8"))


@pytest.fixture(autouse=True, scope="module")
def as_users_have_it():
    """The package's own sizes, iterators over rewritten graphs, and the folder to which the paths of corpora are relative."""
    with pytest.MonkeyPatch.context() as patch:
        release(patch)
        patch.setattr(tf.data.Dataset, "__iter__", iterate_tuned)
        patch.chdir(FOLDER)
        yield


@pytest.fixture(autouse=True)
def caches(unpacked, monkeypatch, request):
    """Those that the release wrote."""
    caches = unpacked(request.node.callspec.params["saved"], "caches")
    monkeypatch.setattr("seqio.utils._GLOBAL_CACHE_DIRECTORIES", [str(caches)])


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory):
    """A function of a release and of the kind of what it saved; returns a folder with the folders that it saved."""

    @functools.cache
    def unpack_all(saved: pathlib.Path, kind: str) -> pathlib.Path:
        folder = tmp_path_factory.mktemp(kind)
        for path in (saved / kind).glob("*.tar.gz"):
            unpack(path, folder / path.name.removesuffix(".tar.gz"))
        return folder

    return unpack_all


def skip_unless_same_tensorflow(saved: pathlib.Path) -> None:
    """What an iterator with buffers saves is TensorFlow's own."""
    before, now = (version.rpartition(".")[0] for version in (loaded(saved, "versions")["tensorflow"], tf.__version__))
    if before != now:
        pytest.skip(f"TensorFlow {before} saved it, and this is {now}")


@of_each("checkpoints")
def test_a_checkpoint_goes_on(saved, name, unpacked):
    skip_unless_same_tensorflow(saved)
    make, _ = CHECKPOINTS[name]
    iterator = iterate_tuned(make())
    tf.train.Checkpoint(iterator=iterator).read(str(unpacked(saved, "checkpoints") / name / "place")).assert_consumed()
    assert rest_of(map(as_numpy, iterator)) == loaded(saved, "continuations")["checkpoints"][name]


def files_of(folder: pathlib.Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@of_each("caches")
def test_a_cache_is_whole_and_complete(saved, name, unpacked, capsys):
    folder = unpacked(saved, "caches")
    ((_, wrong, counts),) = examine(str(folder / name))
    assert (wrong, counts["documents"]) == ([], loaded(saved, "continuations")["caches"][name])
    before = files_of(folder / name)
    CACHED[name]()
    build(name, str(folder))
    assert f"{name} is complete already" in capsys.readouterr().err
    assert files_of(folder / name) == before


@of_each("caches")
def test_a_cache_that_is_written_now_is_the_same(saved, name, unpacked, tmp_path):
    CACHED[name]()
    build(name, str(tmp_path), console=Console(quiet=True))
    check_same_files(unpacked(saved, "caches") / name, tmp_path / name)


@of_each("exports")
def test_an_export_is_whole_and_read(saved, name, unpacked):
    folder = str(unpacked(saved, "exports") / name)
    ((_, wrong, _),) = examine(folder)
    assert not wrong
    assert digests(read_examples(folder)) == loaded(saved, "continuations")["exports"][name]


@pytest.mark.parametrize("saved", RELEASES, ids=lambda saved: saved.name)
def test_exports_are_complete(saved, unpacked, capsys):
    folder = unpacked(saved, "exports")
    before = files_of(folder)
    write_exports(folder)
    assert capsys.readouterr().err.count("is complete already") == len(EXPORTS) + 2
    assert files_of(folder) == before


@pytest.mark.parametrize("saved", RELEASES, ids=lambda saved: saved.name)
def test_exports_that_are_written_now_are_the_same(saved, unpacked, tmp_path):
    save_exports(tmp_path, [name for name, (_, use_cached) in EXPORTS.items() if use_cached])
    for folder in sorted(tmp_path.iterdir()):
        check_same_files(unpacked(saved, "exports") / folder.name, folder)


def check_same_files(kept: pathlib.Path, found: pathlib.Path) -> None:
    """Compares two folders byte by byte, but for manifests, to which keys may be added, and what Parquet says of its writer."""
    kept, found = files_of(kept), files_of(found)
    assert found.keys() >= kept.keys()
    for name, content in kept.items():
        if name.endswith(".json"):
            assert not list(differences(steady(json.loads(content)), steady(json.loads(found[name])), name))
        elif not name.endswith(".parquet"):
            assert found[name] == content, name


def steady(manifest):
    """A manifest without what another machine or release has otherwise."""
    if isinstance(manifest, list):
        return [steady(value) for value in manifest]
    if not isinstance(manifest, dict):
        return pathlib.Path(manifest).name if str(manifest).startswith("/") else manifest
    changing = {"bytes", "sha256"} if str(manifest.get("file")).endswith(".parquet") else set()
    if "shard" in manifest:  # of a cache, which has tables of origins since schema 4
        manifest = manifest | {"files": [file for file in manifest["files"] if file["file"].endswith((".bin", ".idx"))]}
    changing |= {"schema_version"} if "corpus" in manifest else set()
    return {key: steady(value) for key, value in manifest.items() if key not in NOT_KEPT | changing}
