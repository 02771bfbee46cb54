"""recipes/chat_after_ul2.py: both losses of conversations fall, and the reply has the form of one."""

import re

import pytest

for package in ("torch", "transformers", "accelerate"):
    pytest.importorskip(package, reason="the extra torch is not installed")

pytestmark = pytest.mark.train


def test_reasoning_and_answers_are_learned_and_a_prompt_is_replied_to(run_recipe):
    output = run_recipe("chat_after_ul2.py", "--use_cpu", without=("tensorflow", "seqio", "gin"))
    for group in ("reasoning", "answer"):
        before, after = re.findall(rf"'eval_{group}_loss': '([\d.]+)'", output)
        assert float(after) < 0.85 * float(before), group
    prompt, data, reply = re.findall(r"^(?:prompt|data|reply): (.*(?:\n(?!data|reply).*)*)", output, re.MULTILINE)
    assert prompt.startswith("[S]<|start|>")
    assert prompt.endswith("assistant")
    for text in (data, reply):
        assert text.startswith("<|channel|>")
        assert "<|message|>" in text
