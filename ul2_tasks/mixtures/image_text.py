"""`ImageText`: interleaved image-text data, and the denoisers that read them, as they are described."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Mapping, Sequence
from typing import Any

from ul2_tasks.corpus.configuration import CorpusConfiguration
from ul2_tasks.corpus.corpus import Corpus
from ul2_tasks.corpus.image_text import ImageTexts, checked
from ul2_tasks.denoisers.denoisers import (
    IMAGE_SPLITS,
    T5GEMMA2,
    CausalDenoiser,
    Denoiser,
    check_denoisers,
)
from ul2_tasks.denoisers.denoisers import PIECES as EACH_PIECE
from ul2_tasks.denoisers.lengths import budgets
from ul2_tasks.denoisers.pieces import PieceLimits
from ul2_tasks.example_features import EXAMPLE, TOKEN_FEATURES
from ul2_tasks.images.interleaved import T5GEMMA2_IMAGE, ImageTokens
from ul2_tasks.mixtures.description import Description, check_blocks, folders, owner_of, special_tokens_of
from ul2_tasks.order.order import BlockShuffle
from ul2_tasks.random_access.image_text import index_records
from ul2_tasks.random_access.kinds import Task, described_blocks
from ul2_tasks.random_access.records import records_of
from ul2_tasks.scalars import check_on_error
from ul2_tasks.sources.base import DataSource, as_source
from ul2_tasks.sources.image_text import open_image_text
from ul2_tasks.tokenizers.by_name import open_for_modes
from ul2_tasks.tokenizers.special_ids import Mode, SpecialTokens, Token, plain_modes


@dataclasses.dataclass(frozen=True, eq=False)
class ImageText(Description):
    """Interleaved image-text data and the denoisers that read them. Images go to the encoder whole, texts are masked.

        images = ul2_tasks.ImageText("seen", "records/*.parquet", "t5gemma2/tokenizer.json")
        images.cache("CACHE")
        examples = ul2_tasks.examples(images, {"inputs": 2048, "targets": 512}, cache_dirs=["CACHE"])

    The inputs have each image whole, as placeholders between begin and end of image, and the encoded images are in `images`. Each
    text between two images is a chunk of its own, with the masked tokens and spans that its denoiser has for its length, and the
    sentinels are numbered through the example. Records are neither cut nor joined. No file is opened before examples are made.

    Args:
        name: what the corpus and the tasks are called, NAME_corpus and NAME_<denoiser>.
        source: files or lists of records, see `open_image_text`, which has more arguments. Or a `seqio.DataSource` of {"texts":
            [elements] strings, "images": [elements] strings}: at each index a text, the bytes of an image, or both, the text first;
            what is missing is empty. It may have "where", the name of the record. Or another `ImageText`, whose corpus this one
            reads.
        vocabulary, denoisers, sentinels, modes: as for `Mixture`. A CausalDenoiser is not supported; a denoiser without sentinels
            needs records with one text, unless they are split at the last image.
        split: where a SequentialDenoiser splits: "pieces", each text at its rate; "last_image", after the last image, whatever its
            rate, as T5Gemma 2 was trained: all before is unmasked, all after is the target.
        image_tokens: the ids of an image, by default those of T5Gemma 2: 260 tokens. Its ids, the tokenizer's own, are never
            those of a text.
        on_error: what to do with a record that has an error, such as an image that is cut off: "raise", or "skip", which leaves it
            out and counts it in the log. All images are decoded once to find out.
        on_unusable: what to do with a record that makes no example, because it is too long, or has no text where one is needed:
            "raise", or "skip", which leaves it out and counts it in the log.
        block_shuffle: shuffles the examples in two levels, so that a host reads whole blocks of the cache; it
            is described at `Mixture`. Blocks are counted in tokens, and have the bytes of the images, too.

    Raises:
        ValueError: an argument is invalid.

    >>> import ul2_tasks
    >>> records = [{"texts": ["A cat:", None], "images": [None, b".."]}]
    >>> ul2_tasks.ImageText("seen", records) == ul2_tasks.ImageText("seen", ul2_tasks.open_image_text(records))
    True
    """

    # What is given may be of other types, which the arguments' descriptions say; it is of these once it is made.
    name: str
    source: DataSource | Any = "embedded"
    vocabulary: Any = "default"
    denoisers: tuple[Denoiser, ...] | Any = T5GEMMA2
    _: dataclasses.KW_ONLY
    split: str = EACH_PIECE
    image_tokens: ImageTokens = T5GEMMA2_IMAGE
    on_error: str = "raise"
    on_unusable: str = "raise"
    sentinels: tuple[Token, ...] | str | Any = None
    modes: Mapping[str, Mode] | None = None
    block_shuffle: BlockShuffle | None = None

    def __post_init__(self):
        denoisers, source = check_denoisers(self.denoisers), self.source
        if isinstance(source, ImageText):
            source = owner_of(source)
        else:
            source = as_source(source, has_images=True) or open_image_text(source)
        modes = [denoiser.mode for denoiser in denoisers]
        vocabulary, sentinels = open_for_modes(self.vocabulary, modes, self.sentinels, self.modes)
        self._set(
            source=source,
            vocabulary=vocabulary,
            denoisers=denoisers,
            sentinels=sentinels,
            modes=plain_modes(self.modes),
        )
        self._check()

    def _check(self) -> None:
        if self.split not in IMAGE_SPLITS:
            raise ValueError(f"split must be one of {list(IMAGE_SPLITS)}, got {self.split!r}.")
        check_blocks(self.block_shuffle)
        check_on_error(self.on_error)
        check_on_error(self.on_unusable, "on_unusable")
        if not isinstance(self.image_tokens, ImageTokens):
            raise ValueError(f"image_tokens must be ImageTokens, got {self.image_tokens!r}.")
        others = [each for each in self.denoisers if isinstance(each, CausalDenoiser) or each.own_tokens or each.targets]
        if others:
            raise ValueError(
                f"denoisers must mask spans by sentinels, and predict these alone, got {others}. Pass a SequentialDenoiser, and"
                " split='last_image'."
            )

    def corpus(self, cache_dirs: Sequence[str | os.PathLike] = ()) -> Corpus:
        """The corpus, whose cache may be in one of these folders."""
        owner = owner_of(self)
        configuration = CorpusConfiguration(on_error=owner.on_error, special_tokens=special_tokens_of(owner))
        encoder = ImageTexts(owner.image_tokens)
        return Corpus(f"{owner.name}_corpus", owner.source, owner.vocabulary, configuration, encoder, folders(cache_dirs))

    def members(self, sequence_length: Mapping[str, int], cache_dirs: Sequence[str | os.PathLike] = ()) -> list[Task]:
        limits = sorted(limits_of(self, sequence_length), key=lambda each: each.name)
        corpus, settings = self.corpus(cache_dirs), {"vocabulary": self.vocabulary, "on_unusable": self.on_unusable}
        index_of = functools.partial(index_records, limits=tuple(limits), **settings)
        kind = functools.partial(records_of, index_of, self.block_shuffle)
        found = []
        for number, each in enumerate(limits):
            told = {
                "denoiser": each.denoiser.described,
                "corpus": corpus.made_of,
                "special": [[*each.special.sentinels], [*each.special.mode]],
                "split_of_texts": self.split,
                "unfit": self.on_unusable,
                **described_blocks(self.block_shuffle),
            }
            read_as = EXAMPLE, self.vocabulary, kind, told, each.denoiser.name, self.block_shuffle
            found.append(Task(each.name, corpus, self.rates[each.name], *read_as, number=number, has_images=True))
        return found


def special_tokens_beside(images: ImageText, denoiser: Denoiser) -> SpecialTokens:
    """The ids that the denoiser adds to those of the text. Opens the vocabulary.

    Raises a ValueError where ids of images mean something else.
    """
    vocabulary = images.vocabulary
    special = special_tokens_of(images).tokens(vocabulary, denoiser)
    taken = {vocabulary.eos_id: "EOS", vocabulary.unk_id: "unknown"}
    taken |= dict.fromkeys(special.mode, f"the mode {denoiser.mode!r}") | dict.fromkeys(special.sentinels, "a sentinel")
    if both := {id: taken[id] for id in checked(images.image_tokens, vocabulary).ids if id in taken}:
        raise ValueError(
            f"image_tokens must have ids of their own, got {both}. Pass other ids for them, or for sentinels and modes."
        )
    return special


def limits_of(images: ImageText, sequence_length: Mapping[str, int] | None) -> tuple[PieceLimits, ...]:
    """What the examples of each denoiser have to be within these budgets. Opens the vocabulary.

    Raises a ValueError where ids of images mean something else, or there is a length of something else than tokens.
    """
    if unknown := sorted(set(sequence_length or ()) - {*TOKEN_FEATURES}):
        raise ValueError(
            f"sequence_length must have inputs and targets alone, got {unknown}: images are never trimmed. Leave it out."
        )

    def of(denoiser: Denoiser) -> PieceLimits:
        lengths, ends = budgets(denoiser, sequence_length), (True, denoiser.targets_end_in_eos)
        special = special_tokens_beside(images, denoiser)
        return PieceLimits(f"{images.name}_{denoiser.name}", denoiser, images.split, special, lengths, ends)

    return tuple(map(of, images.denoisers))
