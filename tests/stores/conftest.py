"""One server of each kind for all tests, each behind a proxy, and clients that do not wait long."""

import json
import uuid

import fsspec
import pytest
from object_stores import Proxy, _free_port, program

from ul2_tasks.files import retries

# Clients wait for less than a stalled answer takes, and leave it to this package to try again.
QUICK = {"config_kwargs": {"retries": {"max_attempts": 0}, "connect_timeout": 2, "read_timeout": 2}}


@pytest.fixture(scope="session")
def s3_server():
    port = _free_port()
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
