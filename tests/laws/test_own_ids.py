"""Everywhere but behind SeqIO's interface ids are the tokenizer's own, in and out, also where SeqIO's are one higher."""

import json
import pathlib
import re

import pytest
import seqio
from rich.console import Console
from tokenizers import AddedToken, Tokenizer

import ul2_tasks
from tests.support import corpus_named
from tests.tokenizers.test_hugging_face_vocabulary import byte_fallback, exclamation_first
from ul2_tasks import (
    HuggingFaceFeatureConverter,
    MemoryDataSource,
    SpanDenoiser,
    UL2DataCollator,
    register,
    seqio_converter,
)
from ul2_tasks.corpus.build_cache import build
from ul2_tasks.export.folder import read_examples
from ul2_tasks.export.write import write_examples
from ul2_tasks.inspect.run import Run
from ul2_tasks.inspect.show import show
from ul2_tasks.tokenizers.special_ids import as_vocabulary, special_tokens

REPOSITORY = pathlib.Path(__file__).parents[2]
QUIET = Console(quiet=True)
LENGTHS = {"inputs": 48, "targets": 48}
TEXTS = [f"so! the document of number {number}, and so on!" + " and more!" * (number % 5) for number in range(60)]
UNUSED = [f"<unused{number}>" for number in range(30)]
R = SpanDenoiser(name="r", mean_span_length=3, noise_density=0.3, mode="[R]")


def save_qwen_like(folder: pathlib.Path) -> pathlib.Path:
    """A tokenizer whose id 0 is "!", with Qwen's files beside it, BERT's and Gemma's unused tokens, and some that a user added."""
    folder.mkdir(exist_ok=True)
    tokenizer = exclamation_first()
    tokenizer.add_special_tokens(["<|im_start|>", "<|fim_prefix|>", "<|vision_start|>", "<loc0000>", "<mine>", "[MASK]"])
    tokenizer.add_tokens([AddedToken(name, normalized=False) for name in ("</think>", "<tool_call>", *UNUSED, "[R]", "<my_0>")])
    tokenizer.save(str(folder / "tokenizer.json"))
    template = "{% for message in messages %}<|im_start|>{{ message.content }}<|im_end|><tool_call></think>{% endfor %}"
    roles = {"eos_token": "<|endoftext|>", "pad_token": {"content": "<mine>"}, "add_bos_token": False, "chat_template": template}
    (folder / "tokenizer_config.json").write_text(json.dumps(roles))
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_qwen_like(tmp_path_factory.mktemp("qwen"))


@pytest.fixture(scope="module")
def own(folder):
    """The tokenizer's own ids by name."""
    return json_tokenizer(folder).get_vocab(with_added_tokens=True)


def json_tokenizer(folder):
    return Tokenizer.from_file(str(folder / "tokenizer.json"))


@pytest.fixture(scope="module")
def name(folder, tmp_path_factory):
    """A mixture of one denoiser over a cached corpus, with sentinels and a mode by token."""
    cache = str(tmp_path_factory.mktemp("own_cache"))
    mixture = register("own_ids", MemoryDataSource(lambda: TEXTS, validation=0), folder, R, sentinels=UNUSED, modes={"[R]": "[R]"})
    build(corpus_named("own_ids_corpus"), cache, console=QUIET)
    before = seqio.get_global_cache_dirs()
    seqio.set_global_cache_dirs([cache])
    yield mixture
    seqio.set_global_cache_dirs(before)


def text_of(example, folder, own) -> str:
    """The text that an example was made of, by the tokenizer itself: each sentinel's span put back, without mode and EOS."""
    sentinels = [own[name] for name in UNUSED]
    inputs, targets = ([int(id) for id in example[key]] for key in ("inputs", "targets"))
    assert (inputs[0], inputs.pop(), targets.pop()) == (own["[R]"], own["<|endoftext|>"], own["<|endoftext|>"])
    spans: dict[int, list[int]] = {}
    for id in targets:
        if id in sentinels:
            spans[id] = span = []
        else:
            span.append(id)
    assert list(spans) == sentinels[: len(spans)]
    restored = [part for id in inputs[1:] for part in spans.get(id, [id])]
    return json_tokenizer(folder).decode(restored, skip_special_tokens=False)


def is_of_texts(chunk: str) -> bool:
    """Whether a chunk is of documents that are joined, in any order; the last may be cut after its first words."""
    return all(any(part in text + TEXTS[0] for text in TEXTS) for part in re.split("(?=so! the document)", chunk))


