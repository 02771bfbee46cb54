"""Samples as a row: where each token stands, what it is, and what is learned of it. The contract is that of BAGEL's packer.

    a text      [bos] ids [eos]            one position each, causal
    an image   [start] patches [end]      one position for all of it, in full sight of each other

    T N         bos a cat eos  start . . . . end
    positions   0   1 2   3    4     4 4 4 4 4
    splits      4 causal       6 noise

Positions begin at 0 in each sample. A noised image takes no position, so its clean twin stands at the same one. A dropped text
leaves no gap in the positions; a dropped image still takes its own.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ul2_tasks.image_rows.custom import Custom, ElementKind
from ul2_tasks.image_rows.samples import Sample, size_of_content
from ul2_tasks.image_rows.sizes import Grid
from ul2_tasks.image_rows.special_tokens import SpecialTokenConfig
from ul2_tasks.images.elements import Image, Text

MODES = ("causal", "full", "noise")
_KINDS = {"vit": 1, "clean": 2, "noised": 3}
_TEXT, _VIT, _CLEAN, _NOISED, _CAUSAL, _FULL = range(6)  # the last two are those of your own
_MODE_OF_KIND = np.array([0, 1, 1, 2, 0, 1])


class Row(NamedTuple):
    """The arrays of a row, under the names that BAGEL's model takes. Every row has all of them; some may have the length 0."""

    sample_lens: np.ndarray  # [samples] int64, places of each sample that has any
    split_lens: np.ndarray  # [splits] int64, places of each split: an element, or a clip
    attn_modes: np.ndarray  # [splits] int64, numbers of `MODES`
    packed_position_ids: np.ndarray  # [places] int64
    packed_text_ids: np.ndarray  # [texts] int64, the ids of everything but patches: of texts, and of marks
    packed_text_indexes: np.ndarray  # [texts] int64, the places of these
    packed_label_ids: np.ndarray  # [labels] int64, the id that is learned at a place: the id of the next place
    ce_loss_indexes: np.ndarray  # [labels] int64, the places of these
    ce_loss_weights: np.ndarray  # [labels] float32, 1 / sqrt(labels of the text); 1 for what is learned after a mark
    packed_vit_position_ids: np.ndarray  # [ViT patches] int64, places in the ViT's table
    packed_vit_token_indexes: np.ndarray  # [ViT patches] int64, places in the row
    vit_token_seqlens: np.ndarray  # [ViT images] int64, patches of each
    packed_latent_position_ids: np.ndarray  # [VAE patches] int64, places in the table of latents
    packed_vae_token_indexes: np.ndarray  # [VAE patches] int64, places in the row
    vae_latent_shapes: np.ndarray  # [VAE images, 2] int64, rows and columns of patches
    packed_timesteps: np.ndarray  # [VAE patches] float32, before the sigmoid; minus infinity for patches that are not noised
    mse_loss_indexes: np.ndarray  # [noised patches] int64, places in the row


class _Elements(NamedTuple):
    """The elements that are kept, [elements] each."""

    kind: np.ndarray
    size: np.ndarray  # ids or patches, without the two marks
    position: np.ndarray
    after: np.ndarray  # the id that is learned at its end; -1 for none
    learned: np.ndarray
    rows: np.ndarray
    columns: np.ndarray
    begins_sample: np.ndarray
    begins_split: np.ndarray
    start_id: np.ndarray  # the marks
    end_id: np.ndarray


