"""docs/ten_things.md: its commands, one after the other, print what it says."""

import hashlib
import pathlib
import platform
import re
import shlex

import pytest
from click.testing import CliRunner

from ul2_command import main
from ul2_tasks import embedded_documents

pytestmark = pytest.mark.docs

CORPUS = "4ed468e73aec614f"  # of the page's: the documentation that Python 3.11.7 has
PAGE = (pathlib.Path(__file__).parent.parent / "docs" / "ten_things.md").read_text()


def words(text: str) -> str:
    return re.sub(r"\s+", " ", text)


@pytest.mark.skipif(
    hashlib.sha256("\0".join(embedded_documents()).encode()).hexdigest()[:16] != CORPUS,
    reason=f"the page's numbers are those of another Python's documentation than {platform.python_version()}'s",
)
@pytest.mark.usefixtures("quick_advice")  # its numbers are not shown
def test_each_command_prints_what_the_page_shows(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    headings = re.findall(r"^## (\d+)\. ", PAGE, re.MULTILINE)
    assert headings == [str(number) for number in range(1, 11)]
    printed, shown = "", 0
    for kind, block in re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL):
        if kind == "shell":
            printed = ""
            for line in block.splitlines():
                command, *arguments = shlex.split(line)
                assert command == "ul2"
                done = CliRunner().invoke(main, arguments, env={"COLUMNS": "200"})
                assert done.exit_code == 0, done.output
                printed += words(done.stdout)
        else:
            for line in block.splitlines():
                shown += 1
                assert words(line).strip() in printed, line
    assert shown > 10
