"""What documents text files give: counts that show whether the choice of line, paragraph or file is the right one."""

import dataclasses
import gzip

from ul2_tasks.sources.memory import embedded_documents
from ul2_tasks.sources.survey import Survey, survey, ways


def test_documents_are_counted_by_hand():
    texts = ["One sentence.", "", "a line that", "goes on here, and", " \t\n", "Heading", "“Quoted.”", "small but whole."]
    found = survey(texts, encode=str.split)
    assert found == Survey(documents=8, blank=2, median_tokens=2)
    nothing = Survey(documents=0, blank=0, median_tokens=0)
    assert survey([], encode=str.split) == nothing
    assert survey(["", " "], encode=str.split) == dataclasses.replace(nothing, documents=2, blank=2)


def test_lines_of_wrapped_prose_are_short_and_blank(tmp_path):
    documents = [" ".join(text.split()) for text in embedded_documents()[:60]]
    (tmp_path / "wrapped.txt").write_text("\n\n".join(wrapped(text) for text in documents))
    (tmp_path / "lines.txt").write_text("\n".join(documents))
    found = ways([str(tmp_path / "wrapped.txt")])
    assert found["paragraph"].documents == 60
    assert found["line"].blank == 59
    assert found["line"].median_tokens < 20 < 60 < found["paragraph"].median_tokens < found["file"].median_tokens
    whole = ways([str(tmp_path / "lines.txt")])["line"]
    assert (whole.documents, whole.blank) == (60, 0)


def test_of_large_and_of_many_files_the_first_megabyte_is_read(tmp_path):
    with gzip.open(tmp_path / "large.txt.gz", "wb") as file:
        file.write(b"a line of text\n" * 1_000_000)
    found = ways([str(tmp_path / "large.txt.gz"), str(tmp_path / "nowhere.txt")])
    assert found["line"].documents == -(-(1 << 20) // 15)
    assert found["file"].documents == 1


def test_what_is_not_utf8_is_left_out(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"good\ncaf\xe9\n\nalso good\n")
    found = ways([str(tmp_path / "a.txt")])
    assert found["line"].documents == 3
    assert found["file"].documents == 1
    assert found["paragraph"].documents == 1


def wrapped(text, width=40):
    lines = [""]
    for word in text.split():
        if len(lines[-1]) + len(word) > width:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return "\n".join(filter(None, lines))
