"""No function takes more than six arguments by position: a call of more cannot be read."""

import ast
import pathlib

import ul2_tasks

PACKAGE = pathlib.Path(ul2_tasks.__file__).parent
MOST = 6
# Functions whose arguments others fix, each with the reason.
ALLOWED = {
    **dict.fromkeys(
        (
            "ul2_tasks/chat/choices.py _choose",
            "ul2_tasks/chat/choices.py _drop_oldest",
            "ul2_tasks/chat/choices.py write",
            "ul2_tasks/denoisers/pieces.py _cause",
            "ul2_tasks/denoisers/pieces.py find_causes",
            "ul2_tasks/denoisers/infilling.py write_filled",
            "ul2_tasks/denoisers/write.py write_examples",
            "ul2_tasks/store/ngrams.py _scan",
        ),
        "machine code, which takes no keywords",
    ),
    **dict.fromkeys(
        (
            "ul2_tasks/tasks/providers.py get_dataset",
            "ul2_tasks/tasks/providers.py get_task_dataset",
        ),
        "SeqIO's signature",
    ),
}


def by_position(function: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> list[str]:
    names = [argument.arg for argument in (*function.args.posonlyargs, *function.args.args)]
    return names[1:] if names[:1] in (["self"], ["cls"]) else names


def long_ones(path: pathlib.Path) -> set[str]:
    place = path.relative_to(PACKAGE.parent).as_posix()
    functions = (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, FUNCTIONS))
    return {f"{place} {getattr(each, 'name', 'lambda')}" for each in functions if len(by_position(each)) > MOST}


FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
FILES = sorted(PACKAGE.rglob("*.py"))


def test_no_function_takes_more_than_six_arguments_by_position():
    found = set().union(*map(long_ones, FILES))
    assert found == ALLOWED.keys(), "what is listed and is no more goes from the list"
