"""The laws of texts: in memory, in windows, indexed, packed, beside other tasks, in a sequence."""

import pytest

pytest.register_assert_rewrite("every_law")

from tests.laws.every_law import *  # noqa: E402, F403
from tests.laws.pipelines import TEXTS as PIPELINES  # noqa: E402, F401
