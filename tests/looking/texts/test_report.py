"""`ul2 report`: the page shows what its JSON says, in a browser too, whatever the texts are, and needs nothing outside it."""

import base64
import copy
import dataclasses
import doctest
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
from ul2_tasks.looking import printing
from ul2_tasks.looking.page import verdict
from ul2_tasks.looking.printing import as_shown
from ul2_tasks.looking.texts import report_plots, report_tables
from ul2_tasks.looking.texts.draw import draw
from ul2_tasks.looking.texts.measure import measure
from ul2_tasks.looking.texts.report import FillAdvice, advise, write_report
from ul2_tasks.looking.texts.report_tables import look_up, tables

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


IN_PLOTS_ALONE = r"\.spans\.lengths\b|\.masked\b|\.histogram\b|^documents.tokens"
NOT_NUMBERS = r"\.denoiser\.mode$|\blengths\.(inputs|targets|chunk)$"  # null where there is none


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


def test_every_number_stands_in_a_table_as_it_is_or_is_told_once_for_all(case):
    statistics, page = case
    expected = {path for path in numbers_in(statistics) if not re.search(f"{IN_PLOTS_ALONE}|{NOT_NUMBERS}", path)}
    assert set(page.numbers) <= expected
    assert [path for path in expected if not is_told(statistics, page, path)] == []
    assert len(page.numbers) > 50
    for path, (shown, kind) in page.numbers.items():
        value = look_up(statistics, path)
        assert shown == as_shown(value, kind), path
        if value is not None:
            number, unit = re.fullmatch(r"([-\d,.e]+)(\s%)?", shown).groups()
            decimals = len(number.partition(".")[2]) if "e" not in number and kind not in ("plain", "count") else 9
            tolerance = 0.51 * 10**-decimals if kind != "p" or value >= 0.001 else 0.5 * value
            assert abs(float(number.replace(",", "")) - (100 * value if unit else value)) <= tolerance, (path, shown, value)


def test_what_does_not_vary_is_a_sentence():
    statistics = statistics_of(T5GEMMA2)
    for task in statistics["tasks"]:
        task["corruption_rate"] = {"expected": 0.5, "measured": 0.5}
        task["spans"]["p_value"] = None
        task["lengths"]["chunk"] = summary(task["full_chunk"]["length"])
    found = tables(statistics)
    objective = found["objective"]
    assert [(column.group, column.name) for column in objective.columns] == [
        ("spans of a full chunk", "expected"),
        ("mean span, tokens", "expected"),
        ("mean span, tokens", "measured"),
    ]
    assert [(name, cell.shown) for name, cell in objective.same] == [
        ("corruption rate, expected", "50.00\u00a0%"),
        ("p-value", "–"),
    ]
    assert objective.as_expected == ["corruption rate", "spans of a full chunk"]
    assert (found["shared"].columns, found["shared"].rows) == ([], [])
    assert [name for name, _ in found["shared"].same] == ["anywhere", "at once", "by chance", "examples"]
    chunks = [cells for name, cells in found["lengths"].rows if name.endswith(" chunk") and not name.startswith("all")]
    assert [[cell.shown for cell in cells] for cells in chunks] == [
        [f"always {task['full_chunk']['length']:,}"] for task in statistics["tasks"]
    ]


@pytest.mark.parametrize(
    ("value", "kind", "shown"),
    [
        (4000, "count", "4,000"),
        (110.5, "count", "110.5"),
        (512.0, "count", "512"),
        (3.0357, "decimal", "3.04"),
        (1234.5, "decimal", "1,234.50"),
        (0.1258, "percent", "12.6\u00a0%"),
        (0.15238, "rate", "15.24\u00a0%"),
        (0.43, "p", "0.430"),
        (0.0136, "p", "0.014"),
        (0.0000312, "p", "3e-05"),
        (0.0, "p", "0"),
        (0.15, "plain", "0.15"),
        (4, "plain", "4"),
        (None, "percent", "–"),
    ],
)
def test_numbers_are_shown_with_the_digits_that_people_read(value, kind, shown):
    assert as_shown(value, kind) == shown


@pytest.mark.parametrize("module", [printing, report_tables])
def test_the_examples_of_docstrings_hold(module):
    results = doctest.testmod(module)
    assert results.attempted > 0
    assert results.failed == 0


@pytest.mark.parametrize(
    ("checks", "sentence"),
    [
        ([True, True], "All 2 checks pass."),
        ([True, False], "1 of 2 checks fails: check 1."),
        ([False, True, False], "2 of 3 checks fail: check 0; check 2."),
        ([], "Nothing was checked."),
    ],
)
def test_the_verdict_is_one_sentence(checks, sentence):
    assert verdict([{"name": f"check {number}", "passed": holds} for number, holds in enumerate(checks)]) == sentence


