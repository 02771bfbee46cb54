"""`ul2 report`: the page shows examples and statistics as they are, whatever the texts, and needs nothing outside it."""

import dataclasses
import html.parser
import re

import pytest

from ul2_tasks import Mixture
from ul2_tasks.inspect.measure import statistics_of
from ul2_tasks.inspect.report import write_report
from ul2_tasks.inspect.run import Run
from ul2_tasks.inspect.show import show

LENGTHS = {"inputs": 64, "targets": 64}
HOSTILE = "</script><img src=x onerror=alert(1)> &amp; {{ 7 * 7 }} \u202eשלום\n\ttab  日本語"


class Page(html.parser.HTMLParser):
    """The elements of a page, and the text of each pane, segment by segment."""

    def __init__(self, path):
        super().__init__(convert_charrefs=True)
        self.tags, self.panes, self.segment = [], [], None
        self.feed(path.read_text())

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.tags.append((tag, attributes))
        if attributes.get("class") == "pane":
            self.panes.append([])
        if "segment" in attributes.get("class", ""):
            self.segment = attributes
            self.panes[-1].append([attributes["class"].split()[1], "", attributes.get("data-group")])

    def handle_endtag(self, tag):
        self.segment = None

    def handle_data(self, data):
        if self.segment is not None:
            self.panes[-1][-1][1] += data


@pytest.fixture(scope="module")
def measured():
    return statistics_of(Mixture("reported"), LENGTHS, 200)


@pytest.fixture(scope="module")
def samples():
    view, *others = show(Run(Mixture("reported"), LENGTHS, is_beginning=True)).views
    hostile = [dataclasses.replace(part, text=HOSTILE) if part.kind == "text" else part for part in view.features["inputs"]]
    return [dataclasses.replace(view, features={**view.features, "inputs": hostile}), *others]


def test_each_example_is_shown_as_it_is_and_no_text_breaks_out(measured, samples, tmp_path):
    path = write_report(measured, samples, tmp_path / "page.html")
    page = Page(path)
    shown = [[(kind, text, span) for kind, text, span in pane] for pane in page.panes]
    expected = [
        [(part.kind, part.text, None if part.group is None else str(part.group)) for part in feature]
        for sample in samples
        for feature in sample.features.values()
    ]
    assert shown == expected
    assert [tag for tag, _ in page.tags].count("script") == 1
    assert all(attributes.get("src", "data:").startswith("data:") for _, attributes in page.tags), "nothing is loaded"
    assert not [attributes for _, attributes in page.tags if any(name.startswith("on") for name in attributes)]
    spans = [set(re.findall(r'class="segment \w+ (c\d)" data-group="3"', path.read_text()))]
    assert spans == [{"c3"}], "a span and its twin have one colour"


def test_a_page_needs_a_place(measured, tmp_path):
    for path in (tmp_path, tmp_path / "no" / "page.html"):
        with pytest.raises(ValueError, match="page"):
            write_report(measured, [], path)