def lists(example) -> dict[str, list[int]]:
    return {key: [int(id) for id in example[key]] for key in ("inputs", "targets")}


@pytest.mark.torch
def test_every_way_out_gives_the_same_examples_with_the_tokenizers_own_ids(name, folder, own, tmp_path):
    pytest.importorskip("torch")
    found = ul2_tasks.examples(name, LENGTHS)
    wanted = list(map(lists, found))
    of_seqio = seqio.get_mixture_or_task(name).get_dataset(LENGTHS, "train", use_cached=True, seed=0, num_epochs=1)
    assert [{key: [id - 1 for id in ids] for key, ids in lists(each).items()} for each in of_seqio.as_numpy_iterator()] == wanted
    assert all(is_of_texts(text_of(each, folder, own)) for each in wanted)
    assert any(0 in each["inputs"] + each["targets"] for each in wanted), "that of '!' is among them"

    packed = ul2_tasks.examples(name, LENGTHS, pack=True)
    segments = [
        {key: row[key][row[f"{key}_segment_ids"] == segment].tolist() for key in ("inputs", "targets")}
        for row in packed
        for segment in range(1, row["inputs_segment_ids"].max() + 1)
    ]
    assert sorted(map(str, segments)) == sorted(map(str, wanted))
    for row in packed:
        assert not row["inputs"][row["inputs_segment_ids"] == 0].any()

    singles = ul2_tasks.UL2IterableDataset(name, LENGTHS, use_cached=True, num_epochs=1)
    assert [{"inputs": each["input_ids"].tolist(), "targets": each["labels"].tolist()} for each in singles] == wanted
    start = {"decoder_start_token_id": own["<|endoftext|>"]}
    converter = seqio_converter(HuggingFaceFeatureConverter("max_length", **start))
    converted = seqio.get_dataset(name, LENGTHS, converter, use_cached=True, num_epochs=1, shuffle=True, seed=0)
    batches = ul2_tasks.UL2IterableDataset(
        name, LENGTHS, use_cached=True, num_epochs=1, feature_converter=HuggingFaceFeatureConverter("longest", 1, **start)
    )
    for rows in (converted.as_numpy_iterator(), ({key: value[0].numpy() for key, value in batch.items()} for batch in batches)):
        assert [
            {"inputs": row["input_ids"][row["attention_mask"] > 0].tolist(), "targets": row["labels"][row["labels"] >= 0].tolist()}
            for row in rows
        ] == wanted

    for format in ("tfrecord", "parquet"):
        settings = {"format": format, "cache_dirs": seqio.get_global_cache_dirs(), "console": QUIET}
        write_examples(ul2_tasks.description_of(name), str(tmp_path / format), LENGTHS, **settings)
        assert list(map(lists, read_examples(str(tmp_path / format)))) == wanted

    run = Run(name, LENGTHS, "train", 0, batch_size=4, pack=False)
    for view in show(run, 2).views:
        assert view.ids == wanted[view.number]


@pytest.fixture(scope="module")
def unknown_first(tmp_path_factory):
    """A tokenizer as Llama's: its id 0 is <unk>, which no text becomes, and it names no padding."""
    folder = tmp_path_factory.mktemp("unknown")
    byte_fallback().save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text('{"eos_token": "</s>"}')
    return folder


@pytest.mark.torch
@pytest.mark.parametrize("pack", [False, True])
def test_a_decoder_of_descriptions_begins_with_no_token_that_nobody_named(folder, unknown_first, pack):
    for vocabulary in (folder, unknown_first):
        mixture = ul2_tasks.Mixture("own_start", MemoryDataSource(lambda: TEXTS, validation=0), vocabulary, R)
        found = ul2_tasks.examples(mixture, LENGTHS, pack=pack)
        for use in (
            ul2_tasks.ExamplesCollator,
            lambda each, of: ul2_tasks.UL2IterableDataset(of, feature_converter=each),
        ):
            with pytest.raises(ValueError, match="decoder_start_token_id must be given"):
                use(HuggingFaceFeatureConverter(pack=pack), found)
            use(HuggingFaceFeatureConverter(pack=pack, decoder_start_token_id=3), found)


TAKEN = {
    "d": "ordinary",
    "</think>": "in the chat template",
    "<|im_start|>": "in the chat template",
    "<mine>": "pad_token in tokenizer_config.json",
    "<|endoftext|>": "EOS",
}