def test_the_verdict_is_on_the_page_with_each_check(case):
    statistics, page = case
    assert verdict(statistics["checks"]) in page.texts["verdict"]
    for check in statistics["checks"]:
        mark = "PASS" if check["passed"] else "FAIL"
        assert f"{mark}{check['name']}{check['found']}" in page.texts["checks"]
    assert ("FAIL" in page.texts["checks"]) == any(not check["passed"] for check in statistics["checks"])


def test_the_page_says_what_the_mixture_and_its_corpora_are(case):
    statistics, page = case
    assert statistics["share_sentence"] in page.texts["shares"]
    assert statistics["mixture"] in page.source
    for task in statistics["tasks"]:
        assert task["task"] in page.texts["mixture"]
        assert (task["denoiser"]["mode"] or "none") in page.texts["mixture"]
    for other in statistics["others"]:
        assert other["task"] in page.texts["mixture"]
        assert other["task"] in page.texts["shares"]
        assert f"{other['task']} targetsalways 4" in page.texts["lengths"]
    for note in statistics["notes"]:
        assert note in page.texts["notes"]
    for corpus in statistics["corpora"]:
        for text in (corpus["corpus"], corpus["source"], corpus["vocabulary"], *corpus["lost"]):
            assert text in page.texts["corpora"]


def test_what_to_do_about_fill_can_be_pasted(parsed):
    first, second, _ = parsed.values()
    assert "--chunk_tokens r1=286,s=201" in first.texts["fill"]
    assert "ul2_tasks.register(.., chunk_tokens={'r1': 286, 's': 201})" in first.texts["fill"]
    assert "97.0\u00a0% inputs and 95.1\u00a0% targets" in first.texts["fill"]
    assert "chunk_tokens" not in second.texts["fill"]


def test_advice_is_that_of_the_registered_denoisers():
    mixture = register("report_advice", denoisers=T5GEMMA2[:2])
    (advice,) = advise(mixture, {"inputs": 64, "targets": 64})
    assert advice.corpus == "report_advice_corpus"
    assert list(advice.chunk_tokens) == ["r1", "r2"]
    assert advice.gain > -0.03
    assert advice.gain == min(advice.then.values()) - min(advice.now.values())


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


def test_plots_are_images_in_the_colours_of_each_theme(case):
    _, page = case
    images = [attributes for tag, attributes in page.tags if tag == "img"]
    assert len(images) >= 8
    assert [image["class"] for image in images] == ["light", "dark"] * (len(images) // 2)
    for image in images:
        drawing = base64.b64decode(image["src"].partition(",")[2]).decode()
        other = {"light": "dark", "dark": "light"}[image["class"]]
        assert report_plots.COLOURS[image["class"]]["muted"] in drawing
        assert not [colour for colour in report_plots.COLOURS[other].values() if colour in drawing]
        assert "<text" in drawing, "letters, not paths"
        assert len(image["alt"]) > 20
    variables = set(re.findall(r"var\((--[\w-]+)\)", page.source))
    assert variables <= set(re.findall(r"(--[\w-]+):", page.source)), "each colour is one of the theme's"
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))


def test_plots_show_the_numbers():
    statistics = STATISTICS["the five"]
    tasks = statistics["tasks"]
    bars = [bar.get_width() for bar in report_plots.shares(tasks).axes[0].patches]
    assert bars == pytest.approx([100 * task["share"][kind] for kind in ("examples", "inputs", "targets") for task in tasks])
    for task in tasks:
        distribution = task["spans"]["lengths"]
        if len(distribution["values"]) > 1:
            (axes,) = report_plots.span_lengths(distribution).axes
            steps = axes.patches[0].get_data()
            assert steps.values == pytest.approx([100 * part for part in distribution["measured"]])
            assert steps.edges[:-1] == pytest.approx([value - 0.5 for value in distribution["values"]])
            assert axes.lines[0].get_ydata() == pytest.approx([100 * part for part in distribution["theory"]])
        (axes,) = report_plots.masked(task["masked"], task["corruption_rate"]["expected"]).axes
        assert axes.patches[0].get_data().values == pytest.approx([100 * part for part in task["masked"]])
        assert set(axes.lines[0].get_ydata()) == {100 * task["corruption_rate"]["expected"]}
    for feature in ("inputs", "targets", "chunk"):
        lines = report_plots.lengths(statistics, feature).axes[0].lines
        for row, task in enumerate(tasks):
            quantiles = task["lengths"][feature]["quantiles"]
            whisker, box, median = (list(line.get_xdata()) for line in lines[3 * row : 3 * row + 3])
            assert (whisker, box, median) == (
                [quantiles["5"], quantiles["95"]],
                [quantiles["25"], quantiles["75"]],
                [quantiles["50"]],
            )
    histogram = statistics["corpora"][0]["histogram"]
    assert [bar.get_height() for bar in report_plots.documents(histogram).axes[0].patches] == histogram["documents"]
    bars = [bar.get_width() for bar in report_plots.fill(statistics["fill"]).axes[0].patches]
    assert bars == pytest.approx([100 * part[feature] for feature in ("inputs", "targets") for part in statistics["fill"].values()])


