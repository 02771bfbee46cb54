"""Reads a Hugging Face `tokenizer.json` and adds sentinels and modes to it. Needs the package `tokenizers`, not `transformers`.

The format, as far as it matters here. A BPE, WordPiece or WordLevel model maps tokens to ids; in a Unigram model an id is a
place in a list. Ids have gaps where the model and the added tokens leave some out.

    {"model": {"vocab": {"a": 0, "b": 1, "ab": 2}, "merges": [["a", "b"]], "unk_token": null, ..}    BPE
          or  {"vocab": [["<unk>", 0.0], ["a", -3.2], ..], "unk_id": 0, ..},                         Unigram
     "added_tokens": [{"id": 3, "content": "</s>", "special": true, ..},
                      {"id": 4, "content": "<think>", "special": false, ..}],
     "post_processor": .., "truncation": .., "padding": .., ..}

`tokenizers` looks for the names of all added tokens in a text, so that it encodes a text with "</s>" in it to EOS. Training
text must never do that. So two tokenizers are made of the file:

    encoder   text to ids   knows all names but those of never-encoded ids: special tokens, sentinels, modes
    decoder   ids to text   knows all names

A conversation is text with special tokens in it, so `load_marked` makes a third one, which knows special tokens by private names.

The encoder forgets a name by editing the description: the name is left out of `added_tokens`, of the model's `vocab`, and with
it the merges that need it. In a Unigram model, where that would move the ids after it, the token gets a random name, which
no text spells.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import pathlib
import re
import secrets
import tempfile
from collections.abc import Iterable, Mapping, Set
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from ul2_tasks.extras import needs
from ul2_tasks.files.listing import read_as_it_is
from ul2_tasks.files.systems import exists, is_folder, names_in, place
from ul2_tasks.scalars import is_integer, short
from ul2_tasks.tokenizers.base import Tokens
from ul2_tasks.tokenizers.fast import FastEncoder, of_tokenizer_json
from ul2_tasks.tokenizers.pieces import free_name, is_unused, is_word

if TYPE_CHECKING:
    import tokenizers
    import transformers

    Tokenizer: TypeAlias = transformers.PreTrainedTokenizerFast | tokenizers.Tokenizer

TOKENIZER = "tokenizer.json"
_OF_A_TOKENIZER = ("save_pretrained", "convert_tokens_to_ids")  # of `transformers`, also of a slow one
_SENTINEL = re.compile(r"<extra_id_\d+>")
_MOST_ID = 1 << 24  # lists are made of all ids, gaps included
COMPANIONS = ("tokenizer_config.json", "special_tokens_map.json")  # files beside it, which name EOS and other roles
_ADDED = "added_tokens.json"  # tokens by name, with their ids
_MODEL = ("config.json", "generation_config.json")  # of the model, which name ids
_TEMPLATES = ("chat_template.jinja", "chat_template.json")  # files beside it, where its chat template is in none of these
_BESIDE = (*COMPANIONS, _ADDED, *_MODEL, *_TEMPLATES)
_ROLES = tuple(f"{role}_token" for role in ("bos", "eos", "unk", "sep", "pad", "cls", "mask"))  # as `transformers` orders them
_FLAGS = ("single_word", "lstrip", "rstrip", "normalized")  # of an added token
# SentencePiece models that `transformers` reads together with the files beside them.
LOADED_MODELS = ("tokenizer.model", "spiece.model", "sentencepiece.bpe.model", "sentencepiece.model", "spm.model")
_OF_TRANSFORMERS = (*LOADED_MODELS, "vocab.json", "vocab.txt", "source.spm", "tokenizer.tiktoken")
_OF_TOKENIZERS = (".json", ".jinja", ".txt", ".model", ".spm", ".tiktoken")  # how the files of a tokenizer end


@dataclasses.dataclass(frozen=True)
class InMemory:
    """A tokenizer that is in memory: what it would save. It can be sent to another process.

    Attributes:
        content: of its `tokenizer.json`.
        beside: the files beside that one which are read here, each with its content.
        name: the path that it was read from; empty for a user's object.
    """

    content: bytes
    beside: tuple[tuple[str, bytes], ...]
    name: str = dataclasses.field(default="", compare=False)

    def __repr__(self) -> str:
        """What its user may call it: errors show it in expressions to paste."""
        return repr(self.name) if self.name else "tokenizer"

    def __str__(self) -> str:
        return self.name or "the tokenizer"


def in_memory(tokenizer: object) -> InMemory | None:
    """A fast tokenizer of `transformers`, or a `tokenizers.Tokenizer`, as it is now; None for anything else.

    Truncation and padding, which a call of the tokenizer sets, are left out, so that they make no other tokenizer of it. A slow
    tokenizer raises a ValueError.
    """
    if isinstance(tokenizer, InMemory):
        return tokenizer
    backend: Any = getattr(tokenizer, "backend_tokenizer", tokenizer)
    if hasattr(type(backend), "to_str") and hasattr(type(backend), "encode_batch_fast"):
        if backend.padding or backend.truncation:
            backend = type(backend).from_str(backend.to_str())
            backend.no_padding()
            backend.no_truncation()
        settings = getattr(tokenizer, "special_tokens_map", {}) | {"chat_template": getattr(tokenizer, "chat_template", None)}
        return InMemory(backend.to_str(pretty=True).encode(), ((COMPANIONS[0], json.dumps(settings, default=str).encode()),))
    if all(hasattr(tokenizer, name) for name in _OF_A_TOKENIZER) and not isinstance(tokenizer, type):
        file = getattr(tokenizer, "vocab_file", None)
        has_file = ".model" in f"{file}"  # of SentencePiece
        remedy = f"its file, {file!r}" if has_file else "the folder with its model's tokenizer.json, or 'bytes' for ByT5"
        raise ValueError(
            "vocabulary must be a fast tokenizer of transformers, which has a backend_tokenizer, got a slow"
            f" {type(tokenizer).__name__}. Pass {remedy}."
        )
    return None


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Loaded(Tokens):
    """A tokenizer that was read: what makes ids of texts, and a `tokenizers.Tokenizer` that makes texts of ids."""

    encoder: FastEncoder
    decoder: Any


def is_loaded(files: Set[str]) -> bool:
    """Whether a folder of these files has a tokenizer that `transformers` loads, whose tokens more than one file names."""
    return TOKENIZER in files or not (files.isdisjoint(_OF_TRANSFORMERS) or files.isdisjoint((*COMPANIONS, _ADDED, _MODEL[0])))


def opened(path: str | InMemory) -> InMemory:
    """The tokenizer that a file is, or that a folder has, as it is now, with the tokens that the files beside it add.

    A folder without a tokenizer.json has what `transformers` makes of its files. Raises a ValueError where there is no tokenizer.
    """
    if isinstance(path, InMemory):
        return path
    is_in_folder = is_folder(path)
    file = place(path, TOKENIZER) if is_in_folder else path
    if exists(file):
        beside = {name: read_as_it_is(other) for name in _BESIDE if exists(other := _beside(file, name))}
        found = InMemory(read_as_it_is(file), tuple(beside.items()), file)
        return dataclasses.replace(found, content=_with_named(found))
    if is_in_folder and is_loaded(names := names_in(path)):
        files = {name: read_as_it_is(place(path, name)) for name in sorted(names) if name.endswith(_OF_TOKENIZERS)}
        return _by_transformers(path, tuple(files.items()))
    raise ValueError(
        f"the tokenizer must be a Hugging Face {TOKENIZER}, or a folder that has one, got {file}, which does not exist."
    )


@functools.lru_cache(maxsize=8)
def _by_transformers(folder: str, files: tuple[tuple[str, bytes], ...]) -> InMemory:
    """The tokenizer that `transformers` makes of the files of a folder. It runs no code of theirs, and asks nobody else."""
    remedy = f"Save it where transformers is: AutoTokenizer.from_pretrained({folder!r}).save_pretrained(..), and pass that folder"
    try:
        import transformers
    except ImportError as error:
        raise ImportError(f"{folder} has no {TOKENIZER}, so its tokenizer needs the package transformers. {remedy}.") from error
    with tempfile.TemporaryDirectory() as copied:
        for name, content in files:
            pathlib.Path(copied, name).write_bytes(content)
        try:
            made = transformers.AutoTokenizer.from_pretrained(copied, local_files_only=True, trust_remote_code=False)
            found = in_memory(made) if hasattr(made, "backend_tokenizer") else None  # a slow one has none
        except Exception as error:  # of any type: it runs all kinds of conversions
            raise ValueError(
                f"{folder} must have a {TOKENIZER}, or files that transformers makes a fast tokenizer of, got an error:"
                f" {str(error).partition(chr(10))[0]}. {remedy}."
            ) from error
    if found is None:
        raise ValueError(f"{folder} must have a fast tokenizer, got a {type(made).__name__} of transformers. {remedy}.")
    beside = {name: content for name, content in files if name in (*_MODEL, *_TEMPLATES, _ADDED)} | dict(found.beside)
    return InMemory(found.content, tuple(beside.items()), folder)


@functools.lru_cache(maxsize=8)
def load(source: InMemory, names: tuple[str, ...], eos_name: str | None, never_encoded: frozenset[int]) -> Loaded:
    """Makes a vocabulary of a tokenizer.

    The names are of sentinels and modes. A name that is an added token has its id; the others get ids after the last one that the
    tokenizer has or the files beside it give a meaning. By default EOS is the token that these name. No text is encoded to the ids
    `never_encoded`, beside special tokens, EOS, sentinels and modes. A tokenizer without EOS raises a ValueError.
    """
    description, own = _described(source), _ids_of(source)
    is_special = {token["content"]: token["special"] for token in description["added_tokens"]}
    is_special |= {name: True for name in own if _SENTINEL.fullmatch(name)}  # T5's may be no added tokens
    by_role = special_tokens_of(settings_of(source))
    eos = own[_eos_name(source, eos_name or by_role.get("eos_token"), is_special)]
    becomes = _unknown(description["model"], own)  # which a text becomes that has no other token

    meanings = {id: f"{key} in {file}" for file, key, id in _ids_of_the_model(source)}
    meanings |= {id: f"{token!r} in {file}" for file, token, id in _ids_of_tokens(source) if own.get(token) != id}
    first = max([*own.values(), *meanings]) + 1
    lacking = {name: first + number for number, name in enumerate(name for name in names if name not in is_special)}
    special = {name: own[name] for name in names if name in is_special} | lacking
    spelled = {free_name(name, own): id for name, id in lacking.items()}  # an ordinary token may have the name already

    never = {own[name] for name, special_token in is_special.items() if special_token} | {eos, *special.values()}
    text_becomes_0 = 0 in own.values() and 0 not in never
    unknown_is_0 = becomes == 0 and not _has_byte_fallback(description["model"], own)
    never |= never_encoded

    names_of = {id: name for name, id in {**own, **spelled}.items()}
    edited_names = {own[name]: name for name in is_special} | {id: name for name, id in spelled.items()}
    added = frozenset(id for name, id in own.items() if name in is_special or is_unused(name))
    ids_of_content = hashlib.sha256(source.content).hexdigest()
    ids_of_names = hashlib.sha256(json.dumps([special, sorted(never_encoded)]).encode()).hexdigest()[:16]
    return Loaded(
        encoder=of_tokenizer_json(_without(description, edited_names, never)),
        decoder=_without(description, edited_names, frozenset()),
        vocab_size=first + len(lacking),
        extra_ids=len(lacking),
        bos_id=own.get(by_role.get("bos_token", "")),
        eos_id=eos,
        unk_id=own.get(by_role.get("unk_token", ""), becomes),
        pad_id=own.get(by_role.get("pad_token", "")),
        uses_0=text_becomes_0 or unknown_is_0 or 0 in {eos, *special.values()},
        identity=f"sha256 {ids_of_content}, special {ids_of_names}",
        ids=own | special,
        names=names_of,
        ordinary=names_of.keys() - added - never,
        encodable=added - never,
        roles=_roles(source, [name for name in is_special if name not in names])
        | {names_of.get(id, f"<{id}>"): meaning for id, meaning in meanings.items() if names_of.get(id) not in names},
        clashes=tuple(_clashes(source, own, by_role)),
    )


class Marked(NamedTuple):
    """A tokenizer for text that markers stand in: a `tokenizers.Tokenizer`.

    `ids` are the ids of the markers, by their names. A marker is an added token that is special, or whose name has
    more than letters, digits and spaces in it. `private` are the markers' private names, which no text spells and which alone the
    tokenizer knows, by their names.
    """

    tokenizer: Any
    ids: dict[str, int]
    private: dict[str, str]


@functools.lru_cache(maxsize=2)
def load_marked(source: InMemory) -> Marked:
    """Makes a tokenizer that does all that the other does, except that its markers have other names."""
    description, own = _described(source), _ids_of(source)
    model, added = description["model"], description["added_tokens"]
    private = {token["content"]: secrets.token_hex(16) for token in added if token["special"] or not is_word(token["content"])}
    ids = {name: own[name] for name in private}
    if isinstance(model["vocab"], Mapping):
        model = _edited_mapping(model, {}, frozenset(ids.values()))
    renamed = [{**token, "content": private.get(token["content"], token["content"])} for token in added]
    names = {own[token["content"]]: new["content"] for token, new in zip(added, renamed)}
    tokenizer = _without({**description, "model": model, "added_tokens": renamed}, names, frozenset())
    unknown = _unknown(description["model"], own)  # which text becomes, too
    return Marked(tokenizer, {name: id for name, id in ids.items() if id != unknown}, private)


def _tokenizers():
    with needs("a Hugging Face tokenizer", "huggingface"):
        import tokenizers
    return tokenizers


def _described(source: InMemory) -> dict[str, Any]:
    """What the content of a tokenizer describes, which `tokenizers` has found right."""
    _ids_of(source)
    return {"added_tokens": [], **json.loads(source.content)}


@functools.lru_cache(maxsize=2)
def _ids_of(source: InMemory) -> dict[str, int]:
    """The ids of all tokens that a tokenizer has, by name."""
    return _tokenizer(source).get_vocab(with_added_tokens=True)


def _tokenizer(source: InMemory) -> Any:
    """What `tokenizers` makes of the content. It raises an error of no type of its own."""
    from_str = _tokenizers().Tokenizer.from_str
    try:
        made = from_str(source.content.decode())
    except Exception as error:
        raise ValueError(f"{source} must be a Hugging Face {TOKENIZER} that `tokenizers` saved, got an error: {error}.") from error
    if (last := max(made.get_vocab(with_added_tokens=True).values(), default=0)) > _MOST_ID:
        raise ValueError(f"{source} must have ids of at most {_MOST_ID}, got {last}.")
    return made


def _beside(file: str, name: str) -> str:
    """The path of another file in the tokenizer's folder."""
    return f"{file.rpartition('/')[0]}/{name}" if "/" in file else name


