"""What each kind of data can do: the tables of docs/explanation/kinds_of_data.md.

Each cell is a command, or lines of Python, that works; or one that ends in an error, and a sentence why. tests/test_capabilities.py
runs them all. `python docs/generated_pages.py` writes the page.

A row has one template for all kinds, and cells that differ for some of them. What is built for a kind loses its cell there,
whose test fails as soon as it works."""

from __future__ import annotations

import dataclasses
import pathlib
import textwrap
from collections.abc import Mapping

MY_KINDS = pathlib.Path(__file__).with_name("my_kinds.py")
BEFORE = "import seqio\nfrom my_kinds import *\nfrom ul2_tasks import *"  # each line of Python
YES, STREAM, NO = "yes", "stream", "no"


@dataclasses.dataclass(frozen=True)
class Kind:
    """How the page calls a kind, and what stands for it in templates.

    `name` is that of commands, and `variable` that of Python, see my_kinds.py. `corpus` is what `ul2 cache` writes.
    `another` registers a second corpus.
    """

    heading: str
    name: str
    variable: str
    corpus: str
    another: str
    lengths: str = "LENGTHS"
    module: str = " --module my_kinds"
    converter: str = "EncDecFeatureConverter"


KINDS = {
    "text": Kind("joined text", "text", "text", "text_corpus", 'register("more_text", **OBJECTIVE)'),
    "documents": Kind(
        "documents kept apart",
        "documents",
        "documents",
        "documents_corpus",
        'register("more_documents", merge_examples=False, **OBJECTIVE)',
    ),
    "chat": Kind(
        "chat",
        "talks_chat",
        "chat",
        "talks_corpus",
        'register_chat("more", truncation="drop", random_access=True)',
        lengths='{"tokens": 512}',
        converter="ChatFeatureConverter",
    ),
    "reply": Kind(
        "reply",
        "talks_prompt_completion",
        "reply",
        "talks_corpus",
        'register_chat("more", truncation="drop", random_access=True, format="prompt_completion")',
        converter="PromptCompletionFeatureConverter",
    ),
    "photos": Kind(
        "texts with images",
        "photos",
        "photos",
        "photos_corpus",
        'register_image_text("more_photos", image_tokens=RUN, **OBJECTIVE)',
    ),
    "rows": Kind("image rows", "images", "rows()", "", "", module=""),
}


@dataclasses.dataclass(frozen=True)
class Cell:
    """What the table says, YES, STREAM or NO; what is run; a part of its error; and why."""

    word: str
    run: str
    error: str = ""
    why: str = ""


@dataclasses.dataclass(frozen=True)
class Row:
    """A capability: its heading, its cells by the names of the kinds, the page about it, and those of some kinds."""

    heading: str
    cells: Mapping[str, Cell]
    guide: str
    guides: Mapping[str, str]


def _row(heading: str, guide: str, template: str, but: Mapping[str, Cell] = {}, guides: Mapping[str, str] = {}) -> Row:
    """The row in which each kind runs the template, unless it has a cell that runs something else."""
    cells = {key: but.get(key, Cell(YES, "")) for key in KINDS}
    filled = {key: dataclasses.replace(cell, run=_filled(cell.run or template, KINDS[key])) for key, cell in cells.items()}
    return Row(heading, filled, guide, guides)


def _filled(template: str, kind: Kind) -> str:
    for field in dataclasses.fields(kind):
        template = template.replace(f"<{field.name}>", getattr(kind, field.name))
    return template


def _no(error: str, why: str, run: str = "") -> Cell:
    return Cell(NO, run, error, why)


def _yes(run: str) -> Cell:
    return Cell(YES, run)


def _stream(run: str = "") -> Cell:
    return Cell(STREAM, run)


