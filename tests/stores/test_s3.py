"""What is read from S3 and written there is, byte for byte, what it is on a disk, also where requests fail."""

import contextlib
import hashlib
import itertools
import re
import signal
import threading
import time

import fsspec
import pytest
from click.testing import CliRunner

import ul2_tasks
from tests import programs
from tests.stores.object_stores import HOST, error, faults, free_port
from tests.stores.small_corpus import FILES, cached, examples, failure_of, plain, texts, tokens_of
from ul2_tasks.cli import main
from ul2_tasks.corpus.made_of import changes, reads_of
from ul2_tasks.files import systems
from ul2_tasks.files.listing import contents, list_files, stamps
from ul2_tasks.store.read import Store


@pytest.fixture(scope="module")
def remote(bucket, local):
    """The same corpus in a bucket."""
    fsspec.filesystem("s3").put([f"{local}/{number}.jsonl" for number in range(FILES)], f"{bucket}/texts/")
    return f"{bucket}/texts/*.jsonl"


@pytest.fixture(scope="module")
def remote_cache(remote, bucket):
    cached(remote, f"{bucket}/cache")
    return f"{bucket}/cache"


def overwrite(path: str, content: str) -> None:
    fsspec.filesystem("s3", skip_instance_cache=True).pipe(path, content.encode())


def test_a_cache_is_the_same_wherever_it_and_its_corpus_lie(remote, remote_cache, local, bucket, tmp_path):
    expected = tokens_of(f"{local}/cache")
    assert tokens_of(f"{remote_cache}") == expected
    cached(remote, tmp_path)
    cached(f"{local}/*.jsonl", f"{bucket}/from_disk")
    assert tokens_of(tmp_path) == tokens_of(f"{bucket}/from_disk") == expected


def test_a_cache_is_the_same_where_a_fifth_of_the_requests_fails(remote, local, bucket, s3):
    s3.fault = faults(0.2, error(503, "SlowDown"), "reset", "cut", error(500, "InternalError"))
    said = list(itertools.takewhile(bool, (failure_of(remote, f"{bucket}/broken") for _ in range(20))))
    assert all(f"{bucket}/broken/stores_corpus" in each for each in said)  # clients alone write again, and these do not
    assert tokens_of(f"{bucket}/broken") == tokens_of(f"{local}/cache")


def test_a_job_that_was_killed_goes_on(remote, local, bucket, s3):
    script = f"from tests.stores import small_corpus; small_corpus.cached({remote!r}, '{bucket}/killed')"
    written = []

    def killing(request):
        if request.method == "PUT" and "stores_corpus/train" in request.path:
            written.append(request)
        if len(written) > 3 and job.poll() is None:
            job.kill()
            return "reset"
        return None

    s3.fault = killing
    job = programs.start("-c", script)
    job.communicate()
    assert job.returncode == -signal.SIGKILL
    s3.reset()
    assert len(systems.names_in(f"{bucket}/killed/stores_corpus/parts")) > 0
    cached(remote, f"{bucket}/killed")
    assert tokens_of(f"{bucket}/killed") == tokens_of(f"{local}/cache")
    assert not systems.exists(f"{bucket}/killed/stores_corpus/parts")


def ul2(*arguments) -> str:
    done = CliRunner().invoke(main, list(map(str, arguments)), env={"COLUMNS": "200"})
    assert done.exit_code == 0, (done.stderr, done.exception)
    return done.stdout


def test_commands_say_of_a_cache_in_s3_what_they_say_of_one_on_a_disk(remote, local, bucket):
    said = {}
    for name, files, output in (("nearly", f"{local}/*.jsonl", f"{local}/by_command"), ("remote", remote, f"{bucket}/by_command")):
        corpus = [name, "--corpus", files, "--vocabulary", "bytes"]
        run = [*corpus, "--cache", output, "--lengths", "64,64", "--batch_size", 4]
        ul2("cache", *corpus, "--output", output)
        found = [
            ul2("verify", output),
            ul2("show", *run, "--step", 3, "--json"),
            ul2("find", *run, "--document", 7),
            ul2("audit", *run, "--until", 20, "--json"),
        ]
        folder = files.removesuffix("/*.jsonl")
        said[name] = [text.replace(output, "OUTPUT").replace(folder, "CORPUS").replace(name, "NAME") for text in found]
    assert said["remote"] == said["nearly"]


def test_examples_are_the_same(remote, remote_cache, local, s3):
    """Also while requests fail, of which one is not answered at all."""
    s3.fault = faults(0.2, "stall", *[error(503, "SlowDown"), "reset", "cut"] * 100)
    found, expected = examples(remote, remote_cache), examples(f"{local}/*.jsonl", f"{local}/cache")
    assert len(found) == len(expected)
    assert list(map(plain, found[:40])) == list(map(plain, expected[:40]))
    assert plain(found[len(found) - 1]) == plain(expected[len(found) - 1])


