"""Settings for all tests: quiet TensorFlow, hypothesis that draws the same cases everywhere."""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import hypothesis

hypothesis.settings.register_profile("ul2", derandomize=True, deadline=None, max_examples=30)
hypothesis.settings.load_profile("ul2")