def _companion(source: InMemory, name: str) -> Mapping[str, Any]:
    """What a file of JSON beside the tokenizer has; nothing where there is none."""
    path = _beside(source.name, name)
    try:
        found = json.loads(dict(source.beside).get(name, b"{}").decode())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} must be a JSON object, got an error: {error}.") from error
    if not isinstance(found, Mapping):
        raise ValueError(f"{path} must be a JSON object, got {short(found)}.")
    return found


def settings_of(source: InMemory) -> dict[str, Any]:
    """The settings in the files beside a tokenizer, as `transformers` merges them, without those that are null.

    What special_tokens_map.json says counts more; or not at all, where tokenizer_config.json lists the added tokens.
    """
    found = []
    for name in COMPANIONS:
        found.append({key: value for key, value in _companion(source, name).items() if value is not None})
        for key in _ROLES:
            if (token := _name_of(found[-1].get(key))) and not isinstance(token, str):
                raise ValueError(f"{_beside(source.name, name)}: {key} must be a token, got {token!r:.60}.")
    settings, tokens = found
    return settings if "added_tokens_decoder" in settings else {**settings, **tokens}


def special_tokens_of(settings: Mapping[str, Any]) -> dict[str, str]:
    """The names of the special tokens that settings have in a role, `eos_token` and others, by their roles."""
    more = settings.get("extra_special_tokens")
    given = {**settings, **(more if isinstance(more, Mapping) else {})}
    found = {key: _name_of(token) for key, token in given.items() if key.endswith("_token") and not isinstance(token, bool)}
    return {key: found[key] for key in (*_ROLES, *found) if isinstance(found.get(key), str) and found[key]}


