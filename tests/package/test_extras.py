"""What needs an extra says which, where none is installed; and all else works."""

import json
import re

from tests import programs
from tests.package import extras


def test_what_needs_an_extra_names_it_and_all_else_works_without_any(tmp_path):
    done = programs.run("-m", "tests.package.extras", tmp_path, check=True)
    said = json.loads(done.stdout.splitlines()[-1])
    wanted = {name: extra for extra, names in extras.NAMES.items() for name in names.split()}
    for table in (extras.CALLS, extras.COMMANDS):
        wanted |= {each: extra for extra, calls in table.items() for each in calls}
    named = {each: re.search(r"`pip install 'ul2_tasks\[(\w+)\]'`", error) for each, error in said.items()}
    assert {each: found and found[1] for each, found in named.items()} == wanted, said
