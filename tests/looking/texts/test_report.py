"""`ul2 report`: the page shows what its JSON says, in a browser too, whatever the texts are, and needs nothing outside it."""

import copy
import dataclasses
import html.parser
import itertools
import json
import math
import random
import re
import shutil
import sys

import pytest

from ul2_tasks import T5GEMMA2, SpanDenoiser, chunk_length, register
from ul2_tasks.looking.printing import as_shown
from ul2_tasks.looking.texts.draw import draw
from ul2_tasks.looking.texts.measure import measure
from ul2_tasks.looking.texts.report import FillAdvice, write_report
from ul2_tasks.looking.texts.report_tables import look_up

SEQUENCE_LENGTH = {"inputs": 512, "targets": 512}
WORDS = ("the", "a", "of", "is", "and", "spans", "to", "be", "read", "by", "model", "text", "in", "it", "as", "one", "for")
HOSTILE = (
    "</script><img src=x onerror=alert(1)>",
    "<!-- <script> ]]> -->",
    "\u2028line\u2029paragraph",
    "\u202eשלום, مرحبا\u202c",
    "\U0001f642 日本語\n\n\ttab  two spaces ",
    "&amp; {{ 7 * 7 }} {% endraw %} `${1}`",
)


def summary(mean, spread=0.0, low=None):
    quantiles = {key: mean + round(spread * z) for key, z in (("5", -1.6), ("25", -0.7), ("50", 0), ("75", 0.7), ("95", 1.6))}
    return {"mean": float(mean), "sd": spread, "min": low or mean - 2 * spread, "max": mean + 2 * spread, "quantiles": quantiles}


def span_lengths(noise, spans):
    """A distribution of span lengths and something near it, of several lengths a bar where there are many."""
    if spans == 1:
        return {"values": [noise], "width": 1, "measured": [1.0], "theory": [1.0]}
    width = 1 + noise // spans // 10
    chances = [math.comb(noise - length - 1, spans - 2) / math.comb(noise - 1, spans - 1) for length in range(1, noise - spans + 2)]
    theory = [sum(chances[start : start + width]) for start in range(0, len(chances), width)]
    measured = [part * random.Random(bar).uniform(0.9, 1.1) for bar, part in enumerate(theory)]
    return {"values": [1 + width * bar for bar in range(len(theory))], "measured": measured, "theory": theory, "width": width}


def corpus_of(name, number):
    return {
        "corpus": name,
        "source": "MemoryDataSource(the embedded corpus)",
        "vocabulary": "SentencePieceVocabulary, 4096 ids, 200 sentinels",
        "tasks": [],
        "documents": 1000 + number,
        "is_all": not number,
        "tokens": summary(1234 + number, spread=300.5),
        "histogram": {"values": [0, 1, 2, 4, 8], "documents": [3, 0, 10, 700 + number, 287]},
        "characters_a_token": 4.25 + number,
        "unknown": 0.0123,
        "come_back": 0.987,
        "lost": ["newlines: 'a' comes back as 'b'"] if number else [],
        "in_memory": False,
        "times_read": None if number else 12.5,
    }


