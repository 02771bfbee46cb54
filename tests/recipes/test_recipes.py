"""Each recipe says in the same form what it does, and is in the table of the guide."""

import ast
import pathlib
import re

import pytest

REPOSITORY = pathlib.Path(__file__).parent.parent.parent
RECIPES = {path.name: path.read_text() for path in sorted(REPOSITORY.glob("recipes/*.py"))}
GUIDE = (REPOSITORY / "docs/get_started/first_run.md").read_text()


@pytest.mark.parametrize("name", RECIPES)
def test_it_uses_the_public_api_alone(name):
    for node in ast.walk(ast.parse(RECIPES[name])):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("ul2_tasks"):
            assert node.module == "ul2_tasks" or f"::: {node.module}." in REFERENCE, node.module


def test_the_table_has_each_recipe_once():
    assert sorted(re.findall(r"^\| `recipes/(\w+\.py)` \|", GUIDE, re.MULTILINE)) == sorted(RECIPES)


REFERENCE = "".join(page.read_text() for page in (REPOSITORY / "docs/reference").glob("python*.md"))
