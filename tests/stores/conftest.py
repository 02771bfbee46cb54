"""One server of each kind for all tests, each behind a proxy, and clients that do not wait long."""

import json
import uuid

import fsspec
import pytest

from tests.stores.object_stores import Proxy, free_port, program, web_server
from tests.stores.small_corpus import FILES, cached, texts
from ul2_tasks.files import retries

# Clients wait for less than a stalled answer takes, and leave it to this package to try again.
QUICK = {"config_kwargs": {"retries": {"max_attempts": 0}, "connect_timeout": 2, "read_timeout": 2}}


@pytest.fixture(scope="session")
def s3_server():
    port = free_port()
    with program(["-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)], port):
        proxy = Proxy(port)
        yield proxy
        proxy.stop()


@pytest.fixture(scope="module")
def s3_client(s3_server):
    """The client's settings, as a user has them: in the environment, which processes of workers have, too."""
    import s3fs

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", s3_server.address)
        patch.setenv("AWS_ACCESS_KEY_ID", "key")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        patch.setenv("FSSPEC_S3", json.dumps(QUICK))
        patch.setitem(fsspec.config.conf, "s3", QUICK)
        patch.setattr(s3fs.S3FileSystem, "retries", 1)
        patch.setattr(retries, "_WAITS", (0.01, 0.02, 0.05, 0.05))
        s3fs.S3FileSystem.clear_instance_cache()
        yield s3_server
        s3fs.S3FileSystem.clear_instance_cache()


@pytest.fixture
def s3(s3_client):
    """The proxy of the server of S3, which has noted nothing yet, and breaks nothing."""
    s3_client.reset()
    yield s3_client
    s3_client.reset()


@pytest.fixture(scope="module")
def bucket(s3_client) -> str:
    """A bucket that is there, and empty."""
    name = f"bucket-{uuid.uuid4().hex[:8]}"
    fsspec.filesystem("s3").mkdir(name)
    return f"s3://{name}"


@pytest.fixture(scope="module")
def gcs(tmp_path_factory):
    """A bucket of an emulator of Google Cloud Storage, behind a proxy, which is given too."""
    port = free_port()
    command = ["-m", "gcp_storage_emulator", "start", "--host", "127.0.0.1", "--port", str(port), "--in-memory"]
    with program(command, port), pytest.MonkeyPatch.context() as patch:
        proxy = Proxy(port)
        patch.setenv("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")  # which asks Google's server over gRPC
        import gcsfs

        patch.setitem(gcsfs.retry.DEFAULT_RETRY_CONFIG, "initial", 0.01)
        patch.setenv("STORAGE_EMULATOR_HOST", proxy.address)
        options = {"token": "anon", "endpoint_url": proxy.address, "project": "test"}
        patch.setitem(fsspec.config.conf, "gs", options)
        patch.setitem(fsspec.config.conf, "gcs", options)
        patch.setattr(retries, "_WAITS", (0.01, 0.02, 0.05, 0.05))
        gcsfs.GCSFileSystem.clear_instance_cache()
        fsspec.filesystem("gs").mkdir("bucket")
        yield proxy, "gs://bucket"
        gcsfs.GCSFileSystem.clear_instance_cache()
        proxy.stop()


@pytest.fixture(scope="module")
def web(tmp_path_factory):
    """A folder that a web server has, and the proxy before it."""
    folder = tmp_path_factory.mktemp("web")
    with web_server(folder) as port, pytest.MonkeyPatch.context() as patch:
        patch.setattr(retries, "_WAITS", (0.01, 0.02, 0.05, 0.05))
        proxy = Proxy(port)
        yield proxy, folder
        proxy.stop()


@pytest.fixture(scope="session")
def local(tmp_path_factory):
    """A corpus on a disk, with its cache."""
    folder = tmp_path_factory.mktemp("local")
    for number in range(FILES):
        (folder / f"{number}.jsonl").write_text(texts(number))
    cached(f"{folder}/*.jsonl", folder / "cache")
    return folder
