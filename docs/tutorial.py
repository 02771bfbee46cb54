# %% [markdown]
# # From text files to a training run, in ten steps
#
# Build a UL2 mixture from your own text: check the corpus, train a tokenizer, choose denoisers, measure, cache, and train with
# t5x. You need two minutes on two CPU cores, and no data: it writes a small corpus. This tutorial is the script
# `docs/tutorial.py`, and a notebook:
#
#     pip install '.[seqio]'
#     python docs/tutorial.py            # in the folder tutorial/; or give another one
#
# Everything it makes is in that folder, and you can run it again. Step 10 trains for a minute
# more if t5x is on the path; otherwise it says how to put it there.

# %%
# ruff: noqa: E402
import importlib
import importlib.util
import json
import os
import pathlib
import shlex
import shutil
import subprocess
import sys

import sentencepiece

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # TensorFlow says little

ENVIRONMENT = {**os.environ, "COLUMNS": "110", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
ENVIRONMENT.pop("FORCE_COLOR", None)  # Jupyter sets it; progress bars, made for a terminal, would fill the page
IS_SCRIPT = pathlib.Path(sys.argv[0]).name == "tutorial.py"
FOLDER = pathlib.Path(sys.argv[1] if IS_SCRIPT and sys.argv[1:] else "tutorial").resolve()
FOLDER.mkdir(parents=True, exist_ok=True)
os.chdir(FOLDER)
sys.path.insert(0, str(FOLDER))  # for the modules that steps 4 and 5 write
print(f"in {FOLDER}")


def ul2(*arguments, statuses=(0,)):
    """Runs the command `ul2`, also where that is not on the PATH, after printing it."""
    print("\n$", shlex.join(["ul2", *arguments]), flush=True)
    command = [sys.executable, "-m", "ul2_tasks.cli", *arguments]
    process = subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    for line in process.stdout:
        print(line, end="", flush=True)
    if process.wait() not in statuses:
        sys.exit(f"it ended with status {process.returncode}")


# %% [markdown]
# ## 1. Text files
#
# A corpus is a set of files: text, JSON Lines, Parquet, Arrow or TFRecord, compressed or not. This cell writes eight files of
# JSON Lines, with some 500 documents: the text of Python's own `help()` topics. Put your own into `texts/` instead. (For text
# files say what a document is: `open_source(.., documents="paragraph")`.) Many files are better than one, because denoisers
# and hosts split them among themselves.
#
# The last file ends with a line that is not a document. Real corpora have such lines.
#
# A second run keeps the files, because a cache is valid only for files of the same size and time.

# %%
print("\n## 1. Text files")

from ul2_tasks import embedded_documents

TEXTS = pathlib.Path("texts")
documents = embedded_documents()
if not TEXTS.exists():
    TEXTS.mkdir()
    for number in range(8):
        lines = [json.dumps({"text": text}) for text in documents[number::8]]
        (TEXTS / f"{number}.jsonl").write_text("\n".join(lines) + "\n")
    with open(TEXTS / "7.jsonl", "a") as file:
        file.write('{"title": "a record without a text"}\n')

print(f"{len(documents)} documents, {sum(map(len, documents)):,} characters")

# %% [markdown]
# ## 2. Look for problems
#
# `ul2 doctor` checks the installation, the vocabulary, the first 1,000 documents and the lengths. It says how to fix each
# problem, and ends with status 1 if there is one. It finds our line.

# %%
print("\n## 2. Look for problems")

ul2("doctor", "mine", "--corpus", "texts/*.jsonl", "--lengths", "128,128", statuses=(0, 1))

# %% [markdown]
# We remove the line. (`register(on_error="skip")` leaves such records out and counts them.)

# %%
lines = (TEXTS / "7.jsonl").read_text().splitlines()
good = [line for line in lines if "text" in json.loads(line)]
if good != lines:
    (TEXTS / "7.jsonl").write_text("\n".join(good) + "\n")
print(f"texts/7.jsonl has {len(good)} documents now")

# %% [markdown]
# ## 3. A vocabulary
#
# We train a SentencePiece model of 3,000 pieces. Among them are 256 sentinels and three mode tokens, which no text becomes.
# The tokens give every text back as it was, with line feeds and runs of spaces. A real run has 32,000 pieces or more, or uses
# an existing tokenizer of SentencePiece or Hugging Face. `recipes/train_vocabulary.py` trains one on a large corpus.

# %%
print("\n## 3. A vocabulary")

texts = [json.loads(line)["text"] for path in sorted(TEXTS.iterdir()) for line in path.open()]
with open("my.model", "wb") as file:
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts),
        model_writer=file,
        vocab_size=3000,
        **{"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1},
        control_symbols=[*(f"<extra_id_{number}>" for number in range(256)), "[R]", "[S]", "[X]"],
        **{"byte_fallback": True, "normalization_rule_name": "identity", "remove_extra_whitespaces": False},
        **{"add_dummy_prefix": False, "allow_whitespace_only_pieces": True, "minloglevel": 1},
    )
