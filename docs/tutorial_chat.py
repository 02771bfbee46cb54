# %% [markdown]
# # From conversations to a model that answers, in eight steps
#
# Train a small model on conversations: check, register, measure and cache them, and give reasoning and answers a loss of their
# own. You need a minute on two CPU cores, and no data: it writes its conversations. This tutorial is the script
# `docs/tutorial_chat.py`, and a notebook:
#
#     pip install '.[seqio,torch]'
#     python docs/tutorial_chat.py       # in the folder tutorial_chat/; or name another one
#
# Everything it makes is in that folder, and you can run it again.

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

for package, extra in {"seqio": "seqio", "transformers": "torch"}.items():
    if importlib.util.find_spec(package) is None:
        sys.exit(f"{package} is not installed (extra {extra}): pip install '.[seqio,torch]'")
if importlib.util.find_spec("triton"):
    import triton  # noqa: F401 (before TensorFlow, see docs/help/troubleshooting.md#segmentation-fault-with-triton)

IS_SCRIPT = pathlib.Path(sys.argv[0]).name == "tutorial_chat.py"
FOLDER = pathlib.Path(sys.argv[1] if IS_SCRIPT and sys.argv[1:] else "tutorial_chat").resolve()
FOLDER.mkdir(parents=True, exist_ok=True)
os.chdir(FOLDER)
sys.path.insert(0, str(FOLDER))  # for the module that step 3 writes

from ul2_tasks.cli import main


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
# ## 1. Write conversations
#
# A conversation is a list of messages. This cell writes 400 of them: a user asks for a sum, the assistant reasons in the
# channel `analysis`, and answers in the channel `final`. Put your own into `talks/` instead, as JSON Lines or Parquet.
#
# The last line has its reasoning in a separate field, as some datasets do. Without a check this text would be lost silently.

# %%
print("\n## 1. Write conversations")

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
# `ul2 doctor` renders conversations as training does. It names the file and the line of each record that would be an error.

# %%
print("\n## 2. Look for problems")

pathlib.Path("my_chat.py").write_text('''"""The conversations, for commands."""

from ul2_tasks import Chat

talks = Chat("talks", "talks/*.jsonl", "harmony:default", id_key="id")
''')
ul2("doctor", "my_chat.py:talks", statuses=(0, 1))

# %% [markdown]
# Write the reasoning as a separate message, as in the other conversations.

# %%
strange = [strange[0], {"role": "assistant", "channel": "analysis", "content": "Easy."}]
strange.append({"role": "assistant", "channel": "final", "content": "2"})
(TALKS / "1.jsonl").write_text("\n".join([*lines[200:], json.dumps({"id": "strange", "messages": strange})]) + "\n")
ul2("doctor", "my_chat.py:talks")

# %% [markdown]
# ## 3. Register
#
# `register_chat` registers the corpus, `sums_corpus`, and two tasks: `sums_chat` for decoder-only models, and
# `sums_prompt_completion` for encoder-decoder models. Put the call into a file, which commands and training runs import.
# `harmony:default` is the Harmony format with the built-in vocabulary. `harmony` is the same with OpenAI's o200k_harmony, from
# a local file.

# %%
print("\n## 3. Register")

pathlib.Path("my_talks.py").write_text('''"""The conversations to train on."""

from ul2_tasks import register_chat

CHAT = register_chat("sums", "talks/*.jsonl", "harmony:default", id_key="id", validation=0.1)
''')
importlib.invalidate_caches()

from my_talks import CHAT

print(f"registered {CHAT}")

# %% [markdown]
# ## 4. See which tokens are trained on
#
# Each token has a loss mask, and a loss group: 1 for reasoning, and 2 for the answer. `ul2 show` colours them. In a file or a
# notebook without colours, the table has the same information.

# %%
print("\n## 4. See which tokens are trained on")

import seqio

task = seqio.get_mixture_or_task(CHAT)
example = next(task.get_dataset({"tokens": 128}, "train", shuffle=False).as_numpy_iterator())
vocabulary = task.output_features["tokens"].vocabulary
print("token            trained on  loss group")
for token, mask, group in zip(example["tokens"], example["loss_mask"], example["span_id"]):
    print(f"{vocabulary.decode([token.item()])!r:<16} {mask:>10} {group:>11}")