_CHATS = ("chat", "reply")
_GUIDES_TO_MIXING = {
    **dict.fromkeys(_CHATS, "../guides/chat.md#mix-several-corpora"),
    "photos": "../guides/images/t5gemma2.md#mix-cache-resume",
    "rows": "../guides/images/rows.md#order-and-workers",
}
_GUIDES_TO_PYTORCH = {
    **dict.fromkeys(_CHATS, "../guides/chat_transformers.md"),
    "photos": "../guides/images/t5gemma2.md#train-with-pytorch",
    "rows": "../guides/images/rows.md#train",
}
_GUIDES_TO_PACKING = {
    **dict.fromkeys(_CHATS, "../guides/chat_t5x.md#packed-sequences"),
    "rows": "../guides/images/rows.md#packing",
}
_GUIDES_TO_LOOKING = {
    **dict.fromkeys(_CHATS, "../guides/chat.md"),
    "photos": "../guides/images/t5gemma2.md#look-at-it",
    "rows": "../guides/images/rows.md#look-at-your-data",
}
_ROWS_IN_ORDER = _GUIDES_TO_MIXING["rows"]
_LOOK = "../get_started/first_run.md#the-command-ul2"

# Why not, where it is the same for several capabilities.
_NO_FILES = "The records are read from their files, with the images. A row holds pixels, which take more space than the files."
_NO_SEARCH = "Records are not tokenized before training, so there are no tokens to search. Search their files."
_NO_AUDIT = "Each record is read once an epoch. `ul2 find --record` lists its rows and steps."
_OWN_MODEL = "Image rows are for models of PyTorch that read and generate images. t5x has none of these."

_INDEX_OF_ROWS = {"rows": "../guides/images/rows.md#read-rows-by-index"}

_BLOCKS = "blocks = BlockShuffle(block_tokens=2048, partitions=2, window_blocks=2)"
_IN_BLOCKS = {
    key: _yes(
        f"{_BLOCKS}\nname = {kind.another.replace('more', 'blocks')[:-1]}, block_shuffle=blocks)\nexamples(name, {kind.lengths})[3]"
    )
    for key, kind in KINDS.items()
    if kind.another
} | {"rows": _stream("next(iter(rows(shuffle_blocks=2)))")}
_READ = "next(seqio.get_mixture_or_task(<variable>).get_dataset(<lengths>, seed=0).as_numpy_iterator())"
_GRAIN = "import grain\n\ngrain.MapDataset.source(examples(<variable>, <lengths>))[3]"
_TORCH = "from ul2_tasks import UL2IterableDataset\n\nnext(iter(UL2IterableDataset(examples(<variable>, <lengths>))))"
_OF_IMAGES = """\
import torch
from ul2_tasks import T5Gemma2Collator, UL2IterableDataset

collator = T5Gemma2Collator(image_tokens=RUN, image_size=8)
next(iter(torch.utils.data.DataLoader(UL2IterableDataset(examples(photos, LENGTHS)), batch_size=4, collate_fn=collator)))"""
_OF_ROWS = "import torch\n\nnext(iter(torch.utils.data.DataLoader(rows(), batch_size=None)))"
_T5X = """\
from t5x import utils

seqio.add_global_cache_dirs(["CACHE"])
read = {"split": "train", "batch_size": 8, "shuffle": True, "seed": 0, "pack": True, "use_cached": True}
data = utils.DatasetConfig(mixture_or_task_name=<variable>, task_feature_lengths=<lengths>, **read)
saved = utils.CheckpointConfig(save=utils.SaveCheckpointConfig(), restore=utils.RestoreCheckpointConfig(path=[]))
next(get_dataset_at_step(data, 0, 1, <converter>, model_dir="RUN", checkpoint_cfg=saved).as_numpy_iterator())"""


def _mixed_with(other: str) -> Row:
    """Whether each kind is mixed with one of them."""
    but = {key: _mixed(*sorted((key, other), key=[*KINDS].index)) for key in KINDS}
    return _row(f"mixed with {KINDS[other].heading}", "../guides/mix.md", "", but, _GUIDES_TO_MIXING)


