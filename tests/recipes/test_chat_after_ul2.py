"""recipes/chat_after_ul2.py: both losses of conversations fall, and the reply has the form of one."""

import re

import pytest
import tokenizers

import ul2_tasks

for package in ("torch", "transformers", "accelerate"):
    pytest.importorskip(package, reason="the extra torch is not installed")

pytestmark = pytest.mark.train


def test_reasoning_and_answers_are_learned_and_a_prompt_is_replied_to(run_recipe):
    output = run_recipe("chat_after_ul2.py", "--use_cpu", without=("tensorflow", "seqio", "gin"))
    for group in ("reasoning", "answer"):
        before, after = re.findall(rf"'eval_loss/{group}': '([\d.]+)'", output)
        assert float(after) < 0.85 * float(before), group
    prompt, data, reply = re.findall(r"^(?:prompt|data|reply): (.*(?:\n(?!data|reply).*)*)", output, re.MULTILINE)
    assert prompt.startswith("[S]<|start|>")
    assert prompt.endswith("assistant")
    for text in (data, reply):
        assert text.startswith("<|channel|>")
        assert "<|message|>" in text


def test_texts_are_decoded_by_a_tokenizer_whose_id_0_is_text(run_recipe, tmp_path):
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    letters = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=600, initial_alphabet=letters, show_progress=False)
    tokenizer.train_from_iterator(ul2_tasks.embedded_documents()[:50], trainer)
    tokenizer.add_special_tokens(["<|endoftext|>"])
    (tmp_path / "mine").mkdir()
    tokenizer.save(str(tmp_path / "mine" / "tokenizer.json"))
    (tmp_path / "mine" / "tokenizer_config.json").write_text('{"eos_token": "<|endoftext|>"}')
    steps = "--ul2_steps", 1, "--chat_steps", 1, "--length", 192
    output = run_recipe("chat_after_ul2.py", "--use_cpu", *steps, "--renderer", f"harmony:{tmp_path / 'mine'}")
    assert re.search(
        r"^prompt: \[S\]<\|start\|>user<\|message\|>.*<\|end\|><\|start\|>assistant$", output, re.MULTILINE | re.DOTALL
    )
    assert re.search(r"^data: <\|channel\|>.*<\|message\|>.*<\|return\|>$", output, re.MULTILINE)