WORKERS = """
import hashlib, multiprocessing, sys
from tests.stores import small_corpus

def told(found, numbers):
    return hashlib.sha256(repr([small_corpus.plain(found[number]) for number in numbers]).encode()).hexdigest()

if __name__ == "__main__":
    found = small_corpus.examples({files!r}, {cache!r})
    alone = told(found, range(60))  # the parent has threads and blocks before it forks
    for method in ("fork", "spawn"):
        with multiprocessing.get_context(method).Pool(1) as pool:
            assert pool.apply_async(told, (found, range(60))).get(120) == alone, method
    print(alone)
"""


def test_workers_that_are_forked_and_spawned_read_the_same(remote, remote_cache, local, tmp_path):
    path, expected = tmp_path / "workers.py", examples(f"{local}/*.jsonl", f"{local}/cache")
    path.write_text(WORKERS.format(files=remote, cache=remote_cache))
    done = programs.run(path)
    assert done.returncode == 0, done.stderr
    told = repr([plain(expected[number]) for number in range(60)])
    assert done.stdout.strip() == hashlib.sha256(told.encode()).hexdigest()


def test_the_indexes_of_pairs_are_read_side_by_side(remote_cache, s3):
    """No answer comes before there are as many requests as pairs: those of one pair are asked for one after the other."""
    together = threading.Barrier(FILES, timeout=10)
    s3.before = lambda request: together.wait() if request.path.endswith(".idx") and request.range else None
    prefixes = sorted(f"{remote_cache}/stores_corpus/{name[:-4]}" for name in systems.names_in(f"{remote_cache}"))
    Store.open([prefix for prefix in dict.fromkeys(prefixes) if prefix.endswith("-of-00003")])


def test_many_files_cost_few_requests(bucket, s3):
    system = systems.file_system(bucket)[0]
    system.pipe({f"{bucket}/many/part-{number:03}.txt": b"a" for number in range(40)} | {f"{bucket}/many/other": b"a"})
    system.pipe({f"{bucket}/days/{number:02}/part.jsonl": texts(number).encode() for number in range(20)})
    for pattern in ("many/part-*.txt", "many/*.txt", "many", "man*/part-*.txt", "days/*/*.jsonl", "days"):
        s3.reset()
        paths = list_files(f"{bucket}/{pattern}")
        assert len(paths) == {"many": 41, "days/*/*.jsonl": 20, "days": 20}.get(pattern, 40)
        assert len(s3.requests) <= 4, s3.requests
    s3.reset()
    source = ul2_tasks.open_source(f"{bucket}/days/*/*.jsonl")
    before = reads_of(source)
    assert len(s3.requests) <= 6, "a list, and the fields of the first file"
    overwrite(f"{bucket}/days/07/part.jsonl", texts(1))
    assert changes(before, reads_of(source))[0].startswith(f"{bucket}/days/07/part.jsonl was")
    paths = list_files(f"{bucket}/many/*.txt")
    for ask in (contents, stamps, systems.sizes):
        s3.reset()
        ask(paths)
        assert [request.is_list for request in s3.requests] == [True]
    assert stamps(paths) == [stamps([path])[0] for path in paths], "one that is asked for alone"


@pytest.mark.parametrize("size", [1, 6 << 20], ids=["one request", "several parts"])
def test_a_file_that_is_not_written_to_its_end_is_not_there(bucket, size, monkeypatch):
    system = systems.file_system(bucket)[0]
    monkeypatch.setattr(system, "default_block_size", 5 << 20)
    overwrite(f"{bucket}/before", "before")
    for path in (f"{bucket}/before", f"{bucket}/new"):
        with contextlib.suppress(KeyboardInterrupt), systems.open_to_write(path) as file:
            file.write(bytes(size))
            raise KeyboardInterrupt
    assert (systems.read(f"{bucket}/before"), systems.exists(f"{bucket}/new")) == (b"before", False)


def test_what_changes_while_a_job_reads_it_is_told(remote, bucket, s3, tmp_path):
    """A file that was read already, and one that is about to be read."""
    folder = f"{bucket}/changing"
    for number in range(FILES):
        overwrite(f"{folder}/{number}.jsonl", texts(number))
    for read, changed, before in ((2, 0, 0), (0, 2, 1)):  # the first file is read for its fields before the job begins
        seen = []

        def change(request, read=read, changed=changed, before=before, seen=seen):
            if request.method == "GET" and request.path.endswith(f"{read}.jsonl"):
                seen.append(request)
                if len(seen) == before + 1:
                    overwrite(f"{folder}/{changed}.jsonl", texts(10 + read))

        s3.before = change
        with pytest.raises(RuntimeError, match=rf"changed during the job: \S+/{changed}\.jsonl"):
            cached(f"{folder}/*.jsonl", tmp_path / str(read))
        s3.reset()
    for read in (0, 2):
        cached(f"{folder}/*.jsonl", tmp_path / str(read))
    (tmp_path / "texts").mkdir()
    for number, of in enumerate((12, 1, 10)):
        (tmp_path / f"texts/{number}.jsonl").write_text(texts(of))
    cached(f"{tmp_path}/texts/*.jsonl", tmp_path / "expected")
    assert tokens_of(tmp_path / "0") == tokens_of(tmp_path / "2") == tokens_of(tmp_path / "expected")


