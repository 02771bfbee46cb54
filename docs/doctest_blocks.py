"""An extension of griffe, which mkdocs.yml names: docstrings are written to be read as they are, and become Markdown here."""

import re

import griffe


class DoctestBlocks(griffe.Extension):
    """Fences each paragraph that begins with `>>>`, and marks names in quotes such as "<unused{}>", which would be tags."""

    def on_object(self, *, obj: griffe.Object, **_: object) -> None:
        if obj.docstring:
            text = re.sub(r"^(>>> (?:.+\n?)+)", r"```pycon\n\1\n```\n", obj.docstring.value, flags=re.MULTILINE)
            obj.docstring.value = re.sub(r'(?<=[\s(])("<\w[^"\n`]*")', r"`\1`", text)