def statistics_of(denoisers, corpora=("ul2_corpus",), others=()):
    """Made-up statistics of the shape that `measure` gives; what can be true without drawing examples is."""
    total = sum(denoiser.weight for denoiser in denoisers)
    tasks = []
    for number, denoiser in enumerate(denoisers):
        full = chunk_length(denoiser, SEQUENCE_LENGTH)
        expected, noise = denoiser.weight / total, random.Random(number)
        rate = full.noise / full.length
        masked = [
            min(rate * noise.uniform(0.93, 1.07), 1.0) if full.spans > 1 else float(bin >= 50 * (1 - rate)) for bin in range(50)
        ]
        tasks.append(
            {
                "task": f"ul2_{denoiser.name}",
                "corpus": corpora[number % len(corpora)],
                "denoiser": dataclasses.asdict(denoiser),
                "full_chunk": dataclasses.asdict(full),
                "examples": round(4000 * expected) + number,
                "full_examples": round(4000 * expected) - 1,
                "share": {
                    "expected": expected,
                    "low": max(expected - 0.02, 0.0),
                    "high": min(expected + 0.02, 1.0),
                    "examples": min(expected + 0.001 * number, 1.0),
                    "inputs": full.inputs / 3000,
                    "targets": full.targets / 2000,
                },
                "corruption_rate": {"expected": rate, "measured": rate + 0.00004},
                "spans": {
                    "expected": full.spans,
                    "measured": full.spans + 0.004,
                    "mean_length": {"expected": full.noise / full.spans, "measured": full.noise / full.spans + 0.006},
                    "lengths": span_lengths(full.noise, full.spans),
                    "p_value": None if full.spans == 1 else [0.43, 0.00002, 0.918, 0.05][number % 4],
                },
                "lengths": {
                    "inputs": summary(full.inputs, low=23),
                    "targets": summary(full.targets - 20, spread=9.5),
                    "chunk": summary(full.length),
                },
                "compression": full.inputs / full.length,
                "fill": {"inputs": full.inputs / 512, "targets": full.targets / 512},
                "masked": masked,
                "documents_per_chunk": 1.234,
            }
        )
    checks = ("nothing is truncated", "every full chunk has its noise and spans", "shares of examples are those expected")
    return {
        "mixture": "ul2_mix",
        "version": "1.2.3",
        "split": "train",
        "seed": 7,
        "examples": 4000,
        "sequence_length": SEQUENCE_LENGTH,
        "corpus": "MemoryDataSource(the embedded corpus)",
        "vocabulary": "SentencePieceVocabulary, 4096 ids, 200 sentinels",
        "documents": {"looked_at": 1000, "tokens": summary(1234, spread=300.5)},
        "corpora": [corpus_of(name, number) for number, name in enumerate(corpora)],
        "tasks": tasks,
        "others": [
            {
                "task": name,
                "examples": 77,
                "share": {"expected": 0.02, "low": 0.01, "high": 0.03, "examples": 0.019, "inputs": 0.03, "targets": 0.001},
                "lengths": {"inputs": summary(60, spread=9.0), "targets": summary(4)},
            }
            for name in others
        ],
        "notes": [f"not of ul2_tasks: {name}" for name in others],
        "share_sentence": "ul2_s is 50 % of the examples, but 26 % of the input and 61 % of the target tokens.",
        "lengths": {
            "inputs": summary(400, spread=120.25),
            "targets": summary(220, spread=70.5),
            "chunk": summary(600, spread=100.0),
        },
        "compression": 0.7123,
        "fill": {
            "unpacked": {"inputs": 0.63, "targets": 0.431},
            "packed": {"inputs": 0.812, "targets": 0.9},
            "bound": {"inputs": 0.85, "targets": 1.0},
        },
        "truncated": 0,
        "shared_text": [
            {"tasks": [one["task"], other["task"]], "anywhere": 0.31, "at_once": 0.0, "by_chance": 0.004, "examples": 491}
            for one, other in itertools.combinations(tasks, 2)
        ],
        "checks": [{"name": check, "passed": True, "found": "0 of 4,000 examples"} for check in checks],
    }


def samples_of(denoisers, count=3, texts=()):
    """Made-up examples in the shape that `draw` gives; `texts` stand in the first spans and behind the mode of some."""
    return [_sample(denoiser, number, list(texts) if number else []) for denoiser in denoisers for number in range(count)]


def _sample(denoiser, number, texts):
    chance = random.Random(f"{denoiser.name}{number}")
    full = chunk_length(denoiser, SEQUENCE_LENGTH)

    def words(tokens):
        text = " ".join(chance.choices(WORDS, k=tokens)) + " "
        return {"kind": "text", "text": texts.pop(0) if texts else text, "tokens": tokens}

    def parts(total, number):
        cuts = [0, *sorted(chance.sample(range(1, total), number - 1)), total]
        return [after - before for before, after in itertools.pairwise(cuts)]

    eos = {"kind": "eos", "text": "</s>", "tokens": 1, "span": None}
    inputs = [{"kind": "mode", "text": denoiser.mode, "tokens": 1, "span": None}] if denoiser.mode else []
    targets = []
    kept, noise = (parts(total, full.spans) for total in (full.length - full.noise, full.noise))
    for span in range(full.spans):
        sentinel = {"kind": "sentinel", "text": f"<extra_id_{span}>", "tokens": 1, "span": span}
        inputs += [words(kept[span]) | {"span": None}, sentinel]
        targets += [sentinel, words(noise[span]) | {"span": span}]
    inputs.insert(2, {"kind": "border", "text": "", "tokens": 0, "span": None})
    targets.append({"kind": "bytes", "text": "<0xE6><0x97>", "tokens": 2, "span": full.spans - 1})
    return {
        "task": f"ul2_{denoiser.name}",
        "denoiser": denoiser.name,
        "mode": denoiser.mode,
        "number": number,
        "counts": {
            "chunk": full.length + 2,
            "noise": full.noise + 2,
            "spans": full.spans,
            "inputs": full.inputs,
            "targets": full.targets + 2,
            "corruption_rate": round(full.noise / full.length, 3),
        },
        "ids": {"inputs": [5] * full.inputs, "targets": [6] * full.targets},
        "inputs": [*inputs, eos],
        "targets": [*targets, eos],
    }