def lay_out(samples: Sequence[Sample], special_tokens: SpecialTokenConfig) -> Row:
    """Lays samples out, one after the other. A sample whose elements are all dropped is left out.

    >>> from ul2_tasks.images.elements import Text
    >>> from ul2_tasks.image_rows.sizes import Grid
    >>> layout = (Text("a cat", learned=True), Image("cat.jpg", "noised"))
    >>> sample = Sample(layout, (True, True), (np.array([11, 12]), Grid(2, 2)), (-np.inf, 0.5))
    >>> row = lay_out([sample], SpecialTokenConfig(bos_id=1, eos_id=2, boi_id=3, eoi_id=4))
    >>> row.packed_position_ids, row.split_lens, row.attn_modes
    (array([0, 1, 2, 3, 4, 4, 4, 4, 4, 4]), array([4, 6]), array([0, 2]))
    >>> row.packed_text_ids, row.packed_label_ids, row.ce_loss_indexes
    (array([ 1, 11, 12,  2,  3,  4]), array([11, 12,  2]), array([0, 1, 2]))
    """
    table, ids, timesteps = _table(samples, special_tokens)
    kinds, sizes = table.kind, table.size
    is_vit, is_vae, is_noised = kinds == _VIT, (kinds == _CLEAN) | (kinds == _NOISED), kinds == _NOISED
    is_causal = _MODE_OF_KIND[kinds] == 0
    starts = np.cumsum(sizes + 2) - sizes - 2
    length, is_split = int((sizes + 2).sum()), table.begins_split > 0
    position_ids = np.repeat(table.position, sizes + 2)
    position_ids[_ranges(starts[is_causal], sizes[is_causal] + 2)] += _ranges(0 * starts[is_causal], sizes[is_causal] + 2)
    text_ids, text_places = _texts(table, starts, ids, special_tokens)
    labels, label_places, weights = _labels(table, starts, text_ids, text_places)
    return Row(
        sample_lens=np.diff(starts[table.begins_sample > 0], append=length),
        split_lens=np.diff(starts[is_split], append=length),
        attn_modes=_MODE_OF_KIND[kinds[is_split]],
        packed_position_ids=position_ids,
        packed_text_ids=text_ids,
        packed_text_indexes=text_places,
        packed_label_ids=labels,
        ce_loss_indexes=label_places,
        ce_loss_weights=weights,
        packed_vit_position_ids=patch_positions(
            table.rows[is_vit], table.columns[is_vit], special_tokens.vit_patches_per_side, special_tokens.interpolate_pos
        ),
        packed_vit_token_indexes=_ranges(starts[is_vit] + 1, sizes[is_vit]),
        vit_token_seqlens=sizes[is_vit],
        packed_latent_position_ids=patch_positions(
            table.rows[is_vae], table.columns[is_vae], special_tokens.vae_patches_per_side, special_tokens.interpolate_pos
        ),
        packed_vae_token_indexes=_ranges(starts[is_vae] + 1, sizes[is_vae]),
        vae_latent_shapes=np.stack([table.rows[is_vae], table.columns[is_vae]], axis=1),
        packed_timesteps=np.repeat(timesteps[is_vae], sizes[is_vae]),
        mse_loss_indexes=_ranges(starts[is_noised] + 1, sizes[is_noised]),
    )


def custom_arrays(samples: Sequence[Sample], kind: ElementKind) -> dict[str, np.ndarray]:
    """Where the features of a kind of your own are in the row of these samples, see `lay_out`.

    packed_NAME_token_indexes  [features] int64, places in the row
    NAME_token_seqlens         [elements] int64, features of each
    """
    kept = [element for sample in samples for element in zip(*sample) if element[1]]
    sizes = np.array([size_of_content(content) for _, _, content, _ in kept], np.int64)
    is_of = np.array([isinstance(element, Custom) and element.of == kind for element, *_ in kept], bool)
    starts = np.cumsum(sizes + 2) - sizes - 1
    return {
        f"packed_{kind.name}_token_indexes": _ranges(starts[is_of], sizes[is_of]),
        f"{kind.name}_token_seqlens": sizes[is_of],
    }


def patch_positions(rows: np.ndarray, columns: np.ndarray, patches_per_side: int, interpolate_pos: bool = False) -> np.ndarray:
    """The place of each patch in a table of `patches_per_side` rows and columns.

    `rows` and `columns`, [images] integers, are the patches of each image, and `interpolate_pos` is as in `SpecialTokenConfig`.
    Returns [patches] int64, row by row, one image after the other. An image with more patches on a side than the table
    raises a ValueError, if they are not interpolated.

    >>> patch_positions(np.array([2]), np.array([3]), patches_per_side=70)
    array([ 0,  1,  2, 70, 71, 72])
    >>> patch_positions(np.array([2]), np.array([3]), patches_per_side=70, interpolate_pos=True)
    array([   0,   23,   46, 2450, 2473, 2496])
    """
    most = int(max(rows.max(initial=0), columns.max(initial=0)))
    if most > patches_per_side and not interpolate_pos:
        raise ValueError(f"an image has {most} patches on a side, and the table of their positions has {patches_per_side}")
    grids = (_grid_positions(*grid, patches_per_side, interpolate_pos) for grid in zip(rows.tolist(), columns.tolist()))
    return np.concatenate([np.zeros(0, np.int64), *grids])


