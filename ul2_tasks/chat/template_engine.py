"""Runs the chat templates of Hugging Face tokenizers: Jinja in a sandbox, with the extensions of `transformers`.

A template is a program that somebody else wrote. In the sandbox it cannot change its arguments or reach anything else.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jinja2.ext
import jinja2.nodes
import jinja2.parser
import jinja2.sandbox


class _Generation(jinja2.ext.Extension):
    """The tag `{% generation %}`, which marks the text that the model generates. Assignments in it end with it."""

    tags = frozenset({"generation"})  # type: ignore[assignment]

    def parse(self, parser: jinja2.parser.Parser) -> jinja2.nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        begin, end = (jinja2.nodes.Output([jinja2.nodes.TemplateData(mark)]) for mark in _marks(self.environment))
        return jinja2.nodes.Scope([begin, *body, end]).set_lineno(line)


class _Environment(jinja2.sandbox.ImmutableSandboxedEnvironment):
    marks = ("", "")


def _marks(environment: jinja2.Environment) -> tuple[str, str]:
    return environment.marks if isinstance(environment, _Environment) else ("", "")


def compile_template(
    text: str, variables: Mapping[str, Any], date: datetime.date | None, marks: tuple[str, str] = ("", "")
) -> Callable[[Sequence[Mapping[str, Any]], bool, Mapping[str, Any]], str]:
    """A function that renders messages with a template.

    The function takes the messages, whether to write a generation prompt after them, and more variables. It raises a ValueError
    where the template fails. `variables` are those of the template beside the messages, and `date` is its today. `marks` are
    written before and after the text of a tag `{% generation %}`.

    >>> text = "{% for m in messages %}{% generation %}{{ m.content }}{{ end }}{% endgeneration %}{% endfor %}"
    >>> compile_template(text, {"end": "</s>"}, date=None, marks=("(", ")"))([{"role": "user", "content": "Hi"}], False, {})
    '(Hi</s>)'
    """
    environment = _Environment(trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, "jinja2.ext.loopcontrols"])
    environment.marks = marks
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise
    environment.globals["strftime_now"] = lambda format: _today(date).strftime(format)
    try:
        template = environment.from_string(text)
    except jinja2.TemplateError as error:
        raise ValueError(f"the chat template must be valid Jinja, got an error: {error}") from error

    def render(messages: Sequence[Mapping[str, Any]], add_generation_prompt: bool, settings: Mapping[str, Any]) -> str:
        given = {"tools": None, "documents": None, **variables, **settings}
        try:
            return template.render({**given, "messages": messages, "add_generation_prompt": add_generation_prompt})
        except Exception as error:  # whatever a program may raise
            raise ValueError(f"the chat template must render the messages, got an error: {error}") from error

    return render


def _to_json(value: Any, ensure_ascii=False, indent=None, separators=None, sort_keys=False) -> str:
    """Jinja's own filter escapes what HTML does not allow."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise(message: str) -> None:
    raise jinja2.TemplateError(message)


def _today(date: datetime.date | None) -> datetime.date:
    if date is None:
        raise ValueError(
            "date must be set for a template that writes today's date, because tomorrow the same conversation would have other"
            " tokens. Pass template:FOLDER,date=2026-01-31"
        )
    return date
