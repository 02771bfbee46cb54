"""Ids are those of `transformers`, whatever lies beside a tokenizer, and a file that is replaced is read again."""

import json
import random

import pytest
import sentencepiece
import seqio
from sentencepiece import sentencepiece_model_pb2
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoTokenizer

from tests.commands.running import ul2
from tests.support import trained_model
from ul2_tasks import Mixture, open_renderer, open_vocabulary
from ul2_tasks.tokenizers.by_name import open_for_modes
from ul2_tasks.tokenizers.special_ids import special_tokens, vocabulary_identity

MODES = ("[R]", "[S]", "[X]")
TEXTS = ["a b c", "plain text of 7 words, naïve 日本", " two  spaces", "<|im_start|>user", ""]
LAYOUTS = {
    "llama": {"unk_id": 0, "bos_id": 1, "eos_id": 2, "pad_id": -1},
    "t5": {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1},
}


@pytest.fixture(scope="module")
def pieces():
    """SentencePiece models of two kinds and two layouts."""
    return {each: trained(*each) for each in (("bpe", "llama"), ("unigram", "llama"), ("bpe", "t5"))}


def trained(kind, layout, more="a b c", **ids) -> bytes:
    sentences = [f"plain text of {number} <words>, naïve user {more}" for number in range(60)]
    return trained_model(sentences, model_type=kind, vocab_size=295, byte_fallback=True, **{**LAYOUTS[layout], **ids})


def folder_of(folder, files) -> str:
    folder.mkdir(exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content if isinstance(content, bytes) else json.dumps(content, indent=1).encode())
    return str(folder)