print("my.model has 3,000 pieces")

# %% [markdown]
# ## 4. Denoisers and lengths
#
# The default is the mixture of T5Gemma 2: R1, R2, X1, X2 and S. This command prints the length of its chunks, and how many
# tokens are masked, with inputs and targets of 128 tokens.

# %%
print("\n## 4. Denoisers and lengths")

ul2("lengths", "mine", "--vocabulary", "my.model", "--lengths", "128,128")

# %% [markdown]
# X1 has a mean span of 32 tokens, but only 22 of the 147 tokens of its chunk are masked: one span, and a short one. So at 128
# tokens we drop it, and use a denoiser of UL2's paper, which masks half of the text in spans of 8.
#
# The second table is about packing. Full-length chunks leave a third of the inputs empty. Shorter ones, with
# `register(chunk_tokens=..)`, fill nearly all of them, but teach shorter contexts. We keep full-length chunks.
#
# The denoisers go into a module, because the commands, the workers of the cache and the training run need them too.

# %%
pathlib.Path("my_denoisers.py").write_text('''"""The objective."""

from ul2_tasks import (T5GEMMA2, SpanDenoiser)

R1, R2, X1, X2, S = T5GEMMA2
X8 = SpanDenoiser(name="x8", mode="[X]", mean_span_length=8, noise_density=0.5, weight=1)
DENOISERS = (R1, R2, X8, X2, S)
LENGTHS = {"inputs": 128, "targets": 128}
''')
importlib.invalidate_caches()

from my_denoisers import DENOISERS, LENGTHS, X8

from ul2_tasks import chunk_length

print("a full chunk of X8:", chunk_length(X8, LENGTHS))

# %% [markdown]
# ## 5. Register
#
# `register` adds the corpus `mine_corpus`, a task for each denoiser, `mine_r1` to `mine_s`, and the mixture `mine_mix` to
# SeqIO's registries. It opens no file yet. Every program that imports the module has the mixture. We run the doctor again.

# %%
print("\n## 5. Register")

pathlib.Path("my_corpora.py").write_text('''"""The corpus."""

from my_denoisers import DENOISERS
from ul2_tasks import (open_source, register)

MIXTURE = register(
    "mine",
    source=open_source("texts/*.jsonl", validation=0.05),
    vocabulary="my.model",
    denoisers=DENOISERS,
)
''')
importlib.invalidate_caches()

from my_corpora import MIXTURE

print(f"registered {MIXTURE}")
ul2("doctor", "my_corpora.py:mine", "--lengths", "128,128", statuses=(0, 1))

# %% [markdown]
# ## 6. Look at examples
#
# Print an example of each mode, as the model reads it. The inputs are the mode token, and text with sentinels in place of the
# masked spans. The targets are the masked spans.

# %%
print("\n## 6. Look at examples")

one_of_each_mode = ["--denoiser", "r1", "--denoiser", "x8", "--denoiser", "s", "--count", "1"]
ul2("show", "my_corpora.py:mine", "--lengths", "128,128", *one_of_each_mode)

# %% [markdown]
# ## 7. Measure
#
# `ul2 stats` samples mixed examples, 500 here and 4,000 by default, and compares them with the objective. A check must pass
# for any text: nothing is truncated, every full-length chunk has its exact corruption rate, no two tasks read the same text at
# the same index. A failed check gives exit status 1, which ends this script. With `--json` it prints the same for programs.

# %%
print("\n## 7. Measure")

ul2("stats", "my_corpora.py:mine", "--lengths", "128,128", "--examples", "500")

# %% [markdown]
# ## 8. A report to send
#
# `ul2 report` writes the same statistics as a web page, with plots and examples. It is a single file that you can open or
# send.

# %%
print("\n## 8. A report to send")

ul2("report", "my_corpora.py:mine", "--lengths", "128,128", "--examples", "500", "--output", "report.html")
print(f"open {pathlib.Path('report.html').resolve().as_uri()}")

# %% [markdown]
# ## 9. Cache and batches
#
# Tokenizing costs far more than masking, so do it once: `ul2 cache` writes the tokens of `mine_corpus`, which all five
# denoisers read. With `--workers` it is an Apache Beam job (extra `cache`). `ul2 verify` reads them again, and compares them
# with the checksums in the cache's `manifest.json`.

# %%
print("\n## 9. Cache and batches")

ul2("cache", "my_corpora.py:mine", "--output", "cache")
ul2("verify", "cache/mine_corpus")

# %% [markdown]
# The rest is plain SeqIO: batches of model features, eight rows each, with several examples packed into a row.

# %%
import numpy as np
import seqio
import tensorflow as tf

import ul2_tasks

seqio.add_global_cache_dirs([str(FOLDER / "cache")])