@functools.lru_cache(maxsize=8)
def _with_named(source: InMemory) -> bytes:
    """The content of a tokenizer, with the tokens that only the files beside it name: they have the next ids, in the same order."""
    settings = settings_of(source)
    listed = settings.get("added_tokens_decoder")
    if listed is None:
        listed = {id: name for name, id in _companion(source, _ADDED).items()}
    if not isinstance(listed, Mapping) or not all(f"{id}".isdecimal() and isinstance(_name_of(listed[id]), str) for id in listed):
        where = f"added_tokens_decoder in {_beside(source.name, COMPANIONS[0])}, or {_ADDED} beside it,"
        raise ValueError(f"{where} must have tokens and their ids, got {short(listed)}.")
    lists = [settings.get(key) for key in ("extra_special_tokens", "additional_special_tokens")]
    special = [
        *special_tokens_of(settings).values(),
        *(_name_of(each) for found in lists if isinstance(found, list) for each in found),
    ]
    named = {_name_of(listed[id]): listed[id] for id in sorted(listed, key=int)}
    named = dict.fromkeys(filter(None, [*named, *special])) | named
    missing = named.keys() - {token["content"] for token in _described(source)["added_tokens"]}
    if not missing:
        return source.content
    tokenizer, added = _tokenizer(source), _tokenizers().AddedToken
    for name in filter(missing.__contains__, named):
        given = token if isinstance(token := named[name], Mapping) else {}
        is_special = bool(given.get("special")) or name in special
        flags = {flag: bool(given[flag]) for flag in _FLAGS if flag in given}
        tokenizer.add_tokens([added(name, special=is_special, **{"normalized": not is_special, **flags})])
    return tokenizer.to_str(pretty=True).encode()


