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
import secrets
from collections.abc import Iterable, Mapping, Set
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from ul2_tasks.files.systems import exists, is_folder, read
from ul2_tasks.imported import is_instance
from ul2_tasks.scalars import short
from ul2_tasks.vocabulary.pieces import free_name
from ul2_tasks.vocabulary.purposes import is_unused, is_word

if TYPE_CHECKING:
    import tokenizers
    import transformers

    Tokenizer: TypeAlias = transformers.PreTrainedTokenizerFast | tokenizers.Tokenizer

TOKENIZER = "tokenizer.json"
_OF_A_TOKENIZER = ("save_pretrained", "convert_tokens_to_ids")  # of `transformers`, also of a slow one
_MOST_ID = 1 << 24  # lists are made of all ids, gaps included
COMPANIONS = ("tokenizer_config.json", "special_tokens_map.json")  # files beside it, which name EOS and other roles
_TEMPLATES = ("chat_template.jinja", "chat_template.json")  # files beside it, where its chat template is in none of these


@dataclasses.dataclass(frozen=True)
class InMemory:
    """A tokenizer that is in memory: what it would save. It can be sent to another process.

    Attributes:
        content: of its `tokenizer.json`.
        settings: of its `tokenizer_config.json`; only what is read here.
    """

    content: bytes
    settings: bytes

    def __repr__(self) -> str:
        """What its user may call it: errors show it in expressions to paste."""
        return "tokenizer"

    def __str__(self) -> str:
        return "the tokenizer"


def in_memory(tokenizer: object) -> InMemory | None:
    """A fast tokenizer of `transformers`, or a `tokenizers.Tokenizer`, as it is now; None for anything else.

    Truncation and padding, which a call of the tokenizer sets, are left out, so that they make no other tokenizer of it. A slow
    tokenizer raises a ValueError.
    """
    if isinstance(tokenizer, InMemory):
        return tokenizer
    backend: Any = getattr(tokenizer, "backend_tokenizer", tokenizer)
    if is_instance(backend, "tokenizers", "Tokenizer"):
        if backend.padding or backend.truncation:
            backend = type(backend).from_str(backend.to_str())
            backend.no_padding()
            backend.no_truncation()
        settings = getattr(tokenizer, "special_tokens_map", {}) | {"chat_template": getattr(tokenizer, "chat_template", None)}
        return InMemory(backend.to_str(pretty=True).encode(), json.dumps(settings, default=str).encode())
    if all(hasattr(tokenizer, name) for name in _OF_A_TOKENIZER) and not isinstance(tokenizer, type):
        file = getattr(tokenizer, "vocab_file", None)
        has_file = ".model" in f"{file}"  # of SentencePiece
        remedy = f"its file, {file!r}" if has_file else "the folder with its model's tokenizer.json, or 'bytes' for ByT5"
        raise ValueError(
            "vocabulary must be a fast tokenizer of transformers, which has a backend_tokenizer, got a slow"
            f" {type(tokenizer).__name__}. Pass {remedy}."
        )
    return None


@dataclasses.dataclass(frozen=True)
class Loaded:
    """A tokenizer that was read. All its ids are SeqIO's, which are `shift` higher than the tokenizer's own.

    Attributes:
        encoder, decoder: `tokenizers.Tokenizer`s; these have the tokenizer's own ids.
        sha256: of the file.
        shift: 0 or 1.
        size: the last id, plus one.
        bos, eos, unk: ids; None where there is none.
        own_pad: the tokenizer's own id of padding; None where there is none.
        special: the ids of sentinels and modes by name.
        appended: the ids among them that come after the tokenizer's last.
        ids: the ids of all tokens that the tokenizer has, by name.
        names: the names of all tokens by id.
        added: the ids of added tokens, and of BERT's unused ones, which are not in that list.
        roles: what tokens are for, by name, of those that the files beside the tokenizer name.
        never_encoded: the ids that no text is encoded to.
    """

    encoder: Any
    decoder: Any
    sha256: str
    shift: int
    size: int
    bos: int | None
    eos: int
    unk: int | None
    own_pad: int | None
    special: dict[str, int]
    appended: frozenset[int]
    ids: dict[str, int]
    names: dict[int, str]
    added: frozenset[int]
    roles: Mapping[str, str]
    never_encoded: frozenset[int]


