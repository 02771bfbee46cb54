"""What commands print for programs, with `--json`."""

from __future__ import annotations

import functools
import json
import shlex

import pytest
from click.testing import CliRunner

from tests.golden.golden_files import check
from tests.golden.golden_pipelines import FOLDER, both, joined, numbered_seen, seen
from ul2_tasks import register_chat
from ul2_tasks.cli import main
from ul2_tasks.images import example_set

TEXT = "golden_described.py:text"
SHORT, TWO = f"{TEXT} --lengths 64,64", "golden --lengths 64,64"  # the second with two denoisers, for what takes long
CHAT = "talk_chat"
REPLY = "talk_prompt_completion"
COMMANDS = {
    "show": f"show {TWO} --json --count 2",
    "show --step": f"show {SHORT} --json --step 3 --batch_size 8 --count 1 --host 1/2",
    "show --step, packed": f"show {SHORT} --json --step 3 --batch_size 2 --packed --count 1",
    "find --list": f"find {SHORT} --list listed.jsonl --batch_size 8",
    "audit": f"audit {SHORT} --json --until 20 --batch_size 8",
    "schedule": "schedule golden_described.py:staged --lengths 64,64 --json",
    "contamination": f"contamination {TEXT} --texts benchmark.jsonl --json",
    "lengths": f"lengths {TWO} --json",
    "doctor": f"doctor {SHORT} --json",
    "chat, show": f"show {CHAT} --json --count 2",
    "chat, doctor": f"doctor {CHAT} --json",
    "chat, stats": f"stats {CHAT} --json",
    "reply, show": f"show {REPLY} --json --count 2",
    "reply, stats": f"stats {REPLY} --json",
    "text and replies, show": "show golden_both --json --count 1 --lengths 512,256",
    "text and replies, stats": "stats golden_both --json --lengths 512,256 --examples 200",
    "pictures, show": "show golden_seen --json --count 1 --lengths 256,192",
    "pictures, doctor": "doctor golden_seen --json --lengths 256,192",
    "pictures, stats": "stats golden_seen --json --lengths 256,192 --examples 50",
    "pictures, show --step": "show golden_numbered_seen --json --step 3 --batch_size 4 --count 1 --lengths 256,192",
    "image rows, show": "show images --json --count 1",
    "image rows, doctor": "doctor golden_described.py:edits --json",
    "image rows, stats": "stats images --json --examples 32",
}


@pytest.fixture(autouse=True, scope="module")
def registered():
    """What no option registers; and the folder to which the paths of corpora are relative."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(FOLDER)
        patch.setattr("seqio.utils._GLOBAL_CACHE_DIRECTORIES", [])
        patch.setattr(example_set, "example_records", functools.cache(example_set.example_records))
        for register in (joined, both, seen, numbered_seen):
            register()
        for format in ("chat", "prompt_completion"):
            register_chat("talk", "corpus/chats.jsonl", train_on="generated", format=format)
        yield


@pytest.fixture
def golden(request):
    return functools.partial(check, update=request.config.getoption("--update-golden"))


def ul2(command: str) -> str:
    done = CliRunner().invoke(main, shlex.split(command))
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    assert done.exit_code < 2, done.output
    return done.stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_json(golden, name):
    golden("commands", name, as_kept(ul2(COMMANDS[name])))


def as_kept(printed: str):
    """JSON, or JSON Lines as a list; without what depends on the machine, and deviations."""
    try:
        return steady(json.loads(printed))
    except json.JSONDecodeError:
        return [steady(json.loads(line)) for line in printed.splitlines()]


# Of the machine, of the release; deviations; and sentences, which are for people.
NOT_KEPT = {"version", "versions", "sd", "deviation", "notes", "found", "share_sentence", "lost"}


def steady(value):
    if isinstance(value, dict):
        kept = {key: steady(item) for key, item in value.items() if key not in NOT_KEPT | {"findings"}}
        return kept | ({"findings": about(value["findings"])} if "findings" in value else {})
    if isinstance(value, list):
        return [steady(item) for item in value]
    if isinstance(value, float):
        return float(f"{value:.5g}")
    return value.replace(f"{FOLDER}/", "") if isinstance(value, str) else value


def about(findings) -> dict[str, list[str]]:
    """What a doctor found, without its sentences; of the installation, which is the machine's, nothing."""
    found: dict[str, list[str]] = {}
    for finding in findings:
        if finding["about"] != "installation":
            found.setdefault(f"{finding['kind']}, {finding['about']}", []).extend(finding["concerns"])
    return found
