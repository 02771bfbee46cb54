"""The same of Google Cloud Storage, as an emulator has it, and of a web server."""

import fsspec
import pytest
from click.testing import CliRunner

from tests.stores.object_stores import error, faults
from tests.stores.small_corpus import FILES, cached, examples, plain, texts, tokens_of
from ul2_tasks.cli import main
from ul2_tasks.files import systems
from ul2_tasks.files.listing import contents, list_files, stamps

BREAKS = (error(503, "SlowDown"), "reset", "cut")


def first_examples(files, output) -> list[dict]:
    return list(map(plain, examples(files, output)[:15]))


@pytest.fixture(scope="module")
def in_gcs(gcs, local) -> str:
    _, bucket = gcs
    fsspec.filesystem("gs").put([f"{local}/{number}.jsonl" for number in range(FILES)], f"{bucket}/texts/")
    return f"{bucket}/texts/*.jsonl"


def test_gcs(gcs, in_gcs, local):
    proxy, bucket = gcs
    cached(in_gcs, f"{bucket}/cache")
    expected = tokens_of(f"{local}/cache")
    assert tokens_of(f"{bucket}/cache") == expected
    assert CliRunner().invoke(main, ["verify", f"{bucket}/cache/stores_corpus"]).exit_code == 0
    proxy.fault = faults(0.05, *BREAKS)  # its client waits for a second after each
    assert first_examples(in_gcs, f"{bucket}/cache") == first_examples(f"{local}/*.jsonl", f"{local}/cache")
    proxy.reset()


def test_gcs_costs_few_requests_and_tells_changes(gcs):
    proxy, bucket = gcs
    proxy.reset()
    system = systems.file_system(bucket)[0]
    system.pipe({f"{bucket}/many/part-{number:02}.txt": b"a" for number in range(20)})
    proxy.reset()
    paths = list_files(f"{bucket}/many/part-*.txt")
    before = stamps(paths), contents(paths)
    assert (len(paths), len(proxy.requests) <= 6) == (20, True), proxy.requests
    assert before[0] == [stamps([path])[0] for path in paths]
    system.pipe(paths[3], b"b")
    assert [number for number, (one, other) in enumerate(zip(before[0], stamps(paths))) if one != other] == [3]
    with pytest.raises(ValueError, match="gs://none/a"):
        list_files("gs://none/a")


def test_a_web_server(web, local, tmp_path):
    proxy, folder = web
    for number in range(FILES):
        (folder / f"{number}.jsonl").write_text(texts(number))
    cached(f"{local}/*.jsonl", folder / "cache")
    files = [f"{proxy.address}/{number}.jsonl" for number in range(FILES)]
    proxy.fault = faults(0.2, *BREAKS)
    cached(files, tmp_path)
    assert tokens_of(tmp_path) == tokens_of(f"{local}/cache")
    cache = f"{proxy.address}/cache"
    assert first_examples(f"{local}/*.jsonl", cache) == first_examples(f"{local}/*.jsonl", f"{local}/cache")
    done = CliRunner().invoke(main, ["verify", f"{cache}/stores_corpus"])
    assert done.exit_code == 0, done.stderr
    proxy.reset()


@pytest.mark.parametrize("status", [403, 404, 500, 503])
def test_what_a_web_server_does_not_give_is_told(web, status):
    """A status of 500 is not a file that is not there."""
    proxy, folder = web
    (folder / "there.txt").write_text("a")
    proxy.fault = lambda request: (status, b"")
    path = f"{proxy.address}/there.txt"
    if status == 404:
        assert not systems.exists(path)
    else:
        with pytest.raises(PermissionError if status == 403 else OSError, match=path):
            systems.exists(path)
    with pytest.raises(OSError, match=path):
        systems.read(path)
    proxy.reset()