def _ids_of_tokens(source: InMemory) -> Iterable[tuple[str, str, int]]:
    """The ids that files beside a tokenizer name for tokens, each with the file and the token."""
    yield from ((_ADDED, token, id) for token, id in _companion(source, _ADDED).items())
    listed = settings_of(source).get("added_tokens_decoder", {})
    yield from ((COMPANIONS[0], _name_of(token), int(id)) for id, token in listed.items())


def _ids_of_the_model(source: InMemory) -> Iterable[tuple[str, str, int]]:
    """The ids that the model's files name, each with the file and the key.

    Ids that are beyond the rows of the model's embedding are left out: they are defaults that were never set.
    """
    rows = max((value for key, value in _fields(_companion(source, _MODEL[0])) if key == "vocab_size"), default=_MOST_ID)
    for name in _MODEL:
        for key, id in _fields(_companion(source, name)):
            if key.endswith(("_token_id", "_token_ids", "_token_index")) and id < rows:
                yield name, key, id


def _clashes(source: InMemory, own: Mapping[str, int], roles: Mapping[str, str]) -> Iterable[str]:
    by_key: dict[str, set[int]] = {}
    for _, key, id in _ids_of_the_model(source):
        by_key.setdefault(key, set()).add(id)
    for role in ("bos_token", "eos_token", "pad_token"):
        own_id, others = own.get(roles.get(role, "")), by_key.get(f"{role}_id")
        if own_id is not None and others and own_id not in others:
            named = " and ".join(name for name in _MODEL if dict(source.beside).get(name))
            yield f"{role} is {roles[role]!r}, {own_id}, for the tokenizer, and {sorted(others)} in {named}"
    for file, token, id in _ids_of_tokens(source):
        if own.get(token, id) != id:
            yield f"{token!r} is {own[token]} for the tokenizer, as transformers loads it, and {id} in {file}"
    by_id: dict[int, list[str]] = {}
    for name, id in own.items():
        by_id.setdefault(id, []).append(name)
    yield from (f"the id {id} is of several tokens, {names}" for id, names in by_id.items() if len(names) > 1)


