"""The words that users read: of help, messages, errors, public docstrings, gin files, and of the pages that are listed here."""

import ast
import pathlib
import re

import click
import pytest

from ul2_command import main

REPOSITORY = pathlib.Path(__file__).parent.parent

# House words, each beside the field's. CONTRIBUTING.md has the style guide.
BANNED = {
    "anew": "again",
    "mends?|mended": "fix",
    "told(?! apart)": "reported, said",
    "refuse[sd]?": "reject, raise an error, do not support",
    "in a sentence": "with a one-line error",
    "without a word": "silently",
    "by number|by (its|their) numbers?|(has|have|with|no) numbers": "random access, by index",
    "laws?": "check",
    "wanted": "expected",
    "rooms": "layers",
    "one's own": "your own, custom",
    "so many": "that many, N",
    "(?<!there )is no(?! longer)": "is not",
    "(ns|seconds?|bytes?|cents?) a token": "per token",
    "the same line": "the same command",
    "go(es)? on": "resume, continue",
    "where (it|they) lies?": "in place",
    "stands?": "is",
    "pictures?": "image",
}
PAGES = ("README.md", "docs/**/*.md", "docs/tutorial*.py")
SAVED = (  # what manifests and examples have said since version 1
    "in which a sentinel stands for each noise span",
    "a picture of",
)
VERBS = (
    r"(Add|Check|Choose|Count|Exclude|Find|Give|Hold out|Import|Include|Limit|List|Look|Measure|Normalize|Pass|Prepare|Print|Put"
    r"|Raise|Read|Run|Search|Seed|Set|Show|Skip|Split|Stop|Strip|Take|Tokenize|Train|Use|Write)\b"
)


def commands(command: click.Command, parent: click.Context | None = None) -> list[click.Context]:
    """A command and those under it, in a terminal of 80 columns."""
    context = click.Context(command, parent=parent, info_name=command.name if parent else "ul2", terminal_width=80)
    return [context, *(each for inner in getattr(command, "commands", {}).values() for each in commands(inner, context))]


def messages(path: pathlib.Path) -> str:
    """The texts in a module that are no docstrings."""
    tree = ast.parse(path.read_text())
    docstrings = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)}
    constants = (node for node in ast.walk(tree) if isinstance(node, ast.Constant) and node not in docstrings)
    texts = "\n·\n".join(node.value for node in constants if isinstance(node.value, str) and " " in node.value)
    return re.sub("|".join(map(re.escape, SAVED)), "", texts)


def docstrings(path: pathlib.Path) -> str:
    """The docstrings of what the reference lists: functions, and classes with their public methods."""
    found = [node for node in ast.parse(path.read_text()).body if getattr(node, "name", None) in PUBLIC]
    found += [each for node in found for each in getattr(node, "body", ()) if isinstance(node, ast.ClassDef)]
    named = [node for node in found if isinstance(node, ast.ClassDef | ast.FunctionDef)]
    return "\n".join(ast.get_docstring(node) or "" for node in named if node.name == "__init__" or not node.name.startswith("_"))


def prose(page: str) -> str:
    """A page without its code, names to look up, and the targets of its links."""
    page = re.sub(r"^(?!#).*$", "", page, flags=re.MULTILINE) if page.startswith("# %%") else page  # a tutorial: its comments
    return re.sub(r"^```.*?^```$|^:::.*?$|`[^`]*`|(?<=\])\([^)]*\)|(?<=\]:).*", "", page, flags=re.MULTILINE | re.DOTALL)


COMMANDS = {context.command_path: context for context in commands(main)}
PATHS = [path for page in PAGES for path in sorted(REPOSITORY.glob(page))]
PUBLIC = set(re.findall(r"^::: \S+\.(\w+)$", (REPOSITORY / "docs/reference/python.md").read_text(), re.MULTILINE))
MODULES = sorted(REPOSITORY.glob("ul2_*/**/*.py"))
TEXTS = {
    **{f"{name} --help": context.get_help() for name, context in COMMANDS.items()},
    **{str(path.relative_to(REPOSITORY)): messages(path) for path in MODULES if path.name != "example_set.py"},  # texts of records
    **{f"{path.relative_to(REPOSITORY)}, docstrings": docstrings(path) for path in MODULES if docstrings(path)},
    **{
        str(path.relative_to(REPOSITORY)): "\n".join(re.findall(r"#.*", path.read_text()))
        for path in sorted(REPOSITORY.glob("gin/**/*.gin"))
    },
    **{str(path.relative_to(REPOSITORY)): prose(path.read_text()) for path in PATHS},
    **{str(path.relative_to(REPOSITORY)): path.read_text() for path in sorted(REPOSITORY.glob("recipes/*.py"))},
}


@pytest.mark.parametrize("where", TEXTS)
def test_the_words_are_those_of_the_field(where):
    text = re.sub(r"\s+", " ", TEXTS[where])
    for house, field in BANNED.items():
        found = re.search(rf".{{0,40}}\b({house})\b.{{0,40}}", text, re.IGNORECASE)
        assert not found, f"{where}: {found[1]!r} must be {field!r} in: {found[0]}"


def test_each_pattern_of_a_page_has_one():
    assert all(list(REPOSITORY.glob(page)) for page in PAGES)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_starts_with_verbs_and_fits_80_columns(name):
    context = COMMANDS[name]
    options = [option for option in context.command.params if isinstance(option, click.Option) and option.name != "version"]
    for text in (context.command.help, *(option.help for option in options)):
        assert re.match(VERBS, text.strip()), f"{text!r} must start with a verb (VERBS): say the effect, then the default"
    assert max(map(len, context.get_help().splitlines())) <= 80
    assert "..." not in context.get_help().partition("\nCommands:")[2], "a summary is cut"
