"""`ImageText`: interleaved image-text data, and the denoisers that read them, as they are described."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from ul2_tasks.corpus.configuration import CorpusConfiguration
from ul2_tasks.corpus.image_text import DescribedImageText
from ul2_tasks.denoising.denoisers import (
    BEFORE_LAST_IMAGE,
    IMAGE_SPLITS,
    T5GEMMA2,
    CausalDenoiser,
    Denoiser,
    check_denoisers,
)
from ul2_tasks.denoising.denoisers import PIECES as EACH_PIECE
from ul2_tasks.images.interleaved import T5GEMMA2_IMAGE, ImageCodes, ImageTokens
from ul2_tasks.mixtures.description import Description, folders, special_tokens_of
from ul2_tasks.scalars import check_on_error
from ul2_tasks.sources.base import is_source
from ul2_tasks.sources.image_text import Held, open_image_text
from ul2_tasks.vocabulary.by_name import open_for_modes
from ul2_tasks.vocabulary.special_ids import Mode, Sentinels, Token, plain_modes

if TYPE_CHECKING:
    import seqio


@dataclasses.dataclass(frozen=True, init=False, eq=False)
class ImageText(Description):
    """Interleaved image-text data and their denoisers, not registered with SeqIO. Opens no file yet.

        images = ul2_tasks.ImageText("seen", "records/*.parquet", "t5gemma2/tokenizer.json")
        images.cache("CACHE")

    The arguments are those of `register_image_text`, which adds them to SeqIO's registries. A cache of the same arguments and name
    is that of `NAME_corpus` there. Only registered tasks give examples, as a stream of tf.data. Neither SeqIO nor TensorFlow is
    imported, unless the source or the vocabulary is one of theirs.

    Args:
        name: what the corpus and the tasks are called, NAME_corpus and NAME_<denoiser>.
        source, vocabulary, denoisers, split, image_tokens, on_error, on_unusable, sentinels, modes: see `register_image_text`.

    Raises:
        ValueError: an argument is invalid.

    >>> import ul2_tasks
    >>> records = [{"texts": ["A cat:", None], "images": [None, b".."]}]
    >>> ul2_tasks.ImageText("seen", records) == ul2_tasks.ImageText("seen", ul2_tasks.open_image_text(records))
    True
    """

    name: str
    source: seqio.DataSource
    vocabulary: seqio.Vocabulary
    denoisers: tuple[Denoiser, ...]
    split: str
    image_tokens: ImageTokens | ImageCodes
    on_error: str
    on_unusable: str
    sentinels: tuple[Token, ...] | str | None
    modes: Mapping[str, Mode] | None

    def __init__(
        self,
        name: str,
        source: seqio.DataSource | Held | Mapping[str, Held] = "embedded",
        vocabulary: seqio.Vocabulary | str | os.PathLike = "default",
        denoisers: Iterable[Denoiser] | Denoiser | str = T5GEMMA2,
        *,
        split: str = EACH_PIECE,
        image_tokens: ImageTokens | ImageCodes = T5GEMMA2_IMAGE,
        on_error: str = "raise",
        on_unusable: str = "raise",
        sentinels: int | Sentinels | None = None,
        modes: Mapping[str, Mode] | None = None,
    ):
        checked = check_denoisers(denoisers)
        vocabulary, tokens = open_for_modes(vocabulary, [denoiser.mode for denoiser in checked], sentinels, modes)
        self._set(
            name=name,
            source=source if is_source(source) else open_image_text(source),
            vocabulary=vocabulary,
            denoisers=checked,
            split=split,
            image_tokens=image_tokens,
            on_error=on_error,
            on_unusable=on_unusable,
            sentinels=tokens,
            modes=plain_modes(modes),
        )
        self._check()

    def _check(self) -> None:
        if self.split not in IMAGE_SPLITS:
            raise ValueError(f"split must be one of {list(IMAGE_SPLITS)}, got {self.split!r}.")
        check_on_error(self.on_error)
        check_on_error(self.on_unusable, "on_unusable")
        if not isinstance(self.image_tokens, ImageTokens | ImageCodes):
            raise ValueError(f"image_tokens must be ImageTokens or ImageCodes, got {self.image_tokens!r}.")
        if self.split == BEFORE_LAST_IMAGE and not isinstance(self.image_tokens, ImageCodes):
            raise ValueError(
                f"image_tokens must be ImageCodes for split={self.split!r}, got {self.image_tokens!r}. Pass the codes of images."
            )
        if causal := [denoiser.name for denoiser in self.denoisers if isinstance(denoiser, CausalDenoiser)]:
            raise ValueError(
                f"denoisers must not be a CausalDenoiser, got {causal}. Pass a SequentialDenoiser, and split='last_image'."
            )

    def corpus(self, cache_dirs: Sequence[str | os.PathLike] = ()) -> DescribedImageText:
        """The corpus, whose cache may be in one of these folders."""
        configuration = CorpusConfiguration(on_error=self.on_error, special_tokens=special_tokens_of(self))
        given = (self.source, self.vocabulary, configuration, self.image_tokens)
        return DescribedImageText(f"{self.name}_corpus", *given, folders(cache_dirs))
