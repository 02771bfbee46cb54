"""The report's tables, as data. A column with the same value in all rows becomes a sentence, and a length that is always the same
becomes one number.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ul2_tasks.looking.printing import as_shown

QUANTILES = ("5", "25", "50", "75", "95")


@dataclasses.dataclass(frozen=True)
class Cell:
    """A cell of a table, over `span` columns.

    A number has its path in the JSON, and a kind of `as_shown`. Other cells are of the kinds "text", "word" (a text in a column of
    numbers) and "mode".
    """

    shown: str
    path: str = ""
    kind: str = "text"
    span: int = 1


@dataclasses.dataclass(frozen=True)
class Column:
    """A column of a table, with its name and that of its group. `cell` makes a cell from a row's JSON and the path of that.

    `expected` is the place of another column. If both have the same cells in all rows, this column is left out, and a sentence
    says that it was measured as expected.
    """

    name: str
    cell: Callable[[Mapping[str, Any], str], Cell]
    group: str = ""
    expected: int | None = None
    is_number: bool = True


@dataclasses.dataclass(frozen=True)
class Table:
    """Rows of cells under columns, and what is said in sentences instead.

    Attributes:
        label: of the table.
        first: the name of the column of row names.
        same: the name and the cell of each column that has the same value in all rows.
        as_expected: the groups whose column was measured as expected.
    """

    label: str
    first: str
    columns: Sequence[Column]
    rows: Sequence[tuple[str, Sequence[Cell]]]
    same: Sequence[tuple[str, Cell]] = ()
    as_expected: Sequence[str] = ()


def tables(statistics: Mapping[str, Any]) -> dict[str, Table]:
    """All tables by name."""
    tasks = [(task["task"], task, f"tasks.{number}") for number, task in enumerate(statistics["tasks"])]
    others = [(task["task"], task, f"others.{number}") for number, task in enumerate(statistics["others"])]
    corpora = [(corpus["corpus"], corpus, f"corpora.{number}") for number, corpus in enumerate(statistics["corpora"])]
    pairs = [(", ".join(pair["tasks"]), pair, f"shared_text.{number}") for number, pair in enumerate(statistics["shared_text"])]
    ways = [(way, statistics["fill"][way], f"fill.{way}") for way in ("unpacked", "packed", "bound")]
    corpus_names = [Column("corpus", lambda task, _: Cell(task["corpus"]), is_number=False)] if len(corpora) > 1 else []
    return {
        "mixture": _table("Tasks", "task", [*corpus_names, *_MIXTURE], tasks),
        "corpora": _table("Corpora", "corpus", _CORPORA, corpora),
        "shares": _table("Shares", "task", _SHARES, [*tasks, *others]),
        "objective": _table("Objective against theory", "task", _OBJECTIVE, tasks),
        "lengths": _lengths([*tasks, *others], corpora, statistics),
        "ways": _table("Fill of rows", "rows", _columns("percent", {"inputs": "inputs", "targets": "targets"}), ways),
        "fill": _table("Fill by task", "task", _FILL, tasks),
        "shared": _table("Shared text", "tasks", _SHARED, pairs),
    }


def number(value: float | None, path: str, kind: str) -> Cell:
    return Cell(as_shown(value, kind), path, kind)


def look_up(statistics: Mapping[str, Any], path: str) -> Any:
    """The value in nested JSON at a path such as "tasks.0.share.low"; None if something on the way is null.

    >>> look_up({"tasks": [{"share": {"low": 0.1}}, {"share": None}]}, "tasks.0.share.low")
    0.1
    """
    found: Any = statistics
    for key in path.split("."):
        if found is None:
            return None
        found = found[int(key)] if isinstance(found, Sequence) else found[key]
    return found


def _table(label: str, first: str, columns: Sequence[Column], rows: Iterable[tuple[str, Mapping[str, Any], str]]) -> Table:
    cells = [(name, [column.cell(row, path) for column in columns]) for name, row, path in rows]
    kept, same, as_expected = [], [], []
    for place, column in enumerate(columns):
        shown = [row[place] for _, row in cells]
        name = f"{column.group}, {column.name}" if column.group else column.name
        if column.expected is not None and all(row[place].shown == row[column.expected].shown for _, row in cells):
            as_expected.append(column.group)
        elif len(cells) > 1 and len({cell.shown for cell in shown}) == 1:
            same.append((name, shown[0]))
        else:
            kept.append(place)
    shown_rows = [(name, [row[place] for place in kept]) for name, row in cells] if kept else []
    return Table(label, first, [columns[place] for place in kept], shown_rows, same, as_expected)


def _lengths(
    tasks: Iterable[tuple[str, Mapping[str, Any], str]],
    corpora: Iterable[tuple[str, Mapping[str, Any], str]],
    statistics: Mapping[str, Any],
) -> Table:
    """The table of lengths. It is not folded by column, but by row: a length that is always the same becomes one number."""
    columns = [Column(name, _at(name, kind)) for name, kind in (("mean", "decimal"), ("sd", "decimal"), ("min", "count"))]
    columns += [Column(f"{percent} %", _at(f"quantiles.{percent}", "count"), "quantiles") for percent in QUANTILES]
    columns.append(Column("max", _at("max", "count")))
    rows = []
    for name, of_task, path in [*tasks, ("all", statistics, "")]:
        for feature, summary in of_task["lengths"].items():
            rows.append((f"{name} {feature}", summary, f"{path}.lengths.{feature}".lstrip(".")))
    rows += [(f"{name} documents", corpus["tokens"], f"{path}.tokens") for name, corpus, path in corpora]
    return Table("Lengths", "tokens of", columns, [(name, _summary(columns, summary, path)) for name, summary, path in rows])


def _summary(columns: Sequence[Column], summary: Mapping[str, Any] | None, path: str) -> list[Cell]:
    if summary is None:
        return [Cell("nothing to measure", span=len(columns))]
    if summary["min"] == summary["max"]:
        return [Cell(f"always {as_shown(summary['min'], 'count')}", span=len(columns))]
    return [column.cell(summary, path) for column in columns]


def _at(inner: str, kind: str) -> Callable[[Mapping[str, Any], str], Cell]:
    """A function that makes cells of the number at the path `inner` in a row's JSON."""
    return lambda row, path: number(look_up(row, inner), f"{path}.{inner}", kind)


