"""An extension of griffe, which mkdocs.yml names: docstrings are written to be read as they are, and become Markdown here."""

import re

import griffe


class Docstrings(griffe.Extension):
    """Fences examples; marks names in quotes such as "<unused{}>", which would be tags; keeps "a, b: .." together as one name."""

    def on_object(self, *, obj: griffe.Object, **_: object) -> None:
        if obj.docstring:
            text = re.sub(r"^(>>> (?:.+\n?)+)", r"```pycon\n\1\n```\n", obj.docstring.value, flags=re.MULTILINE)
            text = re.sub(r'(?<=[\s(\[])("<\w[^"\n`]*")', r"`\1`", text)
            names = re.compile(r"^ +\w+(, \w+)+:", re.MULTILINE)
            obj.docstring.value = names.sub(lambda match: match[0][:4] + match[0][4:].replace(" ", "\N{NO-BREAK SPACE}"), text)