@functools.lru_cache(maxsize=256)
def _grid_positions(rows: int, columns: int, patches_per_side: int, interpolate_pos: bool) -> np.ndarray:
    down, across = np.arange(rows), np.arange(columns)
    if interpolate_pos:
        down, across = down * patches_per_side // rows, across * patches_per_side // columns
    return (down[:, np.newaxis] * patches_per_side + across).ravel()


def _table(samples: Sequence[Sample], special_tokens: SpecialTokenConfig) -> tuple[_Elements, np.ndarray, np.ndarray]:
    """The elements that are kept, the ids of their texts, and their timesteps."""
    ids_after: dict[object, int] = {None: -1, "text": special_tokens.bos_id, "image": special_tokens.boi_id}
    of_texts, of_images = (special_tokens.bos_id, special_tokens.eos_id), (special_tokens.boi_id, special_tokens.eoi_id)
    lines, ids, timesteps = [], [np.zeros(0, np.int64)], []
    for sample in samples:
        position, clip, begins_sample = 0, None, True
        for element, kept, content, timestep in zip(*sample):
            rows, columns, learned, group, size = 0, 0, False, None, size_of_content(content)
            if isinstance(element, Image) and isinstance(content, Grid):
                (rows, columns), step, group = content, element.step, element.group
                kind, marks = _KINDS[element.kind], of_images
            elif isinstance(element, Custom):
                kind, marks = _CAUSAL if element.of.causal else _FULL, (element.of.start_id, element.of.end_id)
                step = size + 2 if element.of.causal else 1
            elif isinstance(element, Text):
                kind, marks, learned, step = _TEXT, of_texts, element.learned, size + 2
            if kept:
                begins_split = group is None or group != clip
                after = ids_after.get(element.after, element.after)
                lines.append((kind, size, position, after, learned, rows, columns, begins_sample, begins_split, *marks))
                timesteps.append(timestep)
                clip, begins_sample = group, False
                if element.kind == "text":
                    ids.append(np.asarray(content))
            if kept or element.kind != "text":
                position += step
    table = np.array(lines, np.int64).reshape(-1, len(_Elements._fields))
    return _Elements(*table.T), np.concatenate(ids), np.array(timesteps, np.float32)


def _texts(
    table: _Elements, starts: np.ndarray, ids: np.ndarray, special_tokens: SpecialTokenConfig
) -> tuple[np.ndarray, np.ndarray]:
    """All that is no patch: the ids of texts and marks, and their places."""
    special_tokens.check_ids(ids)
    is_text = table.kind == _TEXT
    inner = np.where(is_text, table.size, 0)  # of an image no more than its two marks
    begins = np.cumsum(inner + 2) - inner - 2
    found = np.empty((inner + 2).sum(), np.int64)
    found[begins] = table.start_id
    found[_ranges(begins[is_text] + 1, inner[is_text])] = ids
    found[begins + inner + 1] = table.end_id
    first_and_last = np.stack([starts, starts + table.size + 1], axis=1)
    return found, _ranges(first_and_last.ravel(), np.stack([inner + 1, 0 * inner + 1], axis=1).ravel())


def _labels(
    table: _Elements, starts: np.ndarray, text_ids: np.ndarray, text_places: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What is learned: the ids, the places before them, and what each weighs."""
    learned, has_after = table.learned > 0, table.after >= 0
    lengths = table.size[learned] + 1
    within = _ranges(starts[learned], lengths)
    ends = (starts + table.size + 1)[has_after]
    labels = np.concatenate([text_ids[np.searchsorted(text_places, within) + 1], table.after[has_after]])
    weights = np.concatenate([np.repeat(1 / np.sqrt(lengths), lengths), np.ones(len(ends))])
    places = np.concatenate([within, ends])
    in_order = np.argsort(places)
    return labels[in_order], places[in_order], weights[in_order].astype(np.float32)


def _ranges(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """start, start + 1, .. of each range, one range after the other, [sum of lengths] int64.

    >>> _ranges(np.array([5, 20]), np.array([3, 2]))
    array([ 5,  6,  7, 20, 21])
    """
    starts, lengths = starts[lengths > 0], lengths[lengths > 0]
    steps = np.ones(lengths.sum(), np.int64)  # summed up where they are: memory costs more than the sum
    if len(starts):
        steps[0] = starts[0]
        steps[np.cumsum(lengths)[:-1]] = starts[1:] - starts[:-1] - lengths[:-1] + 1
    return np.cumsum(steps, out=steps)