# %%
ul2("show", "my_talks.py:sums", "--count", "1")

# %% [markdown]
# ## 5. Measure
#
# `ul2 stats` counts tokens by role, channel and loss group, and runs checks: no token of the user is trained on, each run of
# tokens trained on ends with the token that ends a message, and the answer decodes to its text. If a check fails, the exit
# status is 1.

# %%
print("\n## 5. Measure")

ul2("stats", "my_talks.py:sums")

# %% [markdown]
# ## 6. Cache
#
# The cache keeps the rendered conversations, and the kind of each message. So you can change which tokens are trained on
# without a new cache.

# %%
print("\n## 6. Cache")

shutil.rmtree("cache", ignore_errors=True)  # of other files of an earlier run
ul2("cache", "my_talks.py:sums", "--output", "cache")
ul2("verify", "cache/sums_corpus")

# %% [markdown]
# ## 7. Train
#
# Rows are packed: several conversations share a row, none is truncated, and none attends to another. The loss is the mean over
# the reasoning plus the mean over the answers, so a long reasoning does not outweigh a short answer. The model is a tiny
# decoder of Transformers.

# %%
print("\n## 7. Train")

import transformers

import ul2_tasks
from ul2_tasks import GroupLossTrainer, HuggingFaceChatConverter, TokenGroups, UL2IterableDataset, accept_packed_sequences

seqio.add_global_cache_dirs([str(FOLDER / "cache")])
STEPS = int(os.environ.get("TUTORIAL_STEPS", 60))


def rows(split):
    converter = HuggingFaceChatConverter()
    return UL2IterableDataset(
        CHAT, {"tokens": 256}, split=split, rank=0, world_size=1, use_cached=True, seed=0, feature_converter=converter
    )


row = next(iter(rows("train")))
fraction = (row["labels"] >= 0).float().mean()
print({key: tuple(value.shape) for key, value in row.items()}, f"{fraction:.0%} of the tokens are trained on")

sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
transformers.set_seed(0)
config = transformers.LlamaConfig(vocab_size=ul2_tasks.embedding_rows(vocabulary), **sizes)
model = accept_packed_sequences(transformers.LlamaForCausalLM(config))
shutil.rmtree("run", ignore_errors=True)  # of an earlier run of this tutorial
arguments = transformers.TrainingArguments(
    "run",
    max_steps=STEPS,
    logging_steps=max(1, STEPS // 4),
    per_device_train_batch_size=4,
    learning_rate=5e-3,
    save_strategy="no",
    remove_unused_columns=False,  # of a packed row, which the model's own arguments do not name
    report_to=[],
    disable_tqdm=True,
    use_cpu=True,
)
groups = TokenGroups.of_chat({"reasoning": 1.0, "answer": 1.0, "other": 1.0})
trainer = GroupLossTrainer(model, arguments, train_dataset=rows("train"), groups=groups)
trainer.train()
print("\n step  reasoning  answer")
for log in trainer.state.log_history:
    if "loss/reasoning" in log:
        print(f"{log['step']:>5} {log['loss/reasoning']:>10.2f} {log['loss/answer']:>7.2f}")

# %% [markdown]
# ## 8. Export for Megatron-LM
#
# Write the same conversations for Megatron-LM: for each shard the tokens, the loss masks and the loss groups, with the same
# bounds.

# %%
print("\n## 8. Export for Megatron-LM")

shutil.rmtree("megatron", ignore_errors=True)
ul2("export", "my_talks.py:sums", "--format", "megatron", "--cache", "cache", "--output", "megatron")
ul2("verify", "megatron")

# %% [markdown]
# Next, put your conversations into `talks/`, choose [the tokens to train on](guides/chat.md#choose-the-tokens-to-train-on), and
# fine-tune a pre-trained model with [Transformers](guides/loss_by_denoiser.md#chat), [t5x](guides/train_with_t5x.md#chat) or
# [Megatron-LM](guides/export.md#tokens-for-megatron-lm).

# %%
print(f"\nall of it is in {FOLDER}")