def _mixed(first: str, second: str) -> Cell:
    """Two kinds in one mixture, which gives examples of both."""
    one, other = KINDS[first], KINDS[second]
    if second == "rows":
        return _IN_ONE_ROW[first]
    more = other.another if first == second else other.variable
    name = f"two_{first}" if first == second else f"{first}_and_{second}"
    made = f"both = mix({name!r}, {{{one.variable}: 3, {more}: 1}})".replace("'", '"')
    read = f"{made}\nexamples(both, {one.lengths})[3]"
    if (first, second) == _CHATS:
        return _no("must be conversations of one format", "A chat is for a decoder, a reply for an encoder-decoder.", read)
    if "chat" in (first, second) and first != second:
        why = (
            "A chat is one sequence of tokens for a decoder. Examples of denoisers are inputs and targets: mix the reply with them."
        )
        return _no("only tasks of inputs and targets can be mixed", why, read)
    return _yes(read)


_PLAIN = """\
from ul2_tasks.images.elements import Text
from ul2_tasks.images.recipe import Source
from ul2_tasks.images.records import listed_records

plain = Source(listed_records([{"text": "A text."}] * 32, "texts"), lambda record, draws: [Text(record["text"], learned=True)])
next(iter(rows(plain)))"""
_TALK = """\
from ul2_tasks.images.recipe import Source
from ul2_tasks.images.records import listed_records

turns = [{"from": "human", "value": "Two and two?"}, {"from": "gpt", "value": "Four."}]
next(iter(rows(Source(listed_records([{"conversations": turns}] * 32, "talks"), "vlm_sft"))))"""
_WITH_ROWS = 'mix("both", {<variable>: 1, rows(): 1})'
_NOT_A_NAME = "mixtures must be names"
_IN_ONE_ROW = {
    **dict.fromkeys(
        ("text", "reply"),
        _no(
            _NOT_A_NAME,
            "A row is one causal sequence, without inputs and targets. Give texts as a `Source` with a schema of your own.",
            _WITH_ROWS,
        ),
    ),
    "documents": _stream(_PLAIN),
    "chat": _stream(_TALK),
    "photos": _no(
        _NOT_A_NAME,
        "A row holds pixels, not placeholders. Give the same records as a `Source` with a schema of your own.",
        _WITH_ROWS,
    ),
    "rows": _stream("next(iter(rows()))  # of four sources"),
}

TRAINING = [
    _row(
        "SeqIO: `get_dataset`",
        "../get_started/first_run.md#in-python",
        _READ,
        {
            "rows": _no(
                "No Task or Mixture found",
                "Image rows are read by PyTorch alone, without TensorFlow.",
                'seqio.get_mixture_or_task("images")',
            ),
        },
    ),
    _row(
        "indexed: `examples`",
        "../guides/random_access.md",
        "examples(<variable>, <lengths>)[3]",
        {"rows": _yes("examples(rows())[3]")},
        _INDEX_OF_ROWS,
    ),
    _row(
        "`locate`: the record of an example",
        "../guides/random_access.md",
        "examples(<variable>, <lengths>).locate(3)",
        {"rows": _yes("examples(rows()).locate(3)")},
        _INDEX_OF_ROWS,
    ),
    _row(
        "packed",
        "../guides/pack.md",
        "examples(<variable>, <lengths>, pack=True)[2]",
        {
            "photos": _no("whose examples have images", "T5Gemma 2 has no mask for several examples in one sequence."),
            "rows": _stream("next(iter(rows()))"),
        },
        _GUIDES_TO_PACKING,
    ),
    _row(
        "block shuffle",
        "../guides/block_shuffle.md",
        "",
        _IN_BLOCKS,
        {**dict.fromkeys(("documents", *_CHATS, "photos"), "../guides/block_shuffle.md#whole-records"), "rows": _ROWS_IN_ORDER},
    ),
    _row(
        "elastic restart of t5x",
        "../guides/train_with_t5x.md",
        _T5X,
        {
            "photos": _no("must have no images", "T5Gemma 2 is not a model of t5x."),
            "rows": _no("No Task or Mixture found", _OWN_MODEL, 'seqio.get_mixture_or_task("images")'),
        },
    ),
    _row(
        "PyTorch",
        "../guides/pytorch_and_transformers.md",
        _TORCH,
        {
            "photos": _yes(_OF_IMAGES),
            "rows": _stream(_OF_ROWS),
        },
        _GUIDES_TO_PYTORCH,
    ),
    _row(
        "grain",
        "../guides/random_access.md#with-grain",
        _GRAIN,
        {"rows": _yes("import grain\n\ngrain.MapDataset.source(examples(rows()))[3]")},
        _INDEX_OF_ROWS,
    ),
    *map(_mixed_with, KINDS),
]