def test_the_same_numbers_make_the_same_page(pages, tmp_path):
    again = write_report(STATISTICS["nothing measured"], SAMPLES, tmp_path / "again.html")
    assert again.read_bytes() == pages["nothing measured"].read_bytes()


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


def test_a_border_is_seen_and_says_what_it_is(browser):
    border = "return document.querySelector('#inputs .border').%s"
    assert browser.run(border % "title") == "another document begins"
    assert browser.run(border % "getBoundingClientRect().width") > 1


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


def test_a_tap_stays_until_another_or_escape(browser):
    browser.find("#inputs .sentinel", 1).click()
    browser.hover(browser.find("#examples h2"))
    assert {span for _, _, span in browser.twins()} == {1}
    browser.find("#targets .text", 2).click()
    browser.hover(browser.find("#examples h2"))
    assert {span for _, _, span in browser.twins()} == {2}
    browser.press("ESCAPE")
    assert browser.twins() == []


def test_the_focus_shows_the_twin_too(browser):
    browser.find("#next").click()
    browser.press("TAB", "TAB")
    assert {span for _, _, span in browser.twins()} == {0}
    browser.press("TAB")
    assert {span for _, _, span in browser.twins()} == {1}
    browser.press("ARROW_RIGHT")
    assert browser.place() == (TASKS[0], 3)


def test_keys_step_through_examples_and_tasks(browser):
    browser.press("ARROW_RIGHT")
    assert browser.place() == (TASKS[0], 2), "with the focus nowhere"
    scrolled = "return document.scrollingElement.scrollTop"
    browser.find("[role=tab]").click()
    before = browser.run(scrolled)
    for keys, place in [
        (["ARROW_RIGHT"], (TASKS[0], 3)),
        (["ARROW_RIGHT"], (TASKS[0], 1)),
        (["ARROW_LEFT"], (TASKS[0], 3)),
        (["ARROW_DOWN"], (TASKS[1], 1)),
        (["ARROW_RIGHT", "ARROW_DOWN"], (TASKS[2], 1)),
        (["ARROW_UP"], (TASKS[1], 2)),
        (["ARROW_UP", "ARROW_UP"], (TASKS[4], 1)),
        (["ARROW_DOWN"], (TASKS[0], 3)),
    ]:
        browser.press(*keys)
        check_shown(browser, *place)
        assert browser.run("return document.activeElement.textContent") == place[0], "the focus stays on the tabs"
    assert browser.run(scrolled) == before
    browser.run("document.activeElement.blur()")
    browser.press("ARROW_DOWN")
    assert browser.place() == (TASKS[0], 3), "with the focus nowhere it scrolls the page"


def test_the_address_says_which_example_and_follows(browser, page):
    for hash, place in {
        "#ul2_x1/2": ("ul2_x1", 2),
        "#ul2_s": ("ul2_s", 1),
        "#ul2_s/99": ("ul2_s", 3),
        "#ul2_s/-1": ("ul2_s", 1),
        "#ul2_s/x": ("ul2_s", 1),
        "#nobody/2": ("ul2_r1", 1),
        "#%E0%A4%A": ("ul2_r1", 1),
    }.items():
        browser.open(page, hash)
        check_shown(browser, *place)
    browser.find("[role=tab]", 3).click()
    browser.find("#next").click()
    assert browser.run("return location.hash") == "#ul2_x2/2"
    browser.driver.refresh()
    check_shown(browser, "ul2_x2", 2)
    browser.run("location.hash = '#ul2_r2/3'")
    check_shown(browser, "ul2_r2", 3)


# The themes of the images that are displayed.
IMAGES = "return [...new Set([...document.images].filter((i) => i.getClientRects().length).map((i) => i.className))]"


def test_the_theme_is_the_systems_until_the_button_says_otherwise(browser):
    light = browser.background()
    browser.prefer("dark")
    dark = browser.background()
    assert light != dark
    assert browser.run(IMAGES) == ["dark"]
    assert browser.text("#theme") == "Theme: auto"
    for name, colour in (("light", light), ("dark", dark), ("auto", dark), ("light", light)):
        browser.find("#theme").click()
        assert (browser.text("#theme"), browser.background()) == (f"Theme: {name}", colour)
        assert browser.run(IMAGES) == ["light" if colour == light else "dark"]
    browser.driver.refresh()  # another visit would be another process of the browser, which may not have heard of it yet
    assert (browser.text("#theme"), browser.background()) == ("Theme: light", light), "it is remembered"
    browser.find("#theme").click()
    browser.prefer("light")
    assert browser.background() == dark


