# %% [markdown]
# # From image records to packed rows and a trained model, in seven steps
#
# This tutorial is the file `docs/tutorial_images.py`: a notebook for Jupyter (with jupytext), VS Code and PyCharm, and a
# script. Run it from top to bottom, in a minute on two CPU cores:
#
#     pip install '.[images,torch]'
#     python docs/tutorial_images.py   # in the folder tutorial_images/; or pass another one
#
# Everything it makes is in that folder. You can run it again.

# %%
# ruff: noqa: E402
import importlib
import importlib.util
import os
import pathlib
import shlex
import shutil
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # TensorFlow says little

for package, extra in {"PIL": "images", "av": "images", "torch": "torch"}.items():
    if importlib.util.find_spec(package) is None:
        sys.exit(f"{package} is not installed (extra {extra}): pip install '.[images,torch]'")

IS_SCRIPT = pathlib.Path(sys.argv[0]).name == "tutorial_images.py"
FOLDER = pathlib.Path(sys.argv[1] if IS_SCRIPT and sys.argv[1:] else "tutorial_images").resolve()
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
# ## 1. Records
#
# A record is a row of Parquet, a line of JSON Lines, or a sample of a tar. This cell draws images of shapes and letters,
# and writes records of three kinds: captions, edits, conversations. Put your own into the folder `set/` instead.

# %%
print("\n## 1. Records")

from ul2_tasks.images.example_set import write_example_set

shutil.rmtree("set", ignore_errors=True)  # what an earlier run of this tutorial left
write_example_set("set", count=24)
print(*sorted(path.name for path in pathlib.Path("set").iterdir()))

# %% [markdown]
# ## 2. Layouts
#
# A record becomes a layout: texts (T), images to be understood by a ViT (V), images as clean latents, a condition (C), and
# images as noised latents, to be generated (N). An edit is C V T N: the image twice, the instruction, and the image that
# it becomes.

# %%
print("\n## 2. Layouts")

pathlib.Path("my_edits.py").write_text('''"""Images that are edited."""

from ul2_tasks.image_rows import Source, open_records

edits = Source(open_records("set/unified_edit.parquet"), "unified_edit")
''')
ul2("show", "my_edits.py:edits", "--count", "1")

# %% [markdown]
# ## 3. A schema of your own
#
# A schema is a function of a record and its random choices (`draws`). This one trains the model to describe an image, or to
# generate it, in half of the epochs each. A choice belongs to its record: it is the same in any worker and any order.

# %%
print("\n## 3. A schema of your own")

pathlib.Path("my_schemas.py").write_text('''"""What the model is trained on, of captioned images."""

from ul2_tasks.image_rows import Image, Source, Text, open_records
from ul2_tasks.image_rows.schemas import t2i_pretrain


def both_ways(record, draws):
    """Text to image, or image to text."""
    caption, image = t2i_pretrain(record, draws)
    if draws.number("way", 2):
        return [caption, image]
    return [Image(image.image, "vit"), Text(caption.text, learned=True)]


captions = Source(open_records("set/t2i_pretrain.parquet"), both_ways)
''')
importlib.invalidate_caches()

captions = "my_schemas.py:captions"
ul2("show", captions, "--count", "2")

# %% [markdown]
# ## 4. Look for problems, and measure
#
# `ul2 doctor` lists what would end a run. `ul2 stats` packs the first rows of training. `ul2 report` writes what it and
# `ul2 show` print as a page.

# %%
print("\n## 4. Look for problems, and measure")

ul2("doctor", captions, statuses=(0, 1))
ul2("stats", captions)
ul2("report", captions, "--output", "report.html")
print(f"open {pathlib.Path('report.html').resolve().as_uri()}")

# %% [markdown]
# ## 5. Rows
#
# A row has three budgets: tokens, ViT patches and VAE patches. Samples are counted from the headers of their images, packed
# without losing one, and only then decoded. Here images are small, so that a laptop can train.

# %%
print("\n## 5. Rows")

import numpy as np
import torch
from my_schemas import both_ways

from ul2_tasks import ImageTextDataset
from ul2_tasks.image_rows.recipe import Source
from ul2_tasks.image_rows.records import open_records
from ul2_tasks.image_rows.samples import Sizes
from ul2_tasks.image_rows.sizes import Size
from ul2_tasks.image_rows.special_tokens import SpecialTokenConfig

small = Sizes(
    vit=Size(longest_edge=56, shortest_edge=28, patch_size=14, max_pixels=56 * 56),
    vae=Size(longest_edge=64, shortest_edge=32, patch_size=16, max_pixels=64 * 64),
)
sources = [
    Source(open_records("set/t2i_pretrain.parquet"), both_ways, sizes=small, weight=2),
    Source(open_records("set/unified_edit.parquet"), "unified_edit", sizes=small),
]


def encode(text):
    """The ids of a text, here of its bytes. A real run uses `open_vocabulary("tokenizer.json")`."""
    return [5 + byte for byte in text.encode()]