_CUT = {
    "rows": _no("does not support image-text records", "Image rows have no denoisers. `ul2 stats images` shows how full rows are."),
}
_NO_EXPORT = {
    "rows": _no("does not support image-text records", _NO_FILES),
}
_GUIDES_TO_EXPORTS = {
    **dict.fromkeys(_CHATS, "../guides/export.md#export-conversations"),
    "photos": "../guides/export.md#export-images",
}
_NO_TOKENS = {
    "reply": _no("must be a task with one sequence of tokens", "Megatron-LM reads one sequence of tokens. Export the chat."),
    "photos": _no("--format must be parquet", "Files of Megatron-LM hold ids of tokens, and no images."),
    "rows": _no("does not support image-text records", "Files of Megatron-LM hold ids of tokens, and no pixels."),
}
_EXPORT = "ul2 export <name><module> --format FORMAT --output OUT"
_FORMATS = {"Parquet": "parquet", "JSON Lines": "jsonl", "TFRecord": "tfrecord"}

COMMANDS = [
    _row(
        "`ul2 cache`",
        "../guides/cache.md",
        "ul2 cache <name><module> --output OUT",
        {"rows": _no("does not support image-text records", _NO_FILES)},
        {"photos": "../guides/cache.md#images-in-a-cache"},
    ),
    _row(
        "`ul2 verify`",
        "../guides/cache.md#verify-a-cache",
        "ul2 verify CACHE/<corpus>",
        {"rows": _no("which does not exist", "Image rows have neither a cache nor an export.", "ul2 verify CACHE/images_corpus")},
    ),
    _row("`ul2 show`", _LOOK, "ul2 show <name><module> --count 1", {}, _GUIDES_TO_LOOKING),
    _row(
        "`ul2 show --step`",
        "../guides/random_access.md#show-the-batch-of-a-step",
        "ul2 show <name><module> --step 3 --batch_size 8 --count 1",
        {},
        {
            "photos": "../guides/images/t5gemma2.md#look-at-a-step",
            "rows": "../guides/images/rows.md#look-at-your-data",
        },
    ),
    _row(
        "`ul2 find`",
        "../guides/random_access.md#find-every-step-that-trains-on-a-document",
        "ul2 find <name><module> --document 3 --batch_size 8",
        {"rows": _yes('ul2 find images --record "embedded set, vlm_sft, record 3" --batch_size 8')},
        {
            "photos": "../guides/images/t5gemma2.md#look-at-a-step",
            "rows": "../guides/images/rows.md#look-at-your-data",
        },
    ),
    _row(
        "`ul2 lengths`",
        "../guides/lengths.md",
        "ul2 lengths <name><module>",
        _CUT,
        {"photos": "../guides/images/t5gemma2.md#choose-lengths"},
    ),
    _row(
        "`ul2 find --texts`",
        "../guides/contamination.md",
        "ul2 find <name><module> --texts benchmark.txt",
        {"rows": _no("does not support image-text records", _NO_SEARCH)},
    ),
    _row(
        "`ul2 audit`",
        "../guides/audit.md",
        "ul2 audit <name><module> --until 3 --batch_size 8",
        {"rows": _no("does not support image-text records", _NO_AUDIT)},
    ),
    _row("`ul2 stats`", _LOOK, "ul2 stats <name><module> --examples 50", {}, _GUIDES_TO_LOOKING),
    _row(
        "`ul2 bench`",
        "../guides/operate.md#is-the-data-fast-enough",
        "ul2 bench <name><module> --workers 0",
        {"photos": _yes("ul2 bench <name><module> --workers 0 --batch_size 4")},
    ),
    _row("`ul2 doctor`", _LOOK, "ul2 doctor <name><module>", {}, _GUIDES_TO_LOOKING),
    _row("`ul2 report`", _LOOK, "ul2 report <name><module> --examples 50 --output OUT.html", {}, _GUIDES_TO_LOOKING),
    *(
        _row(f"`ul2 export` to {heading}", "../guides/export.md", _EXPORT.replace("FORMAT", format), _NO_EXPORT, _GUIDES_TO_EXPORTS)
        for heading, format in _FORMATS.items()
    ),
    _row(
        "`ul2 export` to Megatron-LM",
        "../guides/export.md#export-tokens-for-megatron-lm",
        _EXPORT.replace("FORMAT", "megatron"),
        _NO_TOKENS,
        {"chat": "../guides/chat_megatron.md"},
    ),
    _row(
        "leave documents and steps out of a run",
        "../guides/leave_out.md",
        "ul2 show <name><module> --step 3 --batch_size 8 --count 1 --exclude LIST.jsonl --skip 1:2",
        {
            "rows": _no(
                "does not support image-text records",
                "A row is packed from the records of its pool: without one of them, others share its rows. Filter the files.",
            )
        },
    ),
]
TABLES = {"Read and train": TRAINING, "Commands": COMMANDS}


