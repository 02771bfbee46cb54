"""`ul2 report`: the page shows examples of any kind as they are, whatever the texts, and needs nothing outside it."""

import dataclasses
import html.parser
import re
import shutil
import subprocess

import pytest

from tests.images.image_support import image, registered
from ul2_tasks import T5GEMMA2, Chat, Mixture, description_of
from ul2_tasks.inspect.measure import statistics_of
from ul2_tasks.inspect.readable import Stretch
from ul2_tasks.inspect.report import write_report
from ul2_tasks.inspect.run import Run
from ul2_tasks.inspect.show import show

LENGTHS = {"inputs": 64, "targets": 64}
HOSTILE = "</script><img src=x onerror=alert(1)> &amp; {{ 7 * 7 }} $title \u202eשלום\n\ttab  日本語"
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


def seen():
    records = [["A cat that sleeps by day, and that hunts by night.", image(n)] for n in range(3)]
    return description_of(registered("reported_seen", *records, denoisers=T5GEMMA2[:1]))


KINDS = {
    "text": lambda: (Mixture("reported"), LENGTHS),
    "chat": lambda: (Chat("reported_talk"), {"tokens": 512}),
    "replies": lambda: (Chat("reported_talk"), {"inputs": 512, "targets": 512}),
    "images": lambda: (seen(), {"inputs": 128, "targets": 128}),
}


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


@pytest.fixture(scope="module", params=KINDS)
def reported(request):
    """Statistics and examples of a kind, one of them with a hostile text."""
    description, lengths = KINDS[request.param]()
    view, *others = show(Run(description, lengths, is_beginning=True), count=2).views
    first, *_ = view.features
    hostile = [dataclasses.replace(part, text=HOSTILE) if part.kind == "text" else part for part in view.features[first]]
    hostile = dataclasses.replace(view, features={**view.features, first: hostile}, place=HOSTILE)
    return statistics_of(description, lengths, 50), [hostile, *others]


def test_each_example_is_shown_as_it_is_and_no_text_breaks_out(reported, tmp_path):
    statistics, views = reported
    path = write_report(statistics, views, tmp_path / "page.html")
    page = Page(path)
    assert [[tuple(part) for part in pane] for pane in page.panes] == [
        [(part.kind, part.text, None if part.group is None else str(part.group)) for part in stretches]
        for view in views
        for stretches in view.features.values()
    ]
    assert [tag for tag, _ in page.tags].count("script") == 1
    assert all(attributes.get("src", "data:").startswith("data:") for _, attributes in page.tags), "nothing is loaded"
    assert not [attributes for _, attributes in page.tags if any(name.startswith("on") for name in attributes)]
    for group in {part.group for view in views for stretches in view.features.values() for part in stretches if part.group}:
        colours = set(re.findall(rf'class="segment \w+ (c\d)" data-group="{group}"', path.read_text()))
        assert colours == {f"c{group % 8}"}, "a span and its twin have one colour"


@pytest.mark.parametrize(("text", "direction"), [("שלום means peace", "ltr"), ("NATO היא ברית צבאית", "rtl")])
def test_a_pane_has_the_direction_of_most_letters(reported, text, direction, tmp_path):
    statistics, (view, *_) = reported
    parts = {key: [Stretch(text, "text", None, 3)] for key in view.features}
    page = Page(write_report(statistics, [dataclasses.replace(view, features=parts)], tmp_path / "page.html"))
    assert {attributes["dir"] for _, attributes in page.tags if attributes.get("class") == "pane"} == {direction}


@pytest.mark.skipif(BROWSER is None, reason="there is no browser")
@pytest.mark.parametrize("width", [1200, 500])
def test_a_browser_lights_twins_and_nothing_is_wider_than_the_page(reported, tmp_path, width):
    statistics, views = reported
    path = write_report(statistics, views, tmp_path / "page.html")
    probe = """<script>
        const one = document.querySelector("[data-group]");
        one.dispatchEvent(new PointerEvent("pointerover", {bubbles: true}));
        const twins = one.closest("article").querySelectorAll(`[data-group="${one.dataset.group}"]`);
        const lit = document.querySelectorAll(".twin");
        document.title = [twins.length, lit.length, document.documentElement.scrollWidth - window.innerWidth].join();
    </script></html>"""
    path.write_text(path.read_text().replace("</html>", probe))
    options = "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'browser'}", f"--window-size={width},900"
    done = subprocess.run([BROWSER, *options, "--dump-dom", path.as_uri()], capture_output=True, text=True, timeout=120)
    twins, lit, wider = map(int, re.search(r"<title>(-?\d+),(\d+),(-?\d+)</title>", done.stdout).groups())
    assert twins == lit > 0
    assert wider <= 0


def test_a_page_needs_a_place(reported, tmp_path):
    for path in (tmp_path, tmp_path / "no" / "page.html"):
        with pytest.raises(ValueError, match="page"):
            write_report(reported[0], [], path)