@functools.lru_cache(maxsize=8)
def load(path: str | InMemory, names: tuple[str, ...], eos_name: str | None, never_encoded: frozenset[int]) -> Loaded:
    """Reads a tokenizer.

    `path` is the file, or the folder that has it, or the tokenizer in memory. The names are of sentinels and modes. A name that is
    an added token has its id; the others get ids after the last. By default EOS is the token that the file's companions name. No
    text is encoded to the ids `never_encoded`, beside special tokens, EOS, sentinels and modes. A tokenizer without EOS raises a
    ValueError.
    """
    file = _tokenizer_file(path)
    content, description = _read(file)
    own = _tokenizer(content, file).get_vocab(with_added_tokens=True)  # own ids, by name
    if (last := max(own.values(), default=0)) > _MOST_ID:
        raise _no_tokenizer(file, f"it has the id {last}, and ids are at most {_MOST_ID} here")
    is_special = {token["content"]: token["special"] for token in description["added_tokens"]}
    eos = own[_eos_name(file, eos_name, is_special)]
    bos = own.get(_companion_token(file, "bos_token"))
    unk = _unknown(description["model"], own)

    first = max(own.values()) + 1
    lacking = {name: first + number for number, name in enumerate(name for name in names if name not in is_special)}
    special = {name: own[name] for name in names if name in is_special} | lacking
    spelled = {free_name(name, own): id for name, id in lacking.items()}  # an ordinary token may have the name already

    never = {own[name] for name, special_token in is_special.items() if special_token} | {eos, *special.values()}
    text_becomes_0 = 0 in own.values() and 0 not in never
    unknown_is_0 = unk == 0 and not _has_byte_fallback(description["model"], own)
    shift = int(text_becomes_0 or unknown_is_0 or 0 in {eos, *special.values()})
    never |= {id - shift for id in never_encoded}

    edited_names = {own[name]: name for name in is_special} | {id: name for name, id in spelled.items()}
    return Loaded(
        encoder=_without(description, edited_names, never),
        decoder=_without(description, edited_names, frozenset()),
        sha256=hashlib.sha256(content).hexdigest(),
        shift=shift,
        size=first + len(lacking) + shift,
        bos=None if bos is None else bos + shift,
        eos=eos + shift,
        unk=None if unk is None else unk + shift,
        own_pad=own.get(_companion_token(file, "pad_token")),
        special={name: id + shift for name, id in special.items()},
        appended=_shifted(lacking.values(), shift),
        ids={name: id + shift for name, id in own.items()},
        names={id + shift: name for name, id in {**own, **spelled}.items()},
        added=_shifted((id for name, id in own.items() if name in is_special or is_unused(name)), shift),
        roles=_roles(file, [name for name in is_special if name not in names]),
        never_encoded=_shifted(never, shift),
    )


class Marked(NamedTuple):
    """A tokenizer for text that markers stand in: a `tokenizers.Tokenizer`.

    `ids` are the tokenizer's own ids of the markers, by their names. A marker is an added token that is special, or whose name has
    more than letters, digits and spaces in it. `private` are the markers' private names, which no text spells and which alone the
    tokenizer knows, by their names.
    """

    tokenizer: Any
    ids: dict[str, int]
    private: dict[str, str]


@functools.lru_cache(maxsize=2)
def load_marked(path: str) -> Marked:
    """Reads a tokenizer that does all that the file's does, except that its markers have other names."""
    file = _tokenizer_file(path)
    content, description = _read(file)
    own = _tokenizer(content, file).get_vocab(with_added_tokens=True)
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


def _shifted(ids: Iterable[int], shift: int) -> frozenset[int]:
    return frozenset(id + shift for id in ids)


def _tokenizers():
    try:
        import tokenizers
    except ImportError as error:
        raise ImportError(
            "a Hugging Face tokenizer needs the package tokenizers. Run `pip install 'ul2_tasks[huggingface]'`."
        ) from error
    return tokenizers


def _tokenizer_file(path: str | InMemory) -> str | InMemory:
    if isinstance(path, InMemory):
        return path
    file = f"{path.rstrip('/')}/{TOKENIZER}" if is_folder(path) else path
    if not exists(file):
        raise ValueError(
            f"the tokenizer must be a Hugging Face {TOKENIZER}, or a folder that has one, got {file}, which does not exist."
        )
    return file


def _read(file: str | InMemory) -> tuple[bytes, Mapping[str, Any]]:
    """The file's bytes, and what they describe."""
    content = file.content if isinstance(file, InMemory) else read(file)
    description = _json(content, file)
    if not isinstance(description, Mapping) or not isinstance(model := description.get("model"), Mapping):
        raise _no_tokenizer(file, "it has no model")
    if not isinstance(model.get("vocab"), Mapping | list):
        raise _no_tokenizer(file, "its model has no vocab")
    tokens = description.get("added_tokens")
    if not isinstance(tokens, list) or not all(isinstance(token, Mapping) and _is_added(token) for token in tokens):
        raise _no_tokenizer(file, "its added_tokens are not a list of tokens, each with content, id and special")
    return content, description


