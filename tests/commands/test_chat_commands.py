"""The commands with conversations."""

import pytest
import seqio

from tests import programs
from tests.chat.test_register_chat import CONVERSATIONS, write_jsonl
from tests.commands.running import described, ul2


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("talk")
    for number in range(2):
        write_jsonl(folder / f"{number}.jsonl", CONVERSATIONS[number * 40 : number * 40 + 40])
    return folder


@pytest.fixture(scope="module")
def talked(corpus):
    return described(corpus, f"Chat('talked', {str(corpus / '*.jsonl')!r}, id_key='id', validation=0.1)")


@pytest.fixture(scope="module")
def cached(talked, tmp_path_factory):
    folder = tmp_path_factory.mktemp("commands")
    done = ul2("cache", talked, "--output", folder / "cache")
    assert done.exit_code == 0, done.output
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(seqio.utils, "_GLOBAL_CACHE_DIRECTORIES", [])
        yield folder


def test_workers_register_the_conversations_themselves(cached, talked):
    command = ["cache", talked, "--output", cached / "beam", "--workers", 2]
    done = programs.run("-m", "ul2_tasks", *command, cwd=cached)
    assert done.returncode == 0, done.stderr
    names = sorted(path.name for path in (cached / "cache" / "talked_corpus").glob("*.bin"))
    for name in names:
        assert (cached / "beam" / "talked_corpus" / name).read_bytes() == (cached / "cache" / "talked_corpus" / name).read_bytes()
