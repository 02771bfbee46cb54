"""t5x trains on interleaved image-text data that are codes, packed, with its own models."""

import json
import random

import pytest

pytest.importorskip("t5x", reason="t5x is not importable", exc_type=ImportError)

from test_t5x import losses, steps, train

from ul2_tasks import default_vocabulary
from ul2_tasks.vocabulary.special_ids import special_tokens

pytestmark = pytest.mark.t5x

CODES = 16
GIN = """
from __gin__ import dynamic_registration
import ul2_tasks
MIXTURE_OR_TASK_NAME = @ul2_tasks.register_image_text()
ul2_tasks.register_image_text:
  name = 'codes'
  source = {{'train': '{source}', 'validation': '{source}'}}
  vocabulary = %VOCABULARY
  denoisers = [@ul2_tasks.SequentialDenoiser(), @ul2_tasks.SpanDenoiser()]
  split = 'before_last_image'
  image_tokens = @ul2_tasks.ImageCodes()
  sentinels = {sentinels}
ul2_tasks.SequentialDenoiser:
  name = 's'
  mode = '[S]'
  noise_density = 0.75
ul2_tasks.SpanDenoiser:
  name = 'r'
  mode = '[R]'
  mean_span_length = 3
  noise_density = 0.15
ul2_tasks.ImageCodes:
  start = {start}
  end = {end}
  first = {first}
  codes = {codes}
"""


def test_a_run_learns_to_write_the_codes_that_a_text_asks_for(tmp_path):
    """S asks for the codes of a record, and R reads records that are joined. The last ids of the sentinels are those of codes."""
    ids = sorted(special_tokens(default_vocabulary(), None).sentinels)
    start, end, first = ids[-2], ids[-1], ids[-2 - CODES]
    draw = random.Random(0)
    records = [{"texts": [f"Eight times {code}:"], "images": [[code] * 8]} for code in draw.choices(range(CODES), k=400)]
    path = tmp_path / "records.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    sentinels = ids[:64]
    numbers = {"sentinels": sentinels, "start": start, "end": end, "first": first, "codes": CODES}
    (tmp_path / "codes.gin").write_text(GIN.format(source=path, **numbers))
    train(tmp_path / "model", steps(20), files=("gin/ul2_tiny.gin", str(tmp_path / "codes.gin")))
    found = losses(tmp_path / "model")
    assert found["train", 20] < 0.7 * found["train", 10] < found["train", 10] < 9
