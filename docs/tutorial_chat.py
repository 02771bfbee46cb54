# %% [markdown]
# # From conversations to a model that answers, in eight steps
#
# This tutorial is the file `docs/tutorial_chat.py`: a notebook for Jupyter (with jupytext), VS Code and PyCharm, and a
# script. This runs it from top to bottom, in a minute on two CPU cores:
#
#     pip install '.[torch]'
#     python docs/tutorial_chat.py       # in the folder tutorial_chat/; or give another one
#
# Everything it makes is in that folder. It can be run again.

# %%
# ruff: noqa: E402
import importlib
import importlib.util
import json
import os
import pathlib
import shlex
import shutil
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # TensorFlow says little

if importlib.util.find_spec("transformers") is None:
    sys.exit("step 7 needs transformers, which is not installed: pip install '.[torch]'")

IS_SCRIPT = pathlib.Path(sys.argv[0]).name == "tutorial_chat.py"
FOLDER = pathlib.Path(sys.argv[1] if IS_SCRIPT and sys.argv[1:] else "tutorial_chat").resolve()
FOLDER.mkdir(parents=True, exist_ok=True)
os.chdir(FOLDER)
sys.path.insert(0, str(FOLDER))  # for the module that step 3 writes

from ul2_command import main


def ul2(*arguments, statuses=(0,)):
    """Runs the command `ul2` in this process, after printing it."""
    print("\n$", shlex.join(["ul2", *arguments]), flush=True)
    try:
        main(arguments, standalone_mode=False)
        status = 0
    except SystemExit as end:
        status = end.code or 0
    if status not in statuses:
        sys.exit(f"it ended with status {status}")


# %% [markdown]
# ## 1. Conversations
#
# A conversation is a list of messages. This cell writes 400 of them: a user asks for a sum, the assistant reasons in the
# channel `analysis`, and answers in the channel `final`. Put your own into `talks/` instead, as JSON Lines or Parquet.
#
# The last line has its reasoning in a field of its own, as some data sets do. Its text would be lost without a word.

# %%
print("\n## 1. Conversations")

TALKS = pathlib.Path("talks")
TALKS.mkdir(exist_ok=True)


def conversation(a, b):
    reasoning = f"{a} and {b // 10 * 10} make {a + b // 10 * 10}, and {b % 10} more make {a + b}."
    return [
        {"role": "user", "content": f"What is {a} + {b}?"},
        {"role": "assistant", "channel": "analysis", "content": reasoning},
        {"role": "assistant", "channel": "final", "content": f"It is {a + b}."},
    ]


sums = [(10 + 7 * number % 90, 10 + 31 * number % 89) for number in range(400)]
lines = [json.dumps({"id": f"sum-{number}", "messages": conversation(*pair)}) for number, pair in enumerate(sums)]
strange = [{"role": "user", "content": "What is 1 + 1?"}, {"role": "assistant", "thinking": "Easy.", "content": "2"}]
(TALKS / "0.jsonl").write_text("\n".join(lines[:200]) + "\n")
(TALKS / "1.jsonl").write_text("\n".join([*lines[200:], json.dumps({"id": "strange", "messages": strange})]) + "\n")
print(lines[0])

# %% [markdown]
# ## 2. Look for problems
#
# `ul2 doctor` renders conversations as training will. It names the file and the line of what it would refuse.

# %%
print("\n## 2. Look for problems")

chat = ["--corpus", "talks/*.jsonl", "--renderer", "harmony:default", "--id_key", "id"]
ul2("doctor", "talks", *chat, statuses=(0, 1))

# %% [markdown]
# We make its reasoning a message of its own, as the others have it.

# %%
strange = [strange[0], {"role": "assistant", "channel": "analysis", "content": "Easy."}]
strange.append({"role": "assistant", "channel": "final", "content": "2"})
(TALKS / "1.jsonl").write_text("\n".join([*lines[200:], json.dumps({"id": "strange", "messages": strange})]) + "\n")
ul2("doctor", "talks", *chat)

# %% [markdown]
# ## 3. Register
#
# `register_chat` gives names to the corpus, `sums_corpus`, and to two tasks: `sums_chat`, for a decoder, and
# `sums_prompt_completion`,
# for an encoder and a decoder. A module does it, because commands and training runs import it. `harmony:default` is
# Harmony's form with the vocabulary that comes with this package; `harmony` is the same with OpenAI's o200k_harmony, from a
# local file.

# %%
print("\n## 3. Register")