def page(text: str) -> str:
    """The page with its tables, reasons and commands written again, below the heading of the first table."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{_generated()}\n{END}{after}"


BEGIN, END = "<!-- written by docs/generated_pages.py from docs/capabilities.py -->", "<!-- end of what is written -->"


def _generated() -> str:
    rows = [row for table in TABLES.values() for row in table]
    reasons = list(dict.fromkeys(cell.why for row in rows for cell in row.cells.values() if cell.why))
    parts = [f"### {heading}\n\n{_table(table, reasons)}" for heading, table in TABLES.items()]
    parts.append("### Reasons\n\n" + "\n".join(f"{number}. {why}" for number, why in enumerate(reasons, 1)))
    parts.append(_LISTED.format(my_kinds=MY_KINDS.read_text().strip(), before=BEFORE.replace("\n", "`, `")))
    parts += map(_listed, rows)
    return "\n\n".join(part for part in parts if part) + "\n"


_LISTED = """\
## The command or line of each cell

All of them run on built-in data, which this module registers. Save it as `my_kinds.py` in an empty folder:

```python
{my_kinds}
```

Lines of Python come after `{before}`. `CACHE` is the `--output` of `ul2 cache` with each kind,
`LIST.jsonl` a file with the line `{{"document": 3}}`, and `benchmark.txt` any file of texts."""


def _table(rows: list[Row], reasons: list[str]) -> str:
    lines = [["", *(kind.heading for kind in KINDS.values())], ["---"] * (len(KINDS) + 1)]
    lines += [[row.heading, *(_word(row, key, reasons) for key in KINDS)] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _word(row: Row, kind: str, reasons: list[str]) -> str:
    cell = row.cells[kind]
    if not cell.error:
        return f"[{cell.word}]({row.guides.get(kind, row.guide)})"
    return f"{cell.word}<sup>[{reasons.index(cell.why) + 1}](#reasons)</sup>"


def _listed(row: Row) -> str:
    """What is run in a row, where it works, as a part of the page that opens."""
    works = {key: cell.run for key, cell in row.cells.items() if not cell.error}
    if not works:
        return ""
    language = "shell" if next(iter(works.values())).startswith("ul2 ") else "python"
    shown = (
        "\n".join(dict.fromkeys(works.values()))
        if language == "shell"
        else "\n\n".join(f"# {KINDS[key].heading}\n{run}" for key, run in works.items())
    )
    block = textwrap.indent(f"```{language}\n{shown}\n```", "    ")
    return f'??? note "{row.heading}"\n{block}'
