"""Each test that needs what the extra `test` does not install has a marker, by which README's test command leaves it out."""

import ast
import pathlib

TESTS = pathlib.Path(__file__).parents[1]
# Packages that are not in the extra `test`, and the marker of the tests that need them.
WITH_TORCH = ("accelerate", "lightning", "megatron", "torch", "torchdata", "torchtitan", "trl")
WITH_T5X = ("airio", "jestimator", "t5x")
OUTSIDE = {**{name: {"torch", "train", "docs"} for name in WITH_TORCH}, **{name: {"t5x"} for name in WITH_T5X}}


def packages_of(node: ast.AST, is_test: bool) -> set[str]:
    """The packages outside that a statement imports, or skips without; a test also those that it looks for."""
    names: list[str] = []
    if isinstance(node, ast.Import):
        names = [each.name for each in node.names]
    elif isinstance(node, ast.ImportFrom) and not node.level:
        names = [node.module or ""]
    elif (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("importorskip", *["find_spec"] * is_test)
    ):
        names = [each.value for each in node.args[:1] if isinstance(each, ast.Constant)]
        names = ["torch" if name.startswith("ul2_tasks.pytorch") else name for name in names]
    return {name.partition(".")[0] for name in names} & OUTSIDE.keys()


def markers_in(nodes: list[ast.expr]) -> set[str]:
    """The markers that expressions name: `pytest.mark.torch`, alone or among others."""
    found = (each for node in nodes for each in ast.walk(node) if isinstance(each, ast.Attribute))
    return {each.attr for each in found if isinstance(each.value, ast.Attribute) and each.value.attr == "mark"}


def unmarked(tree: ast.Module) -> list[str]:
    """The tests, and the modules, that use a package outside and have no marker for it."""
    of_module = markers_in(
        [node.value for node in tree.body if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark"]
    )
    found = []
    for statement in tree.body:
        is_test = isinstance(statement, ast.FunctionDef) and statement.name.startswith("test_")
        marked = of_module | (markers_in(statement.decorator_list) if is_test else set())
        for node in ast.walk(statement):
            # A function that tests share may import a package: without it, a test that is not marked fails.
            shared = isinstance(statement, (ast.FunctionDef, ast.ClassDef)) and not is_test and not isinstance(node, ast.Call)
            needed = set() if shared else packages_of(node, is_test)
            found += [f"{statement.lineno}: {package}" for package in needed if not OUTSIDE[package] & marked]
    return found


def test_what_needs_more_than_the_extra_test_is_marked():
    found = {str(path.relative_to(TESTS)): unmarked(ast.parse(path.read_text())) for path in TESTS.rglob("test_*.py")}
    assert {path: places for path, places in found.items() if places} == {}
