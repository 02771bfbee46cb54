"""One's own corpus and vocabulary, from the files to the examples: nothing is lost, and no text becomes a special token."""

import re

import pytest
import seqio

from tests.support import described, flat, mistral_model, restore_all, t5_model, write_jsonl
from ul2_tasks import T5GEMMA2, register
from ul2_tasks.corpus.corpus import corpus_settings

LENGTHS = {"inputs": 64, "targets": 64}
TWO = T5GEMMA2[2:4]  # enough where the corpus is what is tested
DOCUMENTS = [
    "Plain English, naïve café.",
    "x",
    "",
    "a NUL \0 in the middle",
    "مرحبا بالعالم، שלום עולם",
    "日本語のテキストと中文文本。" * 20,
    "<extra_id_0> <extra_id_1> [R] [S] [X] </s> <s> <unk> <pad> <0x41>",
    *("<extra_id_0>", " <extra_id_7>x<extra_id_7> ", "[R]", "[R] [S][X]", "▁<extra_id_0>"),
    *(f"document number {n} " + "and more words " * (n % 20) for n in range(300)),
]


VOCABULARIES = {
    "default": lambda path: ("default", {}),
    "bytes": lambda path: ("bytes", {}),
    "mistral": lambda path: (mistral_model(), {}),
    "seqio's extra ids": lambda path: (
        seqio.SentencePieceVocabulary(t5_model(path / "t5.model"), extra_ids=103),
        {"modes": {"[R]": 32100, "[S]": 32101, "[X]": 32102}},
    ),
}


@pytest.fixture
def name(request):
    """One for each test, of letters that SeqIO allows."""
    return re.sub(r"\W", "_", request.node.name)


@pytest.fixture(params=VOCABULARIES)
def vocabulary(request, tmp_path):
    return VOCABULARIES[request.param](tmp_path)


@pytest.mark.parametrize(
    ("vocabulary", "separate_documents"), [*((name, False) for name in VOCABULARIES), ("mistral", True)], indirect=["vocabulary"]
)
def test_every_token_of_every_document_comes_back_and_no_text_becomes_a_special_id(tmp_path, vocabulary, separate_documents, name):
    spec, settings = vocabulary
    path = write_jsonl(tmp_path / "a.jsonl", DOCUMENTS)
    mixture = seqio.get_mixture_or_task(register(name, path, spec, TWO[:1], separate_documents=separate_documents, **settings))
    encode = mixture.tasks[0].source.corpus.tokenizer.encode
    for task in mixture.tasks:
        special = described(task).special_tokens()
        end = [special.eos] if separate_documents else []
        examples = list(task.get_dataset(LENGTHS, "train", shuffle=False).as_numpy_iterator())
        tokens = restore_all(examples, task.denoiser, special)
        assert tokens == flat(list(encode(text)) + end for text in DOCUMENTS if text)
        assert not special.reserved & set(tokens)
        assert max(len(example[feature]) for example in examples for feature in ("inputs", "targets")) <= 64


def test_a_vocabulary_of_user_defined_sentinels_has_a_cache_of_its_own(tmp_path):
    """What is kept out of a text is part of what decides its tokens; control pieces, which no text becomes, are not."""
    own, modes = VOCABULARIES["seqio's extra ids"](tmp_path)
    vocabularies = (
        (own, modes),
        (own, modes | {"sentinels": range(32050, 32000, -1)}),
        ("default", {}),
        ("default", {"sentinels": range(3, 50)}),
    )
    kept = []
    for number, (vocabulary, arguments) in enumerate(vocabularies):
        register(f"kept_{number}", write_jsonl(tmp_path / "a.jsonl", DOCUMENTS), vocabulary, **arguments)
        kept.append(corpus_settings(seqio.TaskRegistry.get(f"kept_{number}_corpus").corpus)["kept_out_of_text"])
    assert kept[0] != kept[1] != kept[2] == kept[3] == "none"