def _fields(settings: Mapping[str, Any]) -> Iterable[tuple[str, int]]:
    """The integers of 0 and more in settings, each with its key, also those in lists and in settings within."""
    for key, value in settings.items():
        if isinstance(value, Mapping):
            yield from _fields(value)
        yield from ((key, each) for each in (value if isinstance(value, list) else [value]) if is_integer(each, at_least=0))


def _name_of(token: Any) -> Any:
    return token.get("content") if isinstance(token, Mapping) else token


def _roles(source: InMemory, added: Iterable[str]) -> dict[str, str]:
    """What the files beside a tokenizer say that tokens are for: one that is named as `.._token`, or that a chat template spells.

    `added` are the added tokens that are no sentinels and modes by name, as a template can spell these, too.
    """
    inside = _companion(source, COMPANIONS[0]).get("chat_template") or ""
    files = (content.decode(errors="replace") for name, content in source.beside if name in _TEMPLATES)
    template = json.dumps(inside, ensure_ascii=False) + "".join(files)
    roles = {token: "in the chat template" for token in added if not is_word(token) and token in template}
    for companion in COMPANIONS:
        roles |= {name: f"{key} in {companion}" for key, name in special_tokens_of(_companion(source, companion)).items()}
    return roles


def _eos_name(source: InMemory, eos: str | None, is_special: Mapping[str, bool]) -> str:
    if eos is not None and eos in is_special:
        return eos
    nowhere, elsewhere = "it names no EOS", "PreTrainedTokenizerFast(tokenizer_object=.., eos_token=..)"
    if source.name:
        nowhere, elsewhere = f"no {' or '.join(COMPANIONS)} there names an EOS", f"`eos_token` in a {COMPANIONS[0]} beside it"
    wrong = f"eos must be one of its added tokens, got {eos!r}" if eos else nowhere
    candidates = [name for name, special in is_special.items() if special]
    shown = f"{', '.join(map(repr, candidates[:20])) or 'it has none'}{' ..' if len(candidates) > 20 else ''}"
    raise ValueError(
        f"{source}: {wrong}. Pass eos, the one of its special tokens that ends an example ({shown}), as {elsewhere}, or as"
        f" HuggingFaceVocabulary({source!r}, eos=..). See docs/help/troubleshooting.md#a-tokenizer-has-no-eos."
    )


