"""The laws of texts with images, and of rows of images."""

import pytest

pytest.importorskip("PIL", reason="the extra images is not installed")
pytest.register_assert_rewrite("every_law")

from tests.laws.every_law import *  # noqa: E402, F403
from tests.laws.image_pipelines import IMAGES as PIPELINES  # noqa: E402, F401
