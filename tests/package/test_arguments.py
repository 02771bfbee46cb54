"""No function takes more than six arguments by position: a call of more cannot be read."""

import ast
import pathlib

import ul2_tasks

PACKAGE = pathlib.Path(ul2_tasks.__file__).parent
FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
MOST = 6
ALLOWED = {  # functions whose arguments others fix
    # Machine code, which takes no keywords.
    *("chat/choices.py _choose", "chat/choices.py _drop_oldest", "chat/choices.py write", "denoisers/pieces.py _cause"),
    *(
        "denoisers/pieces.py find_causes",
        "denoisers/diffusion.py mark_noised",
        "denoisers/diffusion.py write_noised",
        "denoisers/infilling.py write_filled",
        "denoisers/loss_weights.py split_numbered",
        "denoisers/write.py write_examples",
        "store/ngrams.py _scan",
    ),
    # SeqIO's signature.
    "tasks/providers.py get_dataset",
}


def is_long(function: ast.AST) -> bool:
    names = [argument.arg for argument in (*function.args.posonlyargs, *function.args.args)]
    return len(names) - (names[:1] in (["self"], ["cls"])) > MOST


def test_no_function_takes_more_than_six_arguments_by_position():
    found = {
        f"{path.relative_to(PACKAGE).as_posix()} {getattr(node, 'name', 'lambda')}"
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, FUNCTIONS) and is_long(node)
    }
    assert found == ALLOWED, "what is listed and is no more goes from the list"