def _is_added(token: Mapping[str, Any]) -> bool:
    return all(isinstance(token.get(key), kind) for key, kind in {"content": str, "id": int, "special": bool}.items())


def _json(content: bytes, file: str | InMemory) -> Any:
    try:
        return json.loads(content.decode())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{file} is not JSON: {error}") from error


def _tokenizer(content: bytes, file: str | InMemory):
    """What `tokenizers` makes of the content of a file. It raises an error of no type of its own."""
    try:
        return _tokenizers().Tokenizer.from_str(content.decode())
    except ImportError:
        raise
    except Exception as error:
        raise _no_tokenizer(file, str(error)) from error


def _no_tokenizer(file: str | InMemory, why: str) -> ValueError:
    return ValueError(f"{file} must be a Hugging Face {TOKENIZER} that `tokenizers` saved, but is not: {why}.")


def _beside(file: str | InMemory, name: str) -> str:
    """The path of another file in the tokenizer's folder."""
    return f"{file.rpartition('/')[0]}/{name}" if isinstance(file, str) and "/" in file else name


def _content(file: str | InMemory, name: str) -> bytes | None:
    """The content of a file in the tokenizer's folder; None where there is none."""
    if isinstance(file, InMemory):
        return file.settings if name == COMPANIONS[0] else None
    return read(path) if exists(path := _beside(file, name)) else None


def _companion(file: str | InMemory, name: str) -> Mapping[str, Any]:
    """What a file of JSON in the tokenizer's folder has; nothing where there is none."""
    content, path = _content(file, name), _beside(file, name)
    found = {} if content is None else _json(content, path)
    if not isinstance(found, Mapping):
        raise ValueError(f"{path} must be a JSON object, got {short(found)}.")
    return found


def _companion_token(file: str | InMemory, key: str) -> str | None:
    """The special token that a file beside the tokenizer names: under the key there is its name, or a dictionary with it."""
    for companion in COMPANIONS:
        token = _name_of(_companion(file, companion).get(key))
        if token and not isinstance(token, str):
            raise ValueError(f"{_beside(file, companion)}: {key} must be a token, got {token!r:.60}.")
        if token:
            return token
    return None


def _name_of(token: Any) -> Any:
    return token.get("content") if isinstance(token, Mapping) else token


def _roles(file: str | InMemory, added: Iterable[str]) -> dict[str, str]:
    """What the files beside a tokenizer say that tokens are for: one that is named as `.._token`, or that a chat template spells.

    `added` are the added tokens that are no sentinels and modes by name, as a template can spell these, too.
    """
    found = {companion: _companion(file, companion) for companion in COMPANIONS}
    template = _chat_template(file, found[COMPANIONS[0]])
    roles = {token: "in the chat template" for token in added if not is_word(token) and token in template}
    for companion, settings in found.items():
        more = settings.get("extra_special_tokens")
        for key, token in {**settings, **(more if isinstance(more, Mapping) else {})}.items():
            if key.endswith("_token") and isinstance(name := _name_of(token), str):
                roles[name] = f"{key} in {companion}"
    return roles


def _chat_template(file: str | InMemory, configuration: Mapping[str, Any]) -> str:
    """All chat templates, as one text."""
    contents = [_content(file, name) or b"" for name in _TEMPLATES]
    inside = configuration.get("chat_template") or ""
    return json.dumps(inside, ensure_ascii=False) + "".join(content.decode(errors="replace") for content in contents)


def _eos_name(file: str | InMemory, given: str | None, is_special: Mapping[str, bool]) -> str:
    eos = given or _companion_token(file, "eos_token")
    if eos is not None and eos in is_special:
        return eos
    is_file = isinstance(file, str)
    nowhere = f"no {' or '.join(COMPANIONS)} there names an EOS" if is_file else "it names no EOS"
    wrong = f"eos must be one of its added tokens, got {eos!r}" if eos else nowhere
    elsewhere = (
        f"`eos_token` in a {COMPANIONS[0]} beside it" if is_file else "PreTrainedTokenizerFast(tokenizer_object=.., eos_token=..)"
    )
    candidates = [name for name, special in is_special.items() if special]
    shown = f"{', '.join(map(repr, candidates[:20]))}{' ..' if len(candidates) > 20 else ''}"
    raise ValueError(
        f"{file}: {wrong}. Pass eos, the one of its special tokens that ends an example ({shown or 'it has none'}), as"
        f" {elsewhere}, or as HuggingFaceVocabulary({file!r}, eos=..). See"
        " docs/help/troubleshooting.md#a-tokenizer-has-no-eos."
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