def _unknown(model: Mapping[str, Any], own: Mapping[str, int]) -> int | None:
    if "unk_id" in model:
        return model["unk_id"]
    return own.get(model["unk_token"]) if "unk_token" in model else None


def _has_byte_fallback(model: Mapping[str, Any], own: Mapping[str, int]) -> bool:
    """Whether a character that is no token becomes its bytes, and not the unknown token."""
    return bool(model.get("byte_fallback")) and all(f"<0x{byte:02X}>" in own for byte in range(256))


def _without(description: Mapping[str, Any], names: Mapping[int, str], never_encoded: Set[int]):
    """A tokenizer that does not know the never-encoded ids by name. It also adds nothing to a text, such as BOS.

    All ids are the tokenizer's own. The names are of the added tokens, and of the sentinels and modes that the file lacks.
    """
    model = description["model"]
    edit = _edited_mapping if isinstance(model["vocab"], Mapping) else _edited_list
    known = {name for id, name in names.items() if id not in never_encoded}
    changed = {
        "model": edit(model, names, never_encoded),
        "added_tokens": [token for token in description["added_tokens"] if token["content"] in known],
        "truncation": None,
        "padding": None,
        "post_processor": None,
    }
    return _tokenizers().Tokenizer.from_str(json.dumps({**description, **changed}))


def _edited_mapping(model: Mapping[str, Any], names: Mapping[int, str], never_encoded: Set[int]) -> dict[str, Any]:
    """A BPE, WordPiece or WordLevel model with these names, and without the never-encoded tokens and their merges.

    The unknown token stays, because the model needs it.

    >>> model = {"vocab": {"a": 0, "b": 1, "ab": 2}, "merges": [["a", "b"]]}
    >>> _edited_mapping(model, {3: "[R]"}, {2})
    {'vocab': {'a': 0, 'b': 1, '[R]': 3}, 'merges': []}
    """
    ids = {**model["vocab"], **{name: id for id, name in names.items()}}
    kept = {name: id for name, id in ids.items() if id not in never_encoded or name == model.get("unk_token")}
    if "merges" not in model:
        return {**model, "vocab": kept}
    gone = ids.keys() - kept.keys()
    pairs = (merge if isinstance(merge, list) else merge.split(" ") for merge in model["merges"])
    return {**model, "vocab": kept, "merges": [pair for pair in pairs if gone.isdisjoint((*pair, "".join(pair)))]}


def _edited_list(model: Mapping[str, Any], names: Mapping[int, str], never_encoded: Set[int]) -> dict[str, Any]:
    """A Unigram model with these names. Never-encoded tokens, and gaps up to the last name, have random names.

    >>> _edited_list({"vocab": [["<unk>", 0.0], ["a", -1.0]]}, {2: "[R]"}, set())
    {'vocab': [['<unk>', 0.0], ['a', -1.0], ['[R]', 0.0]]}
    """
    pieces = [list(piece) for piece in model["vocab"]]
    pieces += [[secrets.token_hex(16), 0.0] for _ in range(len(pieces), max(names, default=-1) + 1)]
    for id, name in names.items():
        pieces[id][0] = name
    for id in never_encoded:
        pieces[id][0] = secrets.token_hex(16)
    return {**model, "vocab": pieces}