def test_what_changes_while_it_is_read_is_told(bucket, s3, monkeypatch):
    path = f"{bucket}/replaced.txt"
    monkeypatch.setattr(type(systems.file_system(bucket)[0]), "default_block_size", 1 << 16)
    overwrite(path, "a" * (1 << 20))

    def read_while_it_is_replaced() -> None:
        with systems.open_to_read(path) as file:
            file.read(10)
            overwrite(path, "b" * (1 << 20))
            file.read()

    with pytest.raises(OSError, match=rf"{path} was changed while it was read"):
        read_while_it_is_replaced()


REFUSALS = {
    "wrong key": error(403, "InvalidAccessKeyId"),
    "wrong secret": error(403, "SignatureDoesNotMatch"),
    "expired": error(400, "ExpiredToken"),
    "not allowed": error(403, "AccessDenied"),
}


def failed(*arguments) -> str:
    done = CliRunner().invoke(main, list(map(str, arguments)), env={"COLUMNS": "200"})
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1), (done.stderr, done.exception)
    assert "a bug in" not in done.stderr
    return done.stderr


@pytest.mark.parametrize("refusal", REFUSALS)
@pytest.mark.parametrize("method", ["GET", "PUT"])
def test_what_is_refused_is_one_sentence_with_the_object_at_once(remote, remote_cache, bucket, s3, refusal, method, tmp_path):
    s3.fault = lambda request: REFUSALS[refusal] if request.method == method else None
    began = time.monotonic()
    if method != "PUT":
        said = failed("cache", "refused", "--corpus", remote, "--vocabulary", "bytes", "--output", tmp_path)
        assert f"{bucket}/texts" in said
        assert f"{bucket}/cache" in failed("verify", f"{remote_cache}/stores_corpus")
        with pytest.raises(OSError, match=f"{bucket}/cache"):
            examples(remote, remote_cache)
    (tmp_path / "a.jsonl").write_text('{"text": "one"}\n')
    corpus = ["--corpus", tmp_path / "a.jsonl", "--vocabulary", "bytes"]
    said = failed("cache", "refused", *corpus, "--output", f"{bucket}/out")
    assert f"{bucket}/out" in said
    assert time.monotonic() - began < 20


def test_a_server_that_is_down_is_one_sentence_with_the_object(remote, remote_cache, bucket, s3, monkeypatch, tmp_path):
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{HOST}:{free_port()}")
    systems.file_system(bucket)[0].clear_instance_cache()
    try:
        assert f"{bucket}/texts" in failed("cache", "down", "--corpus", remote, "--vocabulary", "bytes", "--output", tmp_path)
        assert f"{bucket}/cache" in failed("verify", f"{remote_cache}/stores_corpus")
        with pytest.raises(OSError, match=f"{bucket}/cache"):
            examples(remote, remote_cache)
    finally:
        systems.file_system(bucket)[0].clear_instance_cache()


def test_a_bucket_that_is_not_there_is_named_and_not_made(remote, s3, tmp_path):
    said = failed("cache", "lost", "--corpus", "s3://no-such-bucket/*.jsonl", "--vocabulary", "bytes", "--output", tmp_path)
    assert "s3://no-such-bucket/*.jsonl" in said
    said = failed("cache", "lost", "--corpus", remote, "--vocabulary", "bytes", "--output", "s3://no-such-bucket/out")
    assert "s3://no-such-bucket/out/lost_corpus" in said
    assert "no-such-bucket" not in systems.file_system(remote)[0].ls("", refresh=True)


def test_keys_that_expire_during_a_job_are_told_at_once_and_it_goes_on_with_others(remote, local, bucket, s3):
    asked = itertools.count()
    s3.fault = lambda request: error(400, "ExpiredToken") if next(asked) > 50 else None
    began = time.monotonic()
    assert re.search(rf"{bucket}/\S+ must be .*\bkeys\b", failure_of(remote, f"{bucket}/expiring"))
    assert time.monotonic() - began < 20
    s3.reset()
    cached(remote, f"{bucket}/expiring")
    assert tokens_of(f"{bucket}/expiring") == tokens_of(f"{local}/cache")


def test_a_job_asks_seldom(remote, bucket, s3):
    """More than that for each shard, and not for each moment: a look at the shards is a request."""
    cached(remote, f"{bucket}/seldom")
    assert len(s3.requests) < 25 * (FILES + 1)
    s3.reset()
    cached(remote, f"{bucket}/seldom")
    assert len(s3.requests) < 25