def broken(statistics):
    """The same with a broken check, whose words are hostile, too."""
    checks = [
        statistics["checks"][0] | {"passed": False, "found": HOSTILE[0], "name": "a <b>check</b> & more"},
        *statistics["checks"][1:],
    ]
    return statistics | {"checks": checks}


def unmeasured(statistics):
    """The same, of so few examples that there is nothing to measure."""
    statistics = copy.deepcopy(statistics) | {"seed": None, "compression": None, "shared_text": []}
    statistics["lengths"] = dict.fromkeys(statistics["lengths"])
    statistics["fill"] = {way: {"inputs": None, "targets": None} for way in statistics["fill"]}
    for task in statistics["tasks"]:
        task |= {"masked": None, "compression": None, "documents_per_chunk": None, "examples": 0, "full_examples": 0}
        task["share"] |= {"inputs": None, "targets": None}
        task["fill"] = {"inputs": None, "targets": None}
        task["lengths"] = dict.fromkeys(task["lengths"])
        task["corruption_rate"]["measured"] = None
        task["spans"] |= {"measured": None, "p_value": None}
        task["spans"]["mean_length"]["measured"] = None
        task["spans"]["lengths"]["measured"] = None
    return statistics


S_ALONE = (dataclasses.replace(T5GEMMA2[-1], mode=None),)
LONG = SpanDenoiser(name="long_" * 12, mean_span_length=2.5, noise_density=0.3, placement="uniform")
STATISTICS = {
    "the five": statistics_of(T5GEMMA2),
    "long names, a broken check, two corpora, another task": broken(
        statistics_of([LONG, *S_ALONE], ("ul2_corpus", "web_<b>corpus"), others=["trivia_<b>qa"])
    ),
    "nothing measured": unmeasured(statistics_of(T5GEMMA2[:2])),
}
ADVICE = [FillAdvice("ul2_corpus", {"r1": 286, "s": 201}, {"inputs": 0.7, "targets": 0.6}, {"inputs": 0.97, "targets": 0.951})]
SAMPLES = samples_of(T5GEMMA2, texts=HOSTILE)


class Page(html.parser.HTMLParser):
    """What a browser would find: elements, the numbers of tables, what the JSON elements hold, and comments."""

    def __init__(self, path):
        super().__init__(convert_charrefs=True)
        self.tags, self.comments, self.numbers, self.texts = [], [], {}, {}
        self._open = []
        self.source = path.read_text(encoding="utf-8")
        self.feed(self.source)

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.tags.append((tag, attributes))
        if tag not in ("meta", "link", "br", "img", "path", "use", "rect"):
            self._open.append(attributes)

    def handle_endtag(self, tag):
        if self._open and tag not in ("path", "use", "rect"):
            self._open.pop()

    def handle_data(self, data):
        for attributes in self._open[-1:]:
            if "data-path" in attributes:
                number = (data, attributes["data-kind"])
                assert self.numbers.setdefault(attributes["data-path"], number) == number
        for attributes in self._open:
            if "id" in attributes:
                self.texts[attributes["id"]] = self.texts.get(attributes["id"], "") + data

    def handle_comment(self, data):
        self.comments.append(data)


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Paths of the pages of each kind of mixture."""
    folder = tmp_path_factory.mktemp("pages")
    return {
        name: write_report(statistics, SAMPLES, folder / f"{number}.html", ADVICE if not number else ())
        for number, (name, statistics) in enumerate(STATISTICS.items())
    }


@pytest.fixture(scope="module")
def parsed(pages):
    return {name: Page(path) for name, path in pages.items()}


@pytest.fixture(params=STATISTICS)
def case(request, parsed):
    """(statistics, page) of each kind of mixture."""
    return STATISTICS[request.param], parsed[request.param]


def numbers_in(value, path=""):
    """Paths of all numbers in JSON, and of nulls."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from numbers_in(inner, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from numbers_in(inner, f"{path}.{number}")
    elif not isinstance(value, (str, bool)):
        yield path


