"""Attributes that are made when they are first asked for, which may be read from a network."""

import ast
import pathlib
import threading
from concurrent import futures

import ul2_tasks
from ul2_tasks.cached import cached_property

PACKAGE = pathlib.Path(ul2_tasks.__file__).parent


class Slow:
    together = threading.Barrier(2, timeout=20)

    @cached_property
    def value(self) -> list[int]:
        self.together.wait()
        return [7]


def test_values_of_two_objects_are_made_at_once():
    """As one lock for all objects of a class would not let them; a process that is forked meanwhile would wait for ever."""
    both = Slow(), Slow()
    with futures.ThreadPoolExecutor(2) as threads:
        found = list(threads.map(lambda each: each.value, both))
    assert found == [[7], [7]]
    assert found[0] is both[0].value is not found[1]


def test_all_of_the_package_are_such():
    others = {PACKAGE / "cached.py"}  # which makes them
    for path in set(PACKAGE.rglob("*.py")) - others:
        names = {node.attr for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Attribute)}
        assert "cached_property" not in names, path
