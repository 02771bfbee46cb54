"""`open_vocabulary`: a vocabulary with sentinels and modes, by a short specification."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ul2_tasks.files.systems import is_folder, names_in, place
from ul2_tasks.scalars import is_integer, short
from ul2_tasks.tokenizers.base import Vocabulary
from ul2_tasks.tokenizers.byte_level import NamedByteVocabulary
from ul2_tasks.tokenizers.hugging_face import HuggingFaceVocabulary
from ul2_tasks.tokenizers.pieces import DEFAULT_SENTINELS, PRESET_MODES, special_names
from ul2_tasks.tokenizers.sentencepiece import DEFAULT_MODEL, SentencePieceVocabulary, default_vocabulary
from ul2_tasks.tokenizers.special_ids import Mode, Sentinels, Token, as_vocabulary, plain_sentinels
from ul2_tasks.tokenizers.tokenizer_json import LOADED_MODELS, InMemory, in_memory, is_loaded

if TYPE_CHECKING:
    from ul2_tasks.tokenizers.tokenizer_json import Tokenizer

_HUB_ID = re.compile(r"\w[\w.-]*/\w[\w.-]*")


def open_vocabulary(
    spec: str | os.PathLike[str] | Tokenizer | InMemory,
    *,
    sentinels: int = DEFAULT_SENTINELS,
    modes: Sequence[str] = PRESET_MODES,
) -> Vocabulary:
    """Opens a vocabulary with sentinels `<extra_id_0>` .. and modes, by its path or name, or of a tokenizer in memory.

    Pieces of these names that the vocabulary already has keep their ids. Those that it lacks come after its last id. So with a
    model that has `<extra_id_0>` .. `<extra_id_99>`, sentinels=100 adds none. Decoding shows sentinels and modes. Opened with
    the same arguments again, the vocabulary equals the first one. Opens no file; it only lists the files of a folder.

    Its ids are the tokenizer's own. For a task of SeqIO's that you write yourself take `tasks.vocabulary.seqio_vocabulary` of it.

    A user-defined piece of a SentencePiece model stays one, which text is encoded to; `register` tokenizes with
    `special_ids.text_vocabulary`, which never does that.

    For T5's own checkpoints, whose sentinels go from the last id downwards, use
    `seqio.SentencePieceVocabulary(file, extra_ids=100)`. For sentinels of other names, such as Gemma's `<unused0>`, use
    `register(sentinels="<unused{}>")`, with sentinels=0 here.

    Args:
        spec: "default", the vocabulary that ships with this package; it has 256 sentinels and the modes of the presets;
            "bytes", ByT5's: modes from id 259 on, sentinels from the last id downwards;
            a SentencePiece model, "my.model"; a Hugging Face tokenizer, "tokenizer.json";
            a folder with a tokenizer.json, or with other files that transformers makes a fast tokenizer of, which then must be
            installed; local or remote (gs://..);
            a folder with a SentencePiece model alone. A model beside files that name its tokens, such as added_tokens.json, is
            what transformers makes of all of them;
            or a tokenizer in memory, a fast one of `transformers` or a `tokenizers.Tokenizer`.
        sentinels: how many the vocabulary has at least.
        modes: the modes' names.

    Raises:
        ValueError: `spec` is none of these, or names are used twice or not valid.
    """
    names = special_names(sentinels, modes)
    if (tokenizer := in_memory(spec)) is not None:
        return HuggingFaceVocabulary(tokenizer, sentinels, modes)
    if not isinstance(spec, str | os.PathLike):
        raise ValueError(f"spec must be a path, a name, or a fast tokenizer of transformers, got {short(spec)}.")
    spec = os.fspath(spec)
    if spec == "default":
        has_all = sentinels <= DEFAULT_SENTINELS and {*modes} <= {*PRESET_MODES}
        return default_vocabulary() if has_all else SentencePieceVocabulary(str(DEFAULT_MODEL), names)
    if spec == "bytes":
        return NamedByteVocabulary(sentinels, modes)
    if re.search(r"\.model(\.\w+)?$", spec):
        folder, _, file = spec.rpartition("/")
        if file in LOADED_MODELS and is_loaded(names_in(folder or ".")):
            return HuggingFaceVocabulary(folder or ".", sentinels, modes)
        return SentencePieceVocabulary(spec, names)
    if spec.endswith(".json"):
        return HuggingFaceVocabulary(spec, sentinels, modes)
    expected = "'default', 'bytes', a SentencePiece .model, a Hugging Face tokenizer.json, or a folder with one of these"
    if not is_folder(spec):
        if _HUB_ID.fullmatch(spec):
            local = spec.rpartition("/")[2]
            raise ValueError(
                f"there is no folder {spec!r}. If it is a model of Hugging Face's hub, download its tokenizer (hf download {spec}"
                f" tokenizer.json tokenizer_config.json --local-dir {local}) and pass the folder, {local!r}. See"
                " docs/help/troubleshooting.md#the-tokenizers-folder-is-not-found."
            )
        raise ValueError(f"vocabulary must be {expected}, got {spec!r}, and there is no folder of this name.")
    files = names_in(spec)
    if is_loaded(files):
        return HuggingFaceVocabulary(spec, sentinels, modes)
    models = [name for name in files if name.endswith(".model")]
    if len(models) == 1:
        return SentencePieceVocabulary(place(spec, models[0]), names)
    raise ValueError(f"vocabulary must be {expected}, got the folder {spec!r} with {sorted(files)[:20]} alone.")


def open_for_modes(
    spec: Any,
    mode_names: Iterable[str | None],
    sentinels: int | Sentinels | None,
    modes: Mapping[str, Mode] | None,
) -> tuple[Vocabulary, tuple[Token, ...] | str | None]:
    """Opens a vocabulary for denoisers with these modes. `register` and `UL2DataCollator` do it like this.

    It adds a piece for each mode that `modes` does not define, and for each sentinel that `sentinels` does not. The modes of the
    presets are added whether a denoiser has them or not, so that ids do not depend on the denoisers.

    `spec` is what `open_vocabulary` takes; or an open vocabulary, also one of SeqIO's, with which `sentinels` is no number. For
    `sentinels` and `modes` see `register`. The sentinels that are returned are for `special_ids.special_tokens`.
    """
    spec = in_memory(spec) or spec
    is_open = not isinstance(spec, str | os.PathLike | InMemory)
    opened = as_vocabulary(spec) if is_open else None
    number = int(sentinels) if is_integer(sentinels, at_least=0) else None
    ids = plain_sentinels(sentinels) if number is None else None
    if opened is not None:
        if number is not None:
            raise ValueError(
                f"sentinels must be None or tokens for an open vocabulary, got {number} with {spec!r}. Pass its path, or open it"
                f" with open_vocabulary(PATH, sentinels={number})."
            )
        return opened, ids
    others = sorted(set(filter(None, mode_names)) - set(PRESET_MODES))
    names = tuple(name for name in (*PRESET_MODES, *others) if name not in (modes or {}))
    if number is None and ids is None:
        return open_vocabulary(spec, modes=names), None
    return open_vocabulary(spec, modes=names, sentinels=number or 0), ids