def is_told(statistics, page, path):
    """Whether a number is on the page, or left out as it must be: it is the same in all rows, as expected, or always the same."""
    if path in page.numbers:
        return True
    summary_path = re.match(r"(.*\blengths\.\w+|corpora\.\d+\.tokens)\.", path)
    if summary_path and "quantiles" not in summary_path[1]:
        of = look_up(statistics, summary_path[1])
        if of["min"] == of["max"]:
            return f"always {as_shown(of['min'], 'count')}" in page.texts["lengths"]
    first = re.sub(r"^fill\.\w+", "fill.unpacked", re.sub(r"^(tasks|corpora|shared_text)\.\d+", r"\1.0", path))
    if first in page.numbers:
        return as_shown(look_up(statistics, path), page.numbers[first][1]) == page.numbers[first][0]
    expected = path.replace(".measured", ".expected")
    return path.endswith(".measured") and "Measured as expected" in page.texts["objective"] and is_told(statistics, page, expected)


def test_the_json_is_in_the_page_and_no_text_breaks_out_of_it(case):
    statistics, page = case
    assert any("</script>" in part["text"] for sample in SAMPLES for part in sample["inputs"] + sample["targets"])
    assert json.loads(page.texts["statistics"]) == statistics
    assert json.loads(page.texts["samples"]) == SAMPLES
    assert page.comments == []
    assert all(attributes["src"].startswith("data:image/svg+xml;base64,") for tag, attributes in page.tags if tag == "img")
    assert page.source.count("</script") == sum(tag == "script" for tag, _ in page.tags) == 4
    before_json = page.source.partition('id="statistics"')[0]
    for text in ("a <b>check", "web_<b>", "trivia_<b>"):
        assert text not in before_json


def test_the_page_needs_nothing_outside_it(case):
    _, page = case
    references = [
        value for _, attributes in page.tags for key, value in attributes.items() if key in ("src", "href", "srcset", "data")
    ]
    assert all(reference.startswith(("#", "data:")) for reference in references)
    assert len(references) > 9
    styles = page.source.partition('id="statistics"')[0]
    for outside in ("url(", "@import", "http:", "https:"):
        assert outside not in styles
    (policy,) = [a["content"] for tag, a in page.tags if tag == "meta" and a.get("http-equiv") == "Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:;")


def test_a_page_without_examples_says_so(tmp_path):
    assert "No examples were drawn." in Page(write_report(statistics_of(S_ALONE), [], tmp_path / "page.html")).texts["examples"]


def test_nan_is_refused(tmp_path):
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_report(statistics_of(S_ALONE) | {"compression": math.nan}, [], tmp_path / "report.html")
    assert not (tmp_path / "report.html").exists()


@pytest.mark.parametrize("missing", ["jinja2", "matplotlib"])
def test_what_is_missing_is_said_with_the_extra_that_brings_it(missing, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, missing, None)
    monkeypatch.delitem(sys.modules, "ul2_tasks.looking.texts.report_plots")
    monkeypatch.delattr(sys.modules["ul2_tasks.looking.texts"], "report_plots")
    with pytest.raises(ImportError, match=rf"{missing}.*pip install 'ul2_tasks\[report\]'"):
        write_report(STATISTICS["the five"], [], tmp_path / "report.html")


def test_what_is_measured_and_drawn_makes_a_page(tmp_path):
    """The made-up statistics and samples above have the keys of real ones, and dataclasses make the page of their dicts."""
    lengths = {"inputs": 64, "targets": 64}
    mixture = register("report", denoisers=(T5GEMMA2[0], T5GEMMA2[-1]))
    statistics, samples = measure(mixture, lengths, examples=16), list(draw(mixture, lengths, 1))
    as_dicts = dataclasses.asdict(statistics), [dataclasses.asdict(sample) for sample in samples]
    page = Page(write_report(statistics, samples, tmp_path / "one.html"))
    assert json.loads(page.texts["statistics"]) == as_dicts[0]
    assert json.loads(page.texts["samples"]) == as_dicts[1]
    for made_up, real in ((STATISTICS["the five"], as_dicts[0]), (SAMPLES[0], as_dicts[1][0])):
        assert keys(made_up) == keys(real)


