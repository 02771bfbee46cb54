"""BAGEL's packed rows of texts and images, on their own: from records to what a model that reads and generates images takes."""

from ul2_tasks.image_rows.attention import Places, dense_mask, places, sees
from ul2_tasks.image_rows.bagel_config import bagel_sources
from ul2_tasks.image_rows.custom import Custom, ElementKind
from ul2_tasks.image_rows.dropout import Dropout
from ul2_tasks.image_rows.recipe import Source, example_sources
from ul2_tasks.image_rows.records import listed_records, open_records
from ul2_tasks.image_rows.row_arrays import lay_out
from ul2_tasks.image_rows.samples import Sizes, sample_of
from ul2_tasks.image_rows.sizes import VAE, VIT_CONVERSATION, VIT_EDIT, Size
from ul2_tasks.image_rows.special_tokens import SpecialTokenConfig
from ul2_tasks.image_rows.video import FrameSampler
from ul2_tasks.images.elements import Image, Text, letters

__all__ = [
    "VAE",
    "VIT_CONVERSATION",
    "VIT_EDIT",
    "Custom",
    "Dropout",
    "ElementKind",
    "FrameSampler",
    "Image",
    "Places",
    "Size",
    "Sizes",
    "Source",
    "SpecialTokenConfig",
    "Text",
    "bagel_sources",
    "dense_mask",
    "example_sources",
    "lay_out",
    "letters",
    "listed_records",
    "open_records",
    "places",
    "sample_of",
    "sees",
]