def rows():
    special_tokens = SpecialTokenConfig(bos_id=1, eos_id=2, boi_id=3, eoi_id=4, vit_patches_per_side=8, vae_patches_per_side=8)
    budgets = {"tokens": 512, "vit": 128, "vae": 128}
    return ImageTextDataset(sources, special_tokens, encode, budgets, seed=0, pool=24)


row = next(iter(rows()))
for name, value in row.items():
    if isinstance(value, torch.Tensor) and value.ndim:
        print(f"{name:<26} {tuple(value.shape)!s:<12} {value.dtype}")
print("samples:", len(row["samples"]), "- the first:", row["samples"][0])

# %% [markdown]
# ## 6. Train
#
# A model for such a row is small enough to read. Texts and special tokens are embedded, patches are projected, and
# `dense_mask` is the attention mask. The loss is cross-entropy on the texts that count, and, on noised patches, the distance
# to what the noise hides. (A real model generates latents of a VAE, and uses `sees` as the mask of FlexAttention.)

# %%
print("\n## 6. Train")

from ul2_tasks.image_rows.attention import dense_mask, places

WIDTH, HEADS = 64, 4
STEPS = int(os.environ.get("TUTORIAL_STEPS", 120))


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.ids, self.positions = torch.nn.Embedding(261, WIDTH), torch.nn.Embedding(512, WIDTH)
        self.vit, self.vit_places = torch.nn.Linear(3 * 14 * 14, WIDTH), torch.nn.Embedding(64, WIDTH)
        self.vae, self.vae_places = torch.nn.Linear(3 * 16 * 16, WIDTH), torch.nn.Embedding(64, WIDTH)
        self.layers = torch.nn.ModuleList(torch.nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, 0.0) for _ in range(2))
        self.says, self.paints = torch.nn.Linear(WIDTH, 261), torch.nn.Linear(WIDTH, 3 * 16 * 16)

    def loss(self, row):
        hidden = self.positions(row["packed_position_ids"])
        hidden[row["packed_text_indexes"]] += self.ids(row["packed_text_ids"])
        seen = self.vit(row["packed_vit_patches"] / 127.5 - 1)
        hidden[row["packed_vit_token_indexes"]] += seen + self.vit_places(row["packed_vit_position_ids"])
        pixels = row["packed_vae_patches"] / 127.5 - 1
        time = torch.sigmoid(row["packed_timesteps"])[:, None]  # 0 where nothing is noised
        noised = self.vae((1 - time) * pixels + time * torch.randn_like(pixels))
        hidden[row["packed_vae_token_indexes"]] += noised + self.vae_places(row["packed_latent_position_ids"])
        mask = torch.from_numpy(dense_mask(places(row["sample_lens"], row["split_lens"], row["attn_modes"])))
        for layer in self.layers:
            hidden = layer(hidden[:, None], src_mask=~mask)[:, 0]
        said = self.says(hidden[row["ce_loss_indexes"]])
        text = torch.nn.functional.cross_entropy(said, row["packed_label_ids"]) if row["ce_tokens"] else hidden.sum() * 0
        expected = pixels[torch.isfinite(row["packed_timesteps"])]
        image = torch.nn.functional.mse_loss(self.paints(hidden[row["mse_loss_indexes"]]), expected)
        return text, image if row["mse_tokens"] else hidden.sum() * 0


torch.manual_seed(0)
model = Model()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
print(" step   text  image   (means of the last quarter, over the rows with texts or images in the loss)")
losses = []
for step, row in zip(range(1, STEPS + 1), rows()):
    text, image = model.loss(row)
    optimizer.zero_grad()
    (text + image).backward()
    optimizer.step()
    losses.append((text.item() if row["ce_tokens"] else np.nan, image.item() if row["mse_tokens"] else np.nan))
    if step % max(1, STEPS // 4) == 0:
        mean_text, mean_image = np.nanmean(losses[-max(1, STEPS // 4) :], axis=0)
        print(f"{step:>5} {mean_text:>6.2f} {mean_image:>8.3f}")

# %% [markdown]
# ## 7. Resume
#
# The state of the dataset is a position: the pool, the row, and the settings. Another dataset with the same settings resumes
# there, also in another process. With other settings it raises an error.

# %%
print("\n## 7. Resume")

first = rows()
given = iter(first)
for _ in range(5):
    next(given)
state = first.state_dict()
went_on = [next(given) for _ in range(3)]

again = rows()
again.load_state_dict(state)
resumed = [row for row, _ in zip(again, range(3))]
same = all(one["samples"] == other["samples"] for one, other in zip(went_on, resumed))
same &= all(
    torch.equal(one[name], other[name])
    for one, other in zip(went_on, resumed)
    for name in ("packed_text_ids", "packed_vit_patches")
)
print(f"a state of {len(str(state))} characters; the resumed rows are", "equal" if same else "DIFFERENT")

# %% [markdown]
# That is all. Next: your records in `set/`, the sizes and budgets of [your model](guides/images/rows.md), or UL2 on
# image–text data for [T5Gemma 2](guides/images/t5gemma2.md).

# %%
print(f"\nall of it is in {FOLDER}")
