"""T5Gemma 2's batches: pixels as its processor has them, present where there are placeholders; and a tiny one that learns."""

import numpy as np
import pytest
import seqio

torch = pytest.importorskip("torch", reason="the extra torch is not installed")
transformers = pytest.importorskip("transformers", reason="the extra torch is not installed")

from tests import tiny_models  # noqa: E402
from tests.images.image_support import RUN, S, image, png, read, registered  # noqa: E402
from ul2_tasks import T5Gemma2Collator, UL2IterableDataset  # noqa: E402
from ul2_tasks.images.t5gemma2 import pixel_values  # noqa: E402
from ul2_tasks.models.transformers import HuggingFaceFeatureConverter  # noqa: E402
from ul2_tasks.tasks.converters import EncDecFeatureConverter, PrefixLMFeatureConverter, seqio_converter  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("seeded_torch")]

LENGTHS = {"inputs": 64, "targets": 64}
SIDE = 8
DIGITS = ["It is black.", "It is grey.", "It is white."]
GREYS = [image(0), image(128), image(255)]


@pytest.fixture(scope="module")
def seen():
    """Images, and what each of them is."""
    return registered("seen", *([grey, text] for grey, text in zip(GREYS, DIGITS)), ["No image at all."], denoisers=[S])


def batches(name="seen_mix", batch_size=4, **settings):
    dataset = UL2IterableDataset(name, LENGTHS, **{"seed": 0, "num_epochs": 1, **settings})
    collator = T5Gemma2Collator(image_tokens=RUN, image_size=SIDE)
    return torch.utils.data.DataLoader(dataset, batch_size=batch_size, collate_fn=collator)


def test_pixels_are_those_of_the_processor():
    from PIL import Image
    from transformers.models.gemma3.image_processing_pil_gemma3 import Gemma3ImageProcessorPil

    random = np.random.default_rng(0)
    pixels = [random.integers(0, 256, (*size, 3)).astype(np.uint8) for size in ((40, 60), (1000, 300), (896, 896))]
    wanted = Gemma3ImageProcessorPil(size={"height": 896, "width": 896})(
        [Image.fromarray(each) for each in pixels], return_tensors="np"
    )["pixel_values"]
    found = pixel_values([png(each) for each in pixels])
    assert found.shape == wanted.shape == (3, 3, 896, 896)
    np.testing.assert_allclose(found, wanted, atol=1e-6)


def test_a_batch_has_the_images_of_its_examples(seen):
    (converted,) = batches()
    assert converted["pixel_values"].shape == (3, 3, SIDE, SIDE)
    assert int((converted["input_ids"] == RUN.image_id).sum()) == 3 * RUN.image_seq_length
    assert (converted["decoder_input_ids"][:, 0] == 2).all()
    plain = {tuple(example["targets"]) for example in read(seen, (64, 64))}
    assert {tuple(row[row >= 0].tolist()) for row in converted["labels"]} == plain


def test_placeholders_without_their_images_are_refused(seen):
    example = next(example for example in UL2IterableDataset(seen, LENGTHS, seed=0) if example["images"])
    collator = T5Gemma2Collator(image_tokens=RUN, image_size=SIDE)
    for examples, named in (
        ([{**example, "images": []}], "0 images"),
        ([{**example, "images": example["images"] * 2}], "2 images"),
        ([], "example"),
    ):
        with pytest.raises(ValueError, match=named):
            collator(examples)


@pytest.mark.parametrize(
    "converter", [EncDecFeatureConverter(), PrefixLMFeatureConverter(), seqio_converter(HuggingFaceFeatureConverter())]
)
def test_converters_that_know_no_images_refuse_them(seen, converter):
    with pytest.raises(ValueError, match="T5Gemma2Collator"):
        seqio.get_dataset(seen, LENGTHS, feature_converter=converter, num_epochs=1)


def tiny():
    """A T5Gemma 2 with a projector that is not 0, as a fresh one has it."""
    ids = {"boi_token_index": RUN.boi_id, "eoi_token_index": RUN.eoi_id}
    model = tiny_models.t5gemma2(384, encoder=ids, image_token_index=RUN.image_id)
    projector = model.get_encoder().multi_modal_projector
    torch.nn.init.normal_(projector.mm_input_projection_weight, std=0.2)
    return model


@pytest.mark.train
def test_a_tiny_t5gemma2_learns_what_its_images_are():
    prefix = registered("grey", *([grey, text] for grey, text in zip(GREYS, DIGITS)), denoisers=[S], split="last_image")
    model = tiny()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    (batch,) = batches(prefix, batch_size=3)
    losses = []
    for _ in range(80):
        loss = model(**batch).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert np.mean(losses[-5:]) < 0.2 * losses[0]
    with torch.no_grad():
        right = model(**batch).loss.item()
        swapped = model(**{**batch, "pixel_values": batch["pixel_values"].roll(1, 0)}).loss.item()
    assert right < 0.3
    assert swapped > 1.5 * right, "the images of others say other things"