def keys(value, path=""):
    if isinstance(value, dict):
        inner = [keys(part, f"{path}.{key}") for key, part in value.items() if key not in ("split", "sentinel", "ids")]
        return {path}.union(*inner)
    if isinstance(value, (list, tuple)) and value and isinstance(value[0], dict):
        return set().union(*(keys(part, f"{path}[]") for part in value))
    return {path}


# In a browser.

OPTIONS = """--headless=new --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking
 --disable-component-update --disable-sync --hide-scrollbars --window-size=1280,900"""
SHOWN = """
return Object.fromEntries(["inputs", "targets"].map((id) => [id, [...document.getElementById(id).children].map((node) => ({
  kind: node.classList[1],
  text: node.textContent,
  span: "span" in node.dataset ? Number(node.dataset.span) : null,
  twin: node.classList.contains("twin"),
  boxes: node.getClientRects().length,
  inner: node.children.length,
}))]));
"""
# The colours of each element with text of its own, and of what is behind it.
COLOURS = """
const opaque = (colour) => !/^rgba\\(.*, 0\\)$/.test(colour);
return [...document.querySelectorAll(arguments[0])].filter((node) => node.textContent.trim()).map((node) => {
  let behind = node;
  while (behind.parentElement && !opaque(getComputedStyle(behind).backgroundColor)) behind = behind.parentElement;
  return [node.textContent.slice(0, 30), getComputedStyle(node).color, getComputedStyle(behind).backgroundColor];
});
"""


class Browser:
    """Chromium with a page that is a file."""

    def __init__(self, webdriver, driver):
        self.webdriver, self.driver = webdriver, driver
        self.run = driver.execute_script

    def open(self, path, hash=""):
        self.driver.get("about:blank")
        self.driver.get(f"{path.as_uri()}{hash}")

    def find(self, selector, number=0):
        return self.driver.find_elements("css selector", selector)[number]

    def text(self, selector):
        return self.run("return document.querySelector(arguments[0]).textContent", selector)

    def press(self, *keys):
        for key in keys:
            self.actions().send_keys(getattr(self.webdriver.Keys, key)).perform()

    def actions(self):
        return self.webdriver.ActionChains(self.driver, duration=0)

    def hover(self, node):
        self.run("arguments[0].scrollIntoView({block: 'center'})", node)
        self.actions().move_to_element(node).perform()

    def prefer(self, scheme):
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def resize(self, width, height, mobile=True):
        settings = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": mobile}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", settings)

    def background(self):
        return self.run("return getComputedStyle(document.body).backgroundColor")

    def messages(self):
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def place(self):
        """The task and the number, from 1, of the example that is shown."""
        (task,) = self.run("return [...document.querySelectorAll('[role=tab][aria-selected=true]')].map((tab) => tab.textContent)")
        number, of = self.text("#place").split(" of ")
        assert int(of) == len([sample for sample in SAMPLES if sample["task"] == task])
        return task, int(number)

    def twins(self):
        return [(side, part["kind"], part["span"]) for side, parts in self.run(SHOWN).items() for part in parts if part["twin"]]