def test_a_browser_without_storage_forgets_the_theme_and_no_more(browser, page):
    throw = "Object.defineProperty(window, 'localStorage', {get() { throw new DOMException('denied', 'SecurityError'); }})"
    added = browser.driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": throw})
    try:
        browser.open(page)
        light = browser.background()
        for _ in range(2):
            browser.find("#theme").click()
        assert browser.text("#theme") == "Theme: dark"
        assert browser.background() != light
        check_shown(browser, TASKS[0], 1)
    finally:
        browser.driver.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", added)


def test_texts_are_legible_and_spans_differ(browser):
    """The contrast of WCAG 2.2, 1.4.3, level AA."""
    colour = "return [...document.querySelectorAll(arguments[0])].map((node) => getComputedStyle(node).backgroundColor)"
    tints = [browser.run(colour, f"[data-span='{span}']") for span in range(8)]
    assert all(len(tint) == 3 and len(set(tint)) == 1 for tint in tints), "a span and its sentinels have one colour"
    assert len({tint[0] for tint in tints}) == 8, "and neighbours have others"
    browser.find("[role=tab]", 1).click()
    for scheme in ("light", "dark"):
        browser.prefer(scheme)
        twins = set()
        seen = browser.run(COLOURS, "p, li, dt, dd, th, td, figcaption, button, a, h1, h2, pre, .badge, .segment, .number")
        for number in range(8):
            browser.run("document.querySelectorAll('#targets .sentinel')[arguments[0]].click()", number)
            colours = browser.run(COLOURS, ".twin")
            twins |= {tuple(colour[1:]) for colour in colours}
            seen += colours
        assert len(twins) == 8
        assert len(seen) > 300
        assert {text: ratio for text, *colours in seen if (ratio := contrast(*colours)) < 4.5} == {}


def contrast(*colours):
    def luminance(colour):
        parts = [int(part) / 255 for part in re.fullmatch(r"rgb\((\d+), (\d+), (\d+)\)", colour).groups()]
        red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    low, high = sorted(map(luminance, colours))
    return (high + 0.05) / (low + 0.05)


def test_contrast_is_that_of_wcag():
    assert contrast("rgb(0, 0, 0)", "rgb(255, 255, 255)") == pytest.approx(21)
    assert contrast("rgb(118, 118, 118)", "rgb(255, 255, 255)") == pytest.approx(4.54, abs=0.01)


@pytest.mark.parametrize("name", STATISTICS)
def test_a_phone_scrolls_in_one_direction(browser, pages, name):
    for width in (390, 320):
        browser.resize(width, 844)
        browser.open(pages[name])
        assert browser.run("return document.scrollingElement.scrollWidth") <= width
        areas = browser.run("return [...document.querySelectorAll('.wide, figure img')].map((area) => area.clientWidth)")
        assert len(areas) > 8
        assert max(areas) <= width
    assert verdict(STATISTICS[name]["checks"]) in browser.text("#verdict")
    assert [part["text"] for part in browser.run(SHOWN)["inputs"]] == [part["text"] for part in SAMPLES[0]["inputs"]]
    tops = browser.run("return ['inputs', 'targets'].map((id) => document.getElementById(id).getBoundingClientRect().top)")
    assert tops[1] - tops[0] > 100, "one below the other"
    narrow = "return Math.min(...[...document.images].filter((i) => i.clientWidth).map((i) => i.clientWidth / i.naturalWidth))"
    assert browser.run(narrow) > 0.7, "letters of 8 points stay legible"


def test_what_is_written_from_the_right_is_read_from_the_right(browser, tmp_path):
    samples = samples_of(S_ALONE, 2)
    for part in samples[1]["inputs"]:
        if part["kind"] == "text":
            part["text"] = "שלום עולם "
    path = write_report(statistics_of(S_ALONE), samples, tmp_path / "report.html")
    for number, direction in ((1, "ltr"), (2, "rtl")):
        browser.open(path, f"#ul2_s/{number}")
        assert browser.run("return getComputedStyle(document.getElementById('inputs')).direction") == direction
        assert browser.run("return getComputedStyle(document.querySelector('#inputs .sentinel')).direction") == "ltr"


def test_without_scripts_all_is_there_but_the_examples(case):
    _, page = case
    assert [tag for tag, _ in page.tags].count("noscript") == 1
    (viewer,) = [attributes for _, attributes in page.tags if attributes.get("id") == "viewer"]
    assert "hidden" in viewer
