"""The laws of texts in PyTorch and in grain."""

import pytest

for package in ("torch", "torchdata", "grain"):
    pytest.importorskip(package, reason=f"{package} is not installed")
pytest.register_assert_rewrite("every_law")

from tests.laws.every_law import *  # noqa: E402, F403
from tests.laws.pipelines import OF_PYTORCH as PIPELINES  # noqa: E402, F401

pytestmark = pytest.mark.torch
