"""`open_vocabulary`: a vocabulary with sentinels and modes, by a short specification."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence

import seqio
import tensorflow as tf

from ul2_tasks.controlled_vocabulary import ControlledVocabulary
from ul2_tasks.denoisers import Denoiser
from ul2_tasks.hugging_face_vocabulary import TOKENIZER, HuggingFaceVocabulary
from ul2_tasks.scalars import is_integer
from ul2_tasks.vocabularies import DEFAULT_MODEL, Mode, SpecialTokens, default_vocabulary, plain_sentinels, special_names

PRESET_MODES = ("[R]", "[S]", "[X]")
DEFAULT_SENTINELS = 256
_BYTES = range(3, 259)  # the ids of ByT5's bytes
_HUB_ID = re.compile(r"\w[\w.-]*/\w[\w.-]*")
_TEKKEN = re.compile(r"(^|/)tekken[^/]*\.json$")
_TOKENIZER_BESIDE = "give the tokenizer.json that the same model has for Hugging Face, or the folder with it"


def open_vocabulary(
    spec: str | os.PathLike[str], *, sentinels: int = DEFAULT_SENTINELS, modes: Sequence[str] = PRESET_MODES
) -> seqio.Vocabulary:
    """The vocabulary that a specification names, with sentinels `<extra_id_0>` .. and modes.

    Pieces of these names that the vocabulary has keep their ids, and those that it lacks come after its last id. To a model
    with `<extra_id_0>` .. `<extra_id_99>`, sentinels=100 adds none. Two that were opened by the same specification are
    equal. Opens no file, except that it looks what is in a folder.

    Where the model's or tokenizer's id 0 is more than padding, all ids are one higher than its own
    (`vocabularies.id_shift`): SeqIO pads and packs with 0. Decoding shows sentinels and modes.

    A user-defined piece of a SentencePiece model stays one: `vocabularies.text_vocabulary` keeps texts from becoming it.

    What T5's own checkpoints want, sentinels from the last id downwards, is
    `seqio.SentencePieceVocabulary(file, extra_ids=100)`; sentinels of other names, such as Gemma's `<unused0>`, are
    for `register(sentinels="<unused{}>")` to say, with sentinels=0 here.

    Args:
        spec: "default", the vocabulary that ships with this package, which has 256 sentinels, and the modes of the presets;
            "bytes", ByT5's: the modes from id 259 on, and then the sentinels, the last id first;
            a SentencePiece model, "my.model"; a Hugging Face tokenizer, "tokenizer.json";
            or a folder that has tokenizer.json, or else tokenizer.model. Local or remote (gs://..).
        sentinels: how many there are at least.
        modes: the modes' names.

    Raises:
        ValueError: the specification is none of these; bad names, see `vocabularies.special_names`.
    """
    names = special_names(sentinels, modes)
    spec = os.fspath(spec)
    if spec == "default":
        has_all = sentinels <= DEFAULT_SENTINELS and {*modes} <= {*PRESET_MODES}
        return default_vocabulary() if has_all else _sentencepiece(str(DEFAULT_MODEL), names)
    if spec == "bytes":
        return NamedByteVocabulary(sentinels, modes)
    if re.search(r"\.model(\.\w+)?$", spec):
        return _sentencepiece(spec, names)
    if _TEKKEN.search(spec):
        raise ValueError(f"{spec!r} is in a format of Mistral's own; {_TOKENIZER_BESIDE}")
    if spec.endswith(".json"):
        return HuggingFaceVocabulary(spec, sentinels, modes)
    expected = "expected 'default', 'bytes', a SentencePiece .model, a Hugging Face tokenizer.json, or a folder with one of these"
    if not tf.io.gfile.isdir(spec):
        if _HUB_ID.fullmatch(spec):
            local = spec.rpartition("/")[2]
            raise ValueError(
                f"there is no folder {spec!r}; if it is a model of Hugging Face's hub, download its tokenizer (hf download {spec}"
                f" tokenizer.json tokenizer_config.json --local-dir {local}) and give the folder, {local!r}"
            )
        raise ValueError(f"the vocabulary is {spec!r}, {expected}")
    files = tf.io.gfile.listdir(spec)
    if TOKENIZER in files:
        return HuggingFaceVocabulary(spec, sentinels, modes)
    if "tokenizer.model" in files:
        return _sentencepiece(f"{spec.rstrip('/')}/tokenizer.model", names)
    if any(map(_TEKKEN.search, files)):
        raise ValueError(f"the folder {spec!r} has a tokenizer in a format of Mistral's own alone; {_TOKENIZER_BESIDE}")
    raise ValueError(f"the folder {spec!r} has no tokenizer.json and no tokenizer.model, only {sorted(files)[:20]}; {expected}")


def open_for_denoisers(
    spec: seqio.Vocabulary | str | os.PathLike[str],
    denoisers: Sequence[Denoiser],
    sentinels: int | Sequence[int] | str | None,
    modes: Mapping[str, Mode] | None,
) -> tuple[seqio.Vocabulary, Sequence[int] | str | None]:
    """`open_vocabulary` with names for what `sentinels` and `modes`, as `register` has them, leave open.

    The modes of the presets are always among them, so that ids do not depend on the denoisers.

    Args:
        spec: of the vocabulary; or one that is open, which is left as it is.
        denoisers, sentinels, modes: as `register` has them.

    Returns:
        The vocabulary; and the sentinels as `vocabularies.special_tokens` has them.

    Raises:
        ValueError: sentinels is a number, but the vocabulary is open; one of the two is of another kind; and see
            `open_vocabulary`.
    """
    if not isinstance(spec, seqio.Vocabulary | str | os.PathLike):
        raise ValueError(
            f"vocabulary is {spec!r}, expected a path, or a seqio.Vocabulary, such as seqio.SentencePieceVocabulary('my.model')"
        )
    as_number = is_integer(sentinels, at_least=0)
    if not as_number:
        sentinels = plain_sentinels(sentinels)
    if not isinstance(spec, str | os.PathLike):
        if as_number:
            raise ValueError(
                f"sentinels is {sentinels}, how many a vocabulary is opened with, but this one is open: {spec!r}; give its path, or"
                f" open it with open_vocabulary(PATH, sentinels={sentinels})"
            )
        return spec, sentinels
    others = sorted({denoiser.mode for denoiser in denoisers if denoiser.mode} - set(PRESET_MODES))
    names = tuple(name for name in (*PRESET_MODES, *others) if name not in (modes or {}))
    if as_number:
        return open_vocabulary(spec, modes=names, sentinels=int(sentinels)), None
    return open_vocabulary(spec, modes=names, **({} if sentinels is None else {"sentinels": 0})), sentinels


def more_sentinels(vocabulary: seqio.Vocabulary, special: SpecialTokens, sentinels: Sequence[int] | str | None, needed: int) -> str:
    """What to do for a vocabulary of at least so many sentinels, in words, with what to paste.

    Args:
        vocabulary: it has fewer.
        special: what it has.
        sentinels: as `register` has them.
        needed: how many it is to have.
    """
    opened = f"give vocabulary={_opened(vocabulary, needed, needed - len(special.sentinels))}"
    if sentinels is None:
        return opened
    if isinstance(sentinels, str):
        return f"leave sentinels out and {opened}"
    return f"give {needed} ids, if it has so many that are no text, or leave sentinels out and {opened}"


def _opened(vocabulary: seqio.Vocabulary, sentinels: int, missing: int) -> str:
    """The expression that opens a vocabulary with so many sentinels."""
    modes = PRESET_MODES
    if isinstance(vocabulary, HuggingFaceVocabulary):
        return f"ul2_tasks.hugging_face_vocabulary.{vocabulary.with_sentinels(sentinels)!r}"
    if isinstance(vocabulary, seqio.ByteVocabulary):
        spec, modes = "bytes", getattr(vocabulary, "modes", modes)
    elif isinstance(vocabulary, seqio.SentencePieceVocabulary) and not vocabulary.extra_ids:
        file = vocabulary.sentencepiece_model_file
        spec = "default" if file == str(DEFAULT_MODEL) else file
        if isinstance(vocabulary, ControlledVocabulary):
            modes = tuple(name for name in vocabulary.appended if not name.startswith("<extra_id_"))
    elif isinstance(vocabulary, seqio.SentencePieceVocabulary):  # T5's own: more of them, and so others at the end
        return f"seqio.SentencePieceVocabulary({vocabulary.sentencepiece_model_file!r}, extra_ids={vocabulary.extra_ids + missing})"
    else:
        return f"{type(vocabulary).__name__} with extra_ids={vocabulary.extra_ids + missing}"
    named = "" if modes == PRESET_MODES else f", modes={modes!r}"
    return f"ul2_tasks.open_vocabulary({spec!r}, sentinels={sentinels}{named})"


class NamedByteVocabulary(seqio.ByteVocabulary):
    """ByT5's vocabulary with names for its extra ids: the modes, from the first on, and the sentinels, from the last on.

    Args:
        sentinels: how many.
        modes: their names.

    Attributes:
        modes: the same, a tuple.
    """

    def __init__(self, sentinels: int, modes: Sequence[str]):
        super().__init__(extra_ids=sentinels + len(modes))
        self.modes = tuple(modes)
        self._special = {f"<extra_id_{number}>": self.vocab_size - 1 - number for number in range(sentinels)} | {
            mode: _BYTES.stop + number for number, mode in enumerate(self.modes)
        }
        self._names = {0: "<pad>", 1: "</s>", 2: "<unk>", **{id: name for name, id in self._special.items()}}

    @property
    def identity(self) -> str:
        """See `vocabularies.Pieces`, also for the other methods."""
        return f"modes {' '.join(self.modes)}"

    def piece_id(self, name: str) -> int | None:
        return self._special.get(name)

    def id_to_piece(self, id: int) -> str:
        if id in _BYTES:
            return f"<0x{id - _BYTES.start:02X}>"
        return self._names[id]

    def is_ordinary(self, id: int) -> bool:
        return id in _BYTES

    def literal_ids(self, ids: Iterable[int]) -> list[int]:
        return []  # text is bytes, whatever it spells

    def barring(self, ids: Iterable[int]) -> NamedByteVocabulary:
        return self

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NamedByteVocabulary) and (self.extra_ids, self.modes) == (other.extra_ids, other.modes)

    def __hash__(self) -> int:
        return hash((self.extra_ids, self.modes))


def _sentencepiece(file: str, names: Sequence[str]) -> seqio.SentencePieceVocabulary:
    return ControlledVocabulary(seqio.SentencePieceVocabulary(file), appended=names)