pathlib.Path("my_talks.py").write_text('''"""What the model is to learn from."""

from ul2_tasks import register_chat

CHAT = register_chat("sums", "talks/*.jsonl", "harmony:default", id_key="id", validation=0.1)
''')
importlib.invalidate_caches()

from my_talks import CHAT

print(f"registered {CHAT}")

# %% [markdown]
# ## 4. Look at what is learned
#
# Each token knows whether it is learned, and whether it is reasoning (span 1) or answer (span 2). `ul2 show` colours them;
# in a file or a notebook without colours the table says the same.

# %%
print("\n## 4. Look at what is learned")

import seqio

task = seqio.get_mixture_or_task(CHAT)
example = next(task.get_dataset({"tokens": 128}, "train", shuffle=False).as_numpy_iterator())
vocabulary = task.output_features["tokens"].vocabulary
print("token            learned  span")
for token, mask, span in zip(example["tokens"], example["loss_mask"], example["span_id"]):
    print(f"{vocabulary.decode([token.item()])!r:<16} {mask:>7} {span:>5}")

# %%
ul2("show", "sums", "--module", "my_talks", "--count", "1")

# %% [markdown]
# ## 5. Measure
#
# `ul2 stats` counts tokens by role, channel and span, and runs checks: nothing of the user is learned, each learned run
# ends in a token that stops, the final span says what the message says. A failed check is exit status 1.

# %%
print("\n## 5. Measure")

ul2("stats", "sums", "--module", "my_talks")

# %% [markdown]
# ## 6. Cache
#
# The cache keeps the rendered conversations, and of each message its kind. So what is learned can change without another
# cache.

# %%
print("\n## 6. Cache")

ul2("cache", "sums", "--module", "my_talks", "--output", "cache")
ul2("verify", "cache/sums_corpus")

# %% [markdown]
# ## 7. Train
#
# Rows are packed: several conversations share a row, none is cut, and none sees another one. The loss is the mean over the
# reasoning plus the mean over the answers. So a long reasoning does not outweigh a short answer. This is a tiny decoder of
# Transformers.

# %%
print("\n## 7. Train")

import transformers

import ul2_tasks
from ul2_tasks import HuggingFaceChatConverter, LossGroupTrainer, LossGroupWeights, UL2IterableDataset

seqio.add_global_cache_dirs([str(FOLDER / "cache")])
STEPS = int(os.environ.get("TUTORIAL_STEPS", 60))


def rows(split):
    converter = HuggingFaceChatConverter()
    return UL2IterableDataset(
        CHAT, {"tokens": 256}, split=split, rank=0, world_size=1, use_cached=True, seed=0, feature_converter=converter
    )


row = next(iter(rows("train")))
print(
    {key: tuple(value.shape) for key, value in row.items()}, f"{(row['labels'] >= 0).float().mean():.0%} of the labels are learned"
)

sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
transformers.set_seed(0)
model = transformers.LlamaForCausalLM(transformers.LlamaConfig(vocab_size=ul2_tasks.embedding_rows(vocabulary), **sizes))
shutil.rmtree("run", ignore_errors=True)  # what an earlier run of this tutorial left
arguments = transformers.TrainingArguments(
    "run",
    max_steps=STEPS,
    logging_steps=max(1, STEPS // 4),
    per_device_train_batch_size=4,
    learning_rate=5e-3,
    save_strategy="no",
    report_to=[],
    disable_tqdm=True,
    use_cpu=True,
)
trainer = LossGroupTrainer(
    model, arguments, train_dataset=rows("train"), loss_group_weights=LossGroupWeights(reasoning=1.0, answer=1.0)
)
trainer.train()
print("\n step  reasoning  answer")
for log in trainer.state.log_history:
    if "reasoning_loss" in log:
        print(f"{log['step']:>5} {log['reasoning_loss']:>10.2f} {log['answer_loss']:>7.2f}")

# %% [markdown]
# ## 8. For Megatron-LM
#
# The same conversations as files for Megatron-LM: for each shard the tokens, the mask and the spans, with the same borders.

# %%
print("\n## 8. For Megatron-LM")

shutil.rmtree("megatron", ignore_errors=True)
ul2("export", "sums", "--module", "my_talks", "--format", "megatron", "--cache", "cache", "--output", "megatron")
ul2("verify", "megatron")

# %% [markdown]
# That is all. Next: your conversations in `talks/`, [which of them are learned](guides/chat.md#what-is-learned), and a
# model that was pre-trained: with [Transformers](guides/chat_pytorch.md), [t5x](guides/chat_training.md) or
# [Megatron-LM](guides/chat_megatron.md).

# %%
print(f"\nall of it is in {FOLDER}")
