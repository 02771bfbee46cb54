"""`ul2 contamination`: which documents have texts of a benchmark."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.commands.running import ul2
from tests.support import mistral_model
from ul2_tasks import MemoryDataSource, mix, register
from ul2_tasks.inspect.contamination import contamination, read_texts, variants_of
from ul2_tasks.inspect.run import Run, stores
from ul2_tasks.sources.memory import embedded_documents

LENGTHS = {"inputs": 64, "targets": 64}
TEXTS = [" ".join(text.split()) for text in embedded_documents()[:40]]
QUESTION = 'Which of the seven "grey" herons, Marta asked, had carried 12 stones over the frozen harbour before dawn (and why)?'
SHORT = "Nine otters quietly measured the abandoned lighthouse stairs yesterday"
NEVER = "Paper submarines argue politely about the colour of next winter's unripe melons, or so the treaty of Vrbov says."
WORDS = QUESTION.split()
MISSED, SHORT_MISSED = (  # no 13 tokens in a row
    " ".join(word if number % 2 else "otherwise" for number, word in enumerate(text.split())) for text in (QUESTION, SHORT)
)
PLANTED = {
    3: f"{TEXTS[3]} {QUESTION} {TEXTS[4]}",
    5: f"He wrote:\n{QUESTION}\n{TEXTS[5]}",
    7: f"({QUESTION}) {TEXTS[7]}",
    8: f"{TEXTS[8]} {' '.join(WORDS[4:])}",
    11: f"{TEXTS[11]} {SHORT}. {TEXTS[12]}",
    13: f"{TEXTS[13]} {MISSED} {TEXTS[14]} {SHORT_MISSED}",
    17: QUESTION,
}
DOCUMENTS = [PLANTED.get(number, text) for number, text in enumerate(TEXTS)]
VOCABULARIES = {"default": "default", "mistral": mistral_model()}


def run_of(name: str, vocabulary: str = "default", documents=DOCUMENTS) -> Run:
    return Run(register(name, MemoryDataSource(lambda: documents, validation=0), vocabulary=vocabulary), LENGTHS)


@pytest.fixture(scope="module")
def benchmark(tmp_path_factory):
    path = tmp_path_factory.mktemp("benchmark") / "benchmark.jsonl"
    path.write_text("".join(json.dumps({"id": name, "question": text}) + "\n" for name, text in BENCHMARK.items()))
    return str(path)


BENCHMARK = {"herons": QUESTION, "otters": SHORT, "melons": NEVER, "yes": "Yes."}


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
def test_texts_are_found_whole_and_in_part_and_near_misses_are_not(vocabulary):
    run = run_of(f"planted_{vocabulary}", VOCABULARIES[vocabulary])
    ((corpus, store),) = stores(run.examples()).values()
    variants = variants_of(corpus, list(BENCHMARK.values()), 13)
    found = contamination(corpus, store, variants)
    texts = [corpus.tokenizer.decode(store.read_tokens(*store.tokens_of(number)).tolist()) for number in range(store.documents)]
    of = {number: next((text for text in BENCHMARK.values() if text in content), None) for number, content in enumerate(texts)}
    got = {document: (text, ngrams / of_text) for document, text, ngrams, of_text, _ in found.found.tolist()}
    names = list(BENCHMARK.values())
    for document, text in of.items():
        if text:
            assert got.pop(document) == (names.index(text), 1.0)
    (part,) = got
    assert " ".join(WORDS[4:]) in texts[part]
    assert 0.3 < got[part][1] < 1
    assert variants.too_short.tolist() == [False, False, False, True]
    assert variants.whole == (1 if len(corpus.tokenizer.encode(SHORT)) < 15 else 0)
    assert {name: int(count) for name, count in zip(BENCHMARK, found.documents_of)} == {
        "herons": 5,
        "otters": 1,
        "melons": 0,
        "yes": 0,
    }


def test_the_command_looks_in_each_corpus(benchmark, tmp_path):
    both = mix("contaminated", {run_of("with_texts").mixture: 1, run_of("without_texts", documents=TEXTS).mixture: 1})
    output = ul2("contamination", both, "--texts", benchmark, "--field", "question", "--output", tmp_path / "LIST.jsonl").stdout
    assert "without_texts_corpus" in output
    lines = [json.loads(line) for line in (tmp_path / "LIST.jsonl").read_text().splitlines()]
    assert [line["corpus"] for line in lines] == ["with_texts_corpus"] * 6
    assert max(lines, key=lambda line: line["overlap"])["overlap"] == 1
    done = ul2("contamination", both, "--texts", benchmark, "--field", "question", "--output", "no/list.jsonl")
    assert (done.exit_code, "--output" in done.stderr) == (2, True)


def test_texts_are_read_from_lines_records_and_tables(tmp_path):
    (tmp_path / "a.txt").write_text("one\n\ntwo\n")
    assert read_texts(str(tmp_path / "a.txt")) == [(0, "one"), (1, ""), (2, "two")]
    (tmp_path / "a.jsonl").write_text('{"q": "one", "a": "two"}\n{"q": "three", "a": "four"}\n')
    assert read_texts(str(tmp_path / "a.jsonl"), ["q"]) == [(0, "one"), (1, "three")]
    named = read_texts(str(tmp_path / "a.jsonl"), ["q", "a"])
    assert named == [("0.q", "one"), ("0.a", "two"), ("1.q", "three"), ("1.a", "four")]
    pq.write_table(pa.table({"text": ["one", "two"], "id": [7, 9]}), tmp_path / "a.parquet")
    assert read_texts(str(tmp_path / "a.parquet")) == [("7", "one"), ("9", "two")]
    (tmp_path / "c.jsonl").write_text('{"text": "one", "id": 7}\r\n\r\n{"text": "two"}\n{"text": "three", "id": null}\n')
    assert read_texts(str(tmp_path / "c.jsonl")) == [("7", "one"), (1, "two"), (2, "three")], "an id is no more than a name"


WRONG = {  # what a file has, the fields that are asked for, and the option that is named
    "none.jsonl": (None, [], "--texts"),
    "empty.txt": ("", [], "--texts"),
    "b.tfrecord": ("", [], "--texts"),
    "number.jsonl": ('{"text": 3}\n', [], "--field"),
    "other.jsonl": ('{"question": "a"}\n', [], "--field"),
    "cut.jsonl": ("{", [], "JSON"),
    "lines.txt": ("a", ["q"], "--field"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_with_a_file_of_texts_is_named(name, tmp_path):
    content, fields, named = WRONG[name]
    if content is not None:
        (tmp_path / name).write_text(content)
    with pytest.raises(ValueError, match=named):
        read_texts(str(tmp_path / name), *[fields] * bool(fields))
