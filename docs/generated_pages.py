"""The pages of the site that are made when it is built, from what they describe, so that they cannot go out of date.

mkdocs.yml names this file as a hook. `pages()` needs no mkdocs; the tests read the same pages by it.
"""

import json
import pathlib
import re
import sys
import textwrap

import click

REPOSITORY = pathlib.Path(__file__).parent.parent
TUTORIALS = {path.stem: path.read_text() for path in sorted((REPOSITORY / "docs").glob("tutorial*.py"))}
_COMMAND = """\
# The command `ul2`

`python -m ul2_tasks` is the same command. [Install and first run](../get_started/first_run.md) shows the commands at work.
Tables and JSON are written to stdout. Progress, what is left out, and errors are written to stderr.

| exit status | when |
|---|---|
| 0 | all that was asked for is done, and checks pass |
| 1 | `doctor` finds a problem, a check of `stats`, `report` or `audit` fails, `lengths` do not fit, or `verify` finds other files |
| 2 | an error: one line on stderr, which says what is expected and what to do. `--debug` shows the traceback |
| 130 | Ctrl-C. `cache` and `export` resume with the same command |

## JSON

`--json` prints one object; `show`, `schedule` and `find --list` print an object per line. Keys may be added in any release.

| command | keys |
|---|---|
{keys}
## Help
"""
WIDTH = 100  # of the help of a command, in characters


def pages() -> dict[str, str]:
    """The Markdown of each generated page, by its path in docs/."""
    return {
        "index.md": _of_the_repository("README.md"),
        "contributing.md": _of_the_repository("CONTRIBUTING.md"),
        "changelog.md": _of_the_repository("CHANGELOG.md"),
        **{f"{name}.md": _tutorial(script) for name, script in TUTORIALS.items()},
        "reference/command.md": _command(),
        "reference/gin.md": _gin_files(),
    }


def on_files(files, config):
    """Adds the pages to the site; mkdocs calls this."""
    from mkdocs.structure.files import File

    for path, text in {**pages(), "llms.txt": llms_txt()}.items():
        files.append(File.generated(config, path, content=text))
    return files


def llms_txt() -> str:
    """The pages by section of the navigation, each with its question, for programs that read (https://llmstxt.org)."""
    settings = (REPOSITORY / "mkdocs.yml").read_text()
    lines = ["# ul2_tasks", "", f"> {re.search('^site_description: (.*)', settings, re.MULTILINE)[1]}"]
    generated = pages()
    for section, title, path in re.findall(r'^  - (.*):$|^      - "?(.*?)"?: (\S+\.md)$', settings, re.MULTILINE):
        if section:
            lines += ["", f"## {section}", ""]
            continue
        text = generated[path] if path in generated else (REPOSITORY / "docs" / path).read_text()
        first = next((part for part in text.split("\n\n")[1:] if re.match(r"[A-Z`*]", part)), "")
        sentence = re.split(r"(?<=[.?])\s", " ".join(re.sub(r"\[([^\]]*)\]\(\S*\)", r"\1", first).split()))[0]
        lines.append(f"- [{title}]({path.removesuffix('.md')}.html): {sentence}")
    return "\n".join(lines) + "\n"


def _of_the_repository(name: str) -> str:
    """A page of the repository's root, whose links start there."""
    text = (REPOSITORY / name).read_text().replace("](docs/", "](")
    for page in ("README", "CONTRIBUTING", "CHANGELOG"):
        text = text.replace(f"]({page}.md", f"]({'index' if page == 'README' else page.lower()}.md")
    return text


def _tutorial(script: str) -> str:
    """The page of a tutorial: its comments as text, its code as blocks."""
    _, *parts = re.split(r"^# %%(.*)\n", script, flags=re.MULTILINE)
    cells = (
        re.sub(r"^# ?", "", content, flags=re.MULTILINE).strip() if mark else f"```python\n{content.strip()}\n```"
        for mark, content in zip(parts[::2], parts[1::2])
    )
    return "\n\n".join(cells) + "\n"


def _command() -> str:
    sys.path.insert(0, str(REPOSITORY))
    from ul2_tasks.cli import main

    return _COMMAND.format(keys=_json_keys()) + "".join(_help(main, "ul2", None))


def _json_keys() -> str:
    """What `--json` prints, as a table: of each command that the golden tests run, which compare the values, too."""
    printed = json.loads((REPOSITORY / "tests" / "golden" / "files" / "commands.json").read_text(encoding="utf-8"))
    return "".join(f"| {name} | {_keys(value[0] if isinstance(value, list) else value)} |\n" for name, value in printed.items())


def _keys(value: dict) -> str:
    """The keys of an object, and of the objects in it."""
    words = []
    for key, inner in value.items():
        items = inner if isinstance(inner, list) else [inner]
        inside = list(dict.fromkeys(name for item in items if isinstance(item, dict) for name in item))
        words.append(f"`{key}`" + (f" ({', '.join(inside)})" if inside and all(name.isidentifier() for name in inside) else ""))
    return ", ".join(words)


def _help(command: click.Command, name: str, parent: click.Context | None) -> list[str]:
    """The sections of a command and of the commands under it."""
    settings = {**command.context_settings, "terminal_width": WIDTH, "max_content_width": WIDTH}
    context = click.Context(command, info_name=name, parent=parent, **settings)
    words = context.command_path
    sections = [f"\n### {words}\n\n```text\n{command.get_help(context)}\n```\n"]
    for inner in getattr(command, "commands", {}).values():
        sections += _help(inner, inner.name, context)
    return sections


def _gin_files() -> str:
    introduction = (
        "# Gin files\n\nEach file begins with its purpose and its command."
        " [Train with t5x](../guides/train_with_t5x.md) helps you choose one.\n"
    )
    folder = REPOSITORY / "gin"
    return introduction + "".join(map(_gin_file, [*sorted(folder.glob("*.gin")), *sorted(folder.glob("models/*.gin"))]))


def _gin_file(path: pathlib.Path) -> str:
    text = path.read_text()
    header = re.match(r"(#.*\n)*", text).group()
    name = path.relative_to(REPOSITORY)
    body = "".join(f"    {line}".rstrip() + "\n" for line in text[len(header) :].strip().splitlines())
    described = re.sub(r"^# ?", "", header, flags=re.MULTILINE).replace("<", "&lt;")  # <extra_id_0> is no tag
    commands = re.compile(r"(?:^ {2,}.*\n)+", re.MULTILINE)
    described = commands.sub(lambda lines: f"```shell\n{textwrap.dedent(lines[0])}```\n", described)
    return f'\n## {name}\n\n{described}\n??? note "All of {name}"\n    ```python\n{body}    ```\n'