def _columns(kind: str, names: Mapping[str, str], group: str = "") -> list[Column]:
    return [Column(name, _at(inner, kind), group) for inner, name in names.items()]


def _mode(task: Mapping[str, Any], _: str) -> Cell:
    mode = task["denoiser"]["mode"]
    return Cell(mode, kind="mode") if mode else Cell("none")


def _mean_span(task: Mapping[str, Any], path: str) -> Cell:
    if "mean_span_length" in task["denoiser"]:
        return _at("denoiser.mean_span_length", "plain")(task, path)
    kinds = {"split": "suffix", "bos": "window"}
    return Cell(next((kind for field, kind in kinds.items() if field in task["denoiser"]), ""), kind="word")


def _rate(task: Mapping[str, Any], path: str) -> Cell:
    if "noise_density" in task["denoiser"]:
        return _at("denoiser.noise_density", "plain")(task, path)
    return Cell("all" if "bos" in task["denoiser"] else "", kind="word")


def _where(task: Mapping[str, Any], _: str) -> Cell:
    denoiser = task["denoiser"]
    if "placement" in denoiser:
        return Cell({"t5": "as in T5", "uniform": "anywhere"}.get(denoiser["placement"], denoiser["placement"]))
    if "split" in denoiser:
        return Cell(f"{denoiser['split']} split{'' if denoiser['sentinel'] else ', no sentinel'}")
    return Cell("side by side" if "bos" in denoiser else "")


_MIXTURE = [
    Column("mode", _mode, is_number=False),
    Column("mean span", _mean_span),
    Column("rate", _rate),
    Column("spans are", _where, is_number=False),
    *_columns("plain", {"denoiser.weight": "weight"}),
    *_columns(
        "count",
        {f"full_chunk.{key}": "chunk" if key == "length" else key for key in ("length", "noise", "spans", "inputs", "targets")},
        "full chunk, tokens",
    ),
]
_CORPORA = [
    *_columns("count", {"documents": "documents"}),
    Column("all", lambda corpus, _: Cell("yes" if corpus["is_all"] else "no"), is_number=False),
    *_columns("decimal", {"tokens.mean": "tokens each", "characters_a_token": "characters per token"}),
    *_columns("rate", {"unknown": "unknown"}),
    *_columns("percent", {"come_back": "come back"}),
    *_columns("decimal", {"times_read": "times held"}),
]
_SHARES = [
    *_columns("percent", {f"share.{key}": key for key in ("expected", "low", "high")}),
    *_columns("percent", {"share.examples": "of examples", "share.inputs": "of input tokens", "share.targets": "of target tokens"}),
    *_columns("count", {"examples": "examples"}),
    Column("full ones", lambda task, path: _at("full_examples", "count")(task, path) if "full_examples" in task else Cell("")),
]
_OBJECTIVE = [
    Column(name, _at(f"{path}.{name}" if path != "spans" else f"spans.{name}", kind), group, place if name == "measured" else None)
    for place, (path, kind, group) in zip(
        (0, 2, 4),
        (
            ("corruption_rate", "rate", "corruption rate"),
            ("spans", "decimal", "spans of a full chunk"),
            ("spans.mean_length", "decimal", "mean span, tokens"),
        ),
    )
    for name in ("expected", "measured")
] + _columns("p", {"spans.p_value": "p-value"})
_FILL = [
    *_columns("percent", {"fill.inputs": "inputs", "fill.targets": "targets"}, "fill, unpacked"),
    *_columns("decimal", {"compression": "inputs / chunk", "documents_per_chunk": "documents a chunk"}),
]
_SHARED = [
    *_columns("percent", {"anywhere": "anywhere", "at_once": "at once", "by_chance": "by chance"}),
    *_columns("count", {"examples": "examples"}),
]