def words() -> bytes:
    """The tokenizer.json of a few words: 0 <unk>, 1 a, 2 b, 3 c, 4 </s>, 5 <think>."""
    tokenizer = Tokenizer(models.WordLevel({"<unk>": 0, "a": 1, "b": 2, "c": 3}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens(["<unk>", "</s>"])
    tokenizer.add_tokens(["<think>"])
    return tokenizer.to_str().encode()


def check_as_loaded(vocabulary, folder, texts=TEXTS, meant=()):
    """All ids of `transformers` are ours, of texts too, and sentinels and modes are none of them, and none of the ids `meant`."""
    loaded = AutoTokenizer.from_pretrained(folder)
    names = loaded.get_vocab()
    assert {name: vocabulary.piece_id(name) for name in names} == names
    expected = [loaded.eos_token_id, loaded.bos_token_id, loaded.unk_token_id]
    assert [vocabulary.eos_id, vocabulary.bos_id, vocabulary.unk_id if loaded.unk_token else None] == expected
    assert vocabulary.pad_id == loaded.pad_token_id
    specials = [special_tokens(vocabulary, mode) for mode in MODES]
    own = {id for special in specials for id in (*special.sentinels, *special.mode)}
    of_others = {id for name, id in names.items() if not name.startswith("<extra_id_") and name not in MODES}
    assert not own & {*of_others, *meant}
    tokenized = vocabulary.never_encoding(own)
    for text in texts:
        if not any(name in text for name in loaded.all_special_tokens):
            assert tokenized.encode(text) == loaded.encode(text, add_special_tokens=False), text
    return own


CLASSES = {  # of `transformers`, the name of their file, and whether pieces keep their ids there
    "LlamaTokenizer": ("tokenizer.model", True),
    "PreTrainedTokenizerFast": ("tokenizer.model", True),
    "T5Tokenizer": ("spiece.model", True),
    "XLMRobertaTokenizer": ("sentencepiece.bpe.model", False),
    "MBartTokenizer": ("sentencepiece.bpe.model", False),
}


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
@pytest.mark.parametrize("name", CLASSES)
def test_a_sentencepiece_model_with_files_beside_is_what_transformers_makes_of_them(name, kind, pieces, tmp_path):
    file, keeps = CLASSES[name]
    content = pieces[kind, "llama"]
    size = len(sentencepiece_model_pb2.ModelProto.FromString(content).pieces)
    settings = {"tokenizer_class": name, "eos_token": "<|im_end|>", "additional_special_tokens": ["<|im_start|>"]}
    files = {file: content, "tokenizer_config.json": settings}
    if keeps:
        files["added_tokens.json"] = {"<|im_end|>": size + 1, "<|im_start|>": size}
    folder = folder_of(tmp_path / "model", files)
    for spec in (folder, f"{folder}/{file}"):
        check_as_loaded(open_vocabulary(spec), folder)
    assert open_vocabulary(folder) == open_vocabulary(f"{folder}/{file}") == open_vocabulary(AutoTokenizer.from_pretrained(folder))
    if name == "T5Tokenizer":
        vocabulary = open_vocabulary(folder, sentinels=100)
        sentinels = special_tokens(vocabulary, "[R]").sentinels
        assert sentinels[:2] == (size + 99, size + 98), "downwards, as T5's"


def test_a_model_alone_is_what_its_file_says(pieces, tmp_path):
    """Whatever its name is, and with files beside it that are not a tokenizer's."""
    content = pieces["bpe", "t5"]
    folder = folder_of(tmp_path / "alone", {"mine.model": content, "config.json": {"learning_rate": 1}, "mine.json": {}})
    vocabulary, own = open_vocabulary(folder), sentencepiece.SentencePieceProcessor(model_proto=content)
    assert vocabulary == open_vocabulary(f"{folder}/mine.model")
    assert (vocabulary.eos_id, vocabulary.piece_id("<extra_id_0>")) == (1, own.get_piece_size())
    assert [vocabulary.encode(text) for text in TEXTS] == [own.encode(text) for text in TEXTS]


def test_a_folder_that_transformers_cannot_read_is_an_error_that_names_it(tmp_path):
    folder = folder_of(
        tmp_path / "broken", {"tokenizer.model": b"no model", "tokenizer_config.json": {"tokenizer_class": "Nobodys"}}
    )
    with pytest.raises(ValueError, match="broken"):
        _ = open_vocabulary(folder).eos_id


def random_companions(seed) -> dict[str, dict]:
    """Files that name tokens of `words` and others, in the ways in which files of models do."""
    rng = random.Random(seed)
    names = ["</s>", "<think>", "<unk>", "[PAD]", "<s>", "<|im_end|>", "[MASK]", "a"]

    def token(name):
        flags = {"lstrip": False, "rstrip": False, "normalized": False, "single_word": False}
        return {"content": name, **flags} if rng.random() < 0.3 else name

    def roles(most):
        chosen = rng.sample(["bos", "unk", "pad", "sep", "cls", "mask", "eos"], rng.randrange(most))
        return {f"{role}_token": token("<unk>" if role == "unk" else rng.choice(names)) for role in chosen}

    plain = {key: value if isinstance(value, str) else value["content"] for key, value in roles(5).items()}
    settings = {"eos_token": rng.choice(names), **plain, "add_bos_token": True}
    if rng.random() < 0.3:
        settings["image_token"] = "<img>"
    if rng.random() < 0.4:
        settings[rng.choice(["additional_special_tokens", "extra_special_tokens"])] = ["<x>", "</s>", "<y>"]
    elif rng.random() < 0.3:
        settings["extra_special_tokens"] = {"video_token": "<vid>"}
    if rng.random() < 0.4:
        flags = {"lstrip": False, "normalized": False, "rstrip": False, "single_word": False}
        listed = {4: "</s>", 6: "<|im_start|>", 7: "[R]"} if rng.random() < 0.5 else {7: "<z>", 6: "<w>"}
        settings["added_tokens_decoder"] = {str(id): {"content": name, **flags, "special": True} for id, name in listed.items()}
    files = {"tokenizer_config.json": settings}
    if rng.random() < 0.5:
        files["special_tokens_map.json"] = roles(6)
    if rng.random() < 0.5:
        files["added_tokens.json"] = {"<|im_start|>": 7, "<tool>": 6} if rng.random() < 0.7 else {"<late>": 9}
    if rng.random() < 0.6:
        files["config.json"] = {
            "vocab_size": 64,
            "pad_token_id": 8,
            "bos_token_id": 50256,
            "text_config": {"image_token_index": 20},
        }
        files["generation_config.json"] = {"eos_token_id": [4, 30], "decoder_start_token_id": None}
    return files


def test_a_tokenizer_json_with_files_beside_has_the_ids_that_transformers_gives_its_tokens(tmp_path):
    """300 random sets of files, some of which name tokens that the tokenizer.json lacks."""
    appended = 0
    for seed in range(300):
        files = {"tokenizer.json": words(), **random_companions(seed)}
        folder = folder_of(tmp_path / f"{seed}", files)
        vocabulary = open_vocabulary(folder, sentinels=5)
        appended += len(vocabulary.tokens.ids) > 6 + 8
        own = check_as_loaded(vocabulary, folder, ["a b c", "a <think> b"], meant=[20, 30, 8] if "config.json" in files else [])
        assert max(own) < 50
    assert appended > 200


def test_a_model_without_an_eos_is_an_error_not_an_id(tmp_path):
    content = trained("bpe", "t5", eos_id=-1, unk_id=1)
    path = f"{folder_of(tmp_path / 'endless', {'my.model': content})}/my.model"
    assert (open_vocabulary(path).eos_id, open_vocabulary(path).bos_id) == (None, None)
    for vocabulary in (path, seqio.SentencePieceVocabulary(path, extra_ids=100)):
        with pytest.raises(ValueError, match="EOS"):
            special_tokens(open_for_modes(vocabulary, [], None, None)[0], None)
    with pytest.raises(ValueError, match="EOS"):
        open_renderer(f"harmony:{path}")


@pytest.mark.parametrize(
    ("sentinels", "said"),
    [
        ([20], "image_token_index in config.json"),
        ([10], "'<late>' in added_tokens.json"),
        (["[MASK]"], "mask_token in special_tokens_map.json"),
    ],
)
def test_ids_that_files_give_a_meaning_are_no_sentinels(sentinels, said, tmp_path):
    files = {
        "tokenizer_config.json": {"eos_token": "</s>", "additional_special_tokens": [f"<free_{n}>" for n in range(14)]},
        "special_tokens_map.json": {"mask_token": "[MASK]"},
        "added_tokens.json": {"<tool>": 6, "<unused0>": 7, "<late>": 10},
        "config.json": {"text_config": {"image_token_index": 20, "vocab_size": 64}},
    }
    vocabulary = open_vocabulary(folder_of(tmp_path / "meant", {"tokenizer.json": words(), **files}))
    with pytest.raises(ValueError, match=said):
        special_tokens(vocabulary, "[R]", sentinels=sentinels)
    free = special_tokens(vocabulary, "[R]", sentinels=["<free_7>", "<unused0>"]).sentinels
    assert free == (vocabulary.piece_id("<free_7>"), vocabulary.piece_id("<unused0>")), "what files list is not all taken"


@pytest.mark.parametrize("kind", ["tokenizer.json", "companion", "sentencepiece", "converted"])
def test_a_tokenizer_that_is_replaced_is_read_again(kind, pieces, tmp_path):
    """By who opens it again; who has it open keeps what it was."""
    config, other = {"tokenizer_config.json": {"eos_token": "</s>"}}, trained("bpe", "t5", "context")
    swapped = words().replace(b'"a":1,"b":2', b'"a":2,"b":1')
    before, after, spec = {
        "tokenizer.json": ({"tokenizer.json": words(), **config}, {"tokenizer.json": swapped}, ""),
        "companion": ({"tokenizer.json": words(), **config}, {"tokenizer_config.json": {"eos_token": "<think>"}}, ""),
        "sentencepiece": ({"my.model": pieces["bpe", "t5"]}, {"my.model": other}, "my.model"),
        "converted": ({"tokenizer.model": pieces["bpe", "t5"], **config}, {"tokenizer.model": other}, ""),
    }[kind]
    path = folder_of(tmp_path / "replaced", before)
    spec = f"{path}/{spec}".rstrip("/")
    first, mixture = open_vocabulary(spec), Mixture("replaced", vocabulary=spec)
    had = vocabulary_identity(first), [first.encode(text) for text in TEXTS], first.eos_id, mixture.fingerprint()
    special_tokens(first, "[R]")
    folder_of(tmp_path / "replaced", after)
    again = open_vocabulary(spec)
    assert again != first
    assert first != again
    assert vocabulary_identity(again) != had[0]
    assert (vocabulary_identity(first), [first.encode(text) for text in TEXTS], first.eos_id) == had[:3]
    assert Mixture("replaced", vocabulary=spec).fingerprint() != had[3]


def test_the_doctor_finds_ids_that_clash(tmp_path):
    files = {"tokenizer_config.json": {"eos_token": "</s>", "pad_token": "<unk>", "chat_template": "{{ messages[0].content }}"}}
    files["config.json"] = {"vocab_size": 64, "pad_token_id": 0, "bos_token_id": 50256}
    for name, eos in (("same", [4, 5]), ("other", [5])):
        folder_of(tmp_path / name, {"tokenizer.json": words(), **files, "generation_config.json": {"eos_token_id": eos}})
    assert open_vocabulary(str(tmp_path / "same")).tokens.clashes == ()
    moved = folder_of(tmp_path / "moved", {"tokenizer.json": words(), **files, "added_tokens.json": {"<tool>": 8}})
    [clash] = open_vocabulary(moved).tokens.clashes
    assert clash.startswith("'<tool>' is 6 ")
    folder, corpus = tmp_path / "other", tmp_path / "corpus.jsonl"
    corpus.write_text(json.dumps({"text": "a b c " * 50, "messages": [{"role": "assistant", "content": "a b"}]}) + "\n")
    done = ul2("doctor", "clash", "--corpus", corpus, "--vocabulary", folder)
    assert (done.exit_code, "generation_config.json" in done.stdout) == (1, True), done.output