@pytest.mark.parametrize("by", ["id", "token", "mode", "mode by id"])
@pytest.mark.parametrize("token", TAKEN)
def test_what_something_else_needs_is_no_sentinel_and_no_mode(token, by, folder, own):
    vocabulary = ul2_tasks.open_vocabulary(folder, sentinels=4, modes=[])
    if token == "d" and by == "mode":
        assert special_tokens(vocabulary, "[Q]", modes={"[Q]": "d"}).mode == (own["d"],), "a text, which is tokenized"
        return
    given = {"id": {"sentinels": [own[token]]}, "token": {"sentinels": [token]}, "mode": {"modes": {"[Q]": token}}}.get(
        by, {"modes": {"[Q]": own[token]}}
    )
    what = r"mode '\[Q\]'" if "mode" in by else "sentinels"
    with pytest.raises(ValueError, match=f"{what} .*got {own[token]}, .*{TAKEN[token]}"):
        special_tokens(vocabulary, "[Q]" if "mode" in by else None, **given)


def test_tokens_that_are_free_are_taken_by_token_and_by_id_and_kept_out_of_text(folder, own):
    vocabulary = ul2_tasks.open_vocabulary(folder, sentinels=0, modes=[])
    names = ["<my_0>", "<unused7>"]
    special = special_tokens(vocabulary, "[Q]", names, {"[Q]": "[R]"})
    assert special == special_tokens(vocabulary, "[Q]", [own[name] for name in names], {"[Q]": own["[R]"]})
    assert special.sentinels == tuple(own[name] for name in names)
    assert special.mode == (own["[R]"],)
    assert special.reserved == {*special.mode, *special.sentinels}
    text = vocabulary.never_encoding(special.reserved)
    assert not special.reserved & set(text.encode("a <my_0> [R]<unused7> b"))
    with pytest.raises(ValueError, match="<unused99>"):
        special_tokens(vocabulary, None, ["<unused0>", "<unused99>"])
    with pytest.raises(ValueError, match="<a>"):
        special_tokens(as_vocabulary(seqio.ByteVocabulary(extra_ids=3)), None, ["<a>"])


def test_a_decoder_begins_with_no_token_that_nobody_named(name, folder, unknown_first):
    """Without a model it is id 0, the padding of T5's tokenizer. Of others that is a token like any other."""
    with pytest.raises(ValueError, match="decoder_start_token_id must be given"):
        seqio.get_dataset(name, LENGTHS, seqio_converter(HuggingFaceFeatureConverter()), use_cached=True, num_epochs=1)
    for vocabulary in (folder, unknown_first):
        with pytest.raises(ValueError, match="decoder_start_token_id must be given"):
            UL2DataCollator(vocabulary, LENGTHS, return_tensors="np")
        assert "labels" in UL2DataCollator(vocabulary, LENGTHS, return_tensors="np", decoder_only=True)(["so and so"])


@pytest.mark.parametrize("zero_is_text", [True, False])
def test_a_page_decodes_the_ids_of_its_examples(zero_is_text, tmp_path, monkeypatch, capsys):
    """Those of examples are the tokenizer's own, and those of SeqIO are one higher where 0 is a token of text."""
    pytest.importorskip("transformers")
    page = (REPOSITORY / "docs" / "get_started" / "from_hugging_face.md").read_text()
    code = "".join(re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)[:2])
    if zero_is_text:  # special tokens come last, as Qwen's
        code = code.replace('special_tokens=["<pad>", "</s>"], ', "")
        code = code.replace("tokenizer = transformers", 'core.add_special_tokens(["<pad>", "</s>"])\ntokenizer = transformers', 1)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "corpus").mkdir()
    documents = ul2_tasks.embedded_documents()
    (tmp_path / "corpus" / "one.jsonl").write_text("\n".join(json.dumps({"text": text}) for text in documents))
    exec(compile(code, "page", "exec"), variables := {})
    assert ul2_tasks.seqio_vocabulary(variables["vocabulary"]).id_shift == zero_is_text
    denoiser, text = capsys.readouterr().out.split(" ", 1)
    mode = text[:3]
    assert mode == f"[{denoiser[0].upper()}]"
    beginning = text[3:].partition("<extra_id")[0].strip()
    assert beginning
    assert any(beginning in document for document in documents)