@pytest.fixture(scope="module")
def chromium(tmp_path_factory):
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed: pip install '.[test]'")
    binary, driver = (
        next(filter(None, map(shutil.which, names)), None) for names in (("chromium", "google-chrome"), ("chromedriver",))
    )
    if not binary or not driver:
        pytest.skip("chromium or chromedriver is not installed: on Debian, apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for option in [*OPTIONS.split(), f"--user-data-dir={tmp_path_factory.mktemp('chromium')}"]:
        options.add_argument(option)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    yield Browser(webdriver, driver)
    driver.quit()


@pytest.fixture
def page(pages):
    return pages["the five"]


@pytest.fixture
def browser(chromium, page):
    """The page, opened afresh; what it does must leave nothing in the console."""
    chromium.prefer("light")
    chromium.resize(1280, 900, mobile=False)
    chromium.open(page)
    chromium.messages()
    yield chromium
    chromium.run("try { localStorage.clear() } catch { /* denied by a test */ }")
    assert chromium.messages() == []


TASKS = [f"ul2_{denoiser.name}" for denoiser in T5GEMMA2]


def sample_of(task, number):
    (sample,) = [sample for sample in SAMPLES if (sample["task"], sample["number"]) == (task, number - 1)]
    return sample


def check_shown(browser, task, number):
    assert browser.place() == (task, number)
    sample, shown = sample_of(task, number), browser.run(SHOWN)
    for side in ("inputs", "targets"):
        fields = ("kind", "text", "span")
        assert [[part[key] for key in fields] for part in shown[side]] == [[part[key] for key in fields] for part in sample[side]]
        assert all(part["boxes"] for part in shown[side])
        assert not any(part["inner"] for part in shown[side])
        assert browser.text(f"#{side}-tokens") == f"{sample['counts'][side]:,} tokens"
    counts = sample["counts"]
    expected = {
        "chunk": f"{counts['chunk']:,} tokens",
        "noise": f"{counts['noise']:,} tokens",
        "spans": str(counts["spans"]),
        "corruption rate": f"{100 * counts['corruption_rate']:.1f}\u00a0%",
    }
    pairs = browser.run(
        "return [...document.querySelectorAll('#counts div')].map((pair) => [...pair.children].map((e) => e.textContent))"
    )
    assert dict(pairs) == expected


def test_errors_would_be_seen(chromium, page):
    chromium.open(page)
    chromium.messages()
    chromium.run("console.warn('a warning')")
    chromium.run("document.body.append(Object.assign(new Image(), {src: 'https://example.com/x.png'}))")
    warning, violation = chromium.messages()
    assert "a warning" in warning
    assert "Content Security Policy" in violation


def test_stepping_through_shows_each_example_as_it_is(browser):
    assert browser.run("return [...document.querySelectorAll('[role=tab]')].map((tab) => tab.textContent)") == TASKS
    for number, task in enumerate(TASKS):
        browser.find("[role=tab]", number).click()
        for example in (1, 2, 3):
            check_shown(browser, task, example)
            browser.find("#next").click()
        check_shown(browser, task, 1)
        browser.find("#previous").click()
        assert browser.place() == (task, 3)
    browser.find("[role=tab]", 0).click()
    assert browser.place() == (TASKS[0], 3), "each task remembers where one was"
    browser.find("#previous").click()
    browser.find("[role=tab]", 1).click()
    browser.find("[role=tab]", 0).click()
    assert browser.place() == (TASKS[0], 2)
    assert any(text in part["text"] for text in HOSTILE for part in browser.run(SHOWN)["targets"])
    assert browser.run("return [...document.querySelectorAll('.pane *')].every((node) => node.tagName === 'SPAN')")
    assert browser.run("return getComputedStyle(document.querySelector('.segment')).whiteSpace") == "pre-wrap"


def test_hovering_a_span_shows_its_twin(browser):
    parts = sample_of("ul2_r1", 1)["targets"]
    span = max(part["span"] for part in parts if part["span"] is not None)
    of_span = [part for part in parts if part["span"] == span]
    tokens = sum(part["tokens"] for part in of_span if part["kind"] != "sentinel")
    for side, kind in (("inputs", "sentinel"), ("targets", "sentinel"), ("targets", "text")):
        assert browser.twins() == []
        assert "Hover" in browser.text("#status")
        browser.hover(browser.find(f"#{side} .{kind}[data-span='{span}']"))
        assert browser.twins() == [("inputs", "sentinel", span)] + [("targets", part["kind"], span) for part in of_span]
        assert browser.text("#status b") == f"span {span}: {tokens} tokens"
        assert browser.text("#status bdi") == "".join(part["text"] for part in of_span if part["kind"] != "sentinel").strip()
        for other in ("inputs", "targets"):
            inside = """const boxOf = (selector) => document.querySelector(selector).getBoundingClientRect();
                const [pane, node] = [...arguments].map(boxOf);
                return node.bottom > pane.top && node.top < pane.bottom;"""
            assert browser.run(inside, f"#{other}", f"#{other} .twin"), "the twin is scrolled to"
        browser.hover(browser.find("#examples h2"))
    browser.hover(browser.find("#inputs .text"))
    assert browser.twins() == [], "kept text has none"


# The themes of the images that are displayed.
IMAGES = "return [...new Set([...document.images].filter((i) => i.getClientRects().length).map((i) => i.className))]"