def read_batches():
    dataset = seqio.get_dataset(
        MIXTURE,
        LENGTHS,
        dataset_split="train",
        shuffle=True,
        seed=0,
        use_cached=True,
        feature_converter=ul2_tasks.EncDecFeatureConverter(pack=True),
        batch_size=8,
    )
    return iter(dataset)


batches = read_batches()
read = [next(batches) for _ in range(4)]
for feature, values in sorted(read[0].items()):
    print(feature, values.shape)
for feature in ("encoder_input_tokens", "decoder_target_tokens"):
    print(f"{feature}: {np.mean([batch[feature].numpy() != 0 for batch in read]):.1%} of the positions hold a token")

# %% [markdown]
# A checkpoint needs the position in the data. We save it, read two batches, and read them again from another iterator. They are
# also the same in another process, next week. An iterator of other rates, lengths or another vocabulary raises an error.

# %%
saved = tf.train.Checkpoint(iterator=batches).write("place/checkpoint")
continued = [next(batches) for _ in range(2)]

again = read_batches()
tf.train.Checkpoint(iterator=again).read(saved).assert_consumed()
resumed = [next(again) for _ in range(2)]
same = all(np.array_equal(a[feature], b[feature]) for a, b in zip(continued, resumed) for feature in a)
print("the resumed batches are", "equal" if same else "DIFFERENT")

# %% [markdown]
# ## 10. Train
#
# t5x trains from gin files. Ours includes `ul2_tiny.gin`, a model for a laptop's CPU, and binds our mixture, the cache, and the
# vocabulary, which the model, its embedding and the tasks share. A real run uses `ul2.gin` and a size, such as
# `gin/models/base.gin`.

# %%
print("\n## 10. Train")

from ul2_tasks.t5x.gin_files import search_path

pathlib.Path("train.gin").write_text("""from __gin__ import dynamic_registration

import my_corpora  # registers mine_mix
import ul2_tasks

include 'gin/ul2_tiny.gin'

VOCABULARY = @ul2_tasks.seqio_vocabulary()
ul2_tasks.seqio_vocabulary.vocabulary = 'my.model'
MIXTURE_OR_TASK_NAME = 'mine_mix'
TASK_FEATURE_LENGTHS = {'inputs': 128, 'targets': 128}
USE_CACHED_TASKS = True
""")


def train(steps):
    """Trains up to this step, from the last checkpoint if there is one."""
    arguments = [
        "-m",
        "t5x.train",
        f"--gin_search_paths=.,{search_path()}",
        "--gin_file=train.gin",
        "--seqio_additional_cache_dirs=cache",
        f'--gin.MODEL_DIR="{FOLDER / "run"}"',
        f"--gin.TRAIN_STEPS={steps}",
    ]
    log = pathlib.Path(f"run-{steps}.log")
    print("\n$", shlex.join(["python", *arguments]), f"> {log} 2>&1", flush=True)
    if missing:
        return
    with log.open("w") as file:
        code = subprocess.run([sys.executable, *arguments], env=ENVIRONMENT, stdout=file, stderr=file).returncode
    if code:
        sys.exit(f"it ended with status {code}; {FOLDER / log} ends with\n{log.read_text()[-3000:]}")
    print("there are now", *sorted(path.name for path in pathlib.Path("run").glob("checkpoint_*")))


missing = [name for name in ("t5x", "airio", "jestimator") if importlib.util.find_spec(name) is None]
if missing:
    print(
        f"This step needs {', '.join(missing)}, in no package registry: docs/guides/train_with_t5x.md says how to put checkouts"
        " of them on the path. Run these commands in this folder then."
    )
else:
    shutil.rmtree("run", ignore_errors=True)  # what an earlier run of this tutorial left
train(10)

# %% [markdown]
# Ten steps left a checkpoint of the model, the optimizer and the position in the data. The same command with more steps resumes
# from it, with the losses of an uninterrupted run.

# %%
train(20)


def losses(folder):
    """The mean loss per target token: {step: loss}, from TensorBoard's event files."""
    files = [str(path) for path in folder.glob("events.out.tfevents.*")]
    events = map(tf.compat.v1.Event.FromString, tf.data.TFRecordDataset(files).as_numpy_iterator())
    found = [(event.step, value) for event in events for value in event.summary.value]
    return {step: float(tf.make_ndarray(value.tensor)) for step, value in found if value.tag == "loss_per_nonpadding_target_token"}


if not missing:
    print("\nloss per target token:")
    for name in ("train", *(f"training_eval/mine_{denoiser.name}" for denoiser in DENOISERS)):
        steps = sorted(losses(FOLDER / "run" / name).items())
        print(f"  {name:<24}", "  ".join(f"step {step}: {loss:.3f}" for step, loss in steps))

# %% [markdown]
# Next: put your texts into `texts/`, train a vocabulary of 32,000 pieces, and choose longer lengths and a size of `gin/models/`.

# %%
print(f"\nall of it is in {FOLDER}")
