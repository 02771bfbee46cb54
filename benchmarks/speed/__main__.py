"""What an example costs, from tokens in memory to packed model features: CPU time, wall time, memory; side by side, in one run.

    python benchmarks/speed [--lengths 512,2048,8192] [--cases denoiser,packed] [--repeats 5] [--examples 16384]
        [--tokens 6000000] [--output speed.json]

It needs this package with its extra `benchmarks`. A corpus of English documents, 800 tokens on average, is written as text and
cached by `ul2 cache`. The length is the budget of inputs and targets alike; examples fill it.

Cases:
    denoiser     each denoiser of `T5GEMMA2` on its own, an epoch of documents that are in memory as tokens
    task_r1, task_s  one task through `get_dataset`, from the cache, shuffled, repeated
    mixture      the mixture of the five, 1:1:1:1:4, through `get_dataset`, from the cache
    unpacked     the same through `seqio.get_dataset` with a feature converter: model features
    packed       the same, packed
    text         the mixture from text files, uncached
All end in batches of 128 (packed: rows), so that Python's price for an element is not what is measured.

Sides, and what each leaves out:
    ours         `ul2_tasks`, with its own feature converter; from the cache it makes batches whole
    ours_rows    the same, but rows that are given one by one, and batched again
    ours_seqio   the same with `seqio.EncDecFeatureConverter`
    t5           the recipe from `t5.data.preprocessors` in stock SeqIO tasks, a stock mixture, SeqIO's converter; it reads the
                 same documents as TFRecords, or the same text. Its denoisers all read the same documents in the same order.
    numpy        a notebook: one example at a time in Python. No shuffling of documents or examples, only of files; no packing
    floor        stock SeqIO tasks whose examples are constants: nothing is read, tokenized or corrupted
    memcpy       copying as many bytes as our batches have: all else is left out
    tokenizing   in the case `text`, our corpus from text to tokens alone

Each case, length and side is a process. Those of one case and length live at the same time, and play their rounds in turn, so
that what else the machine does meets all of them. The first rounds, uncounted, fill the shuffle buffers, and those that tf.data
sizes itself. These may have 256 MB on all sides: without a bound they grow from round to round, and a round in which they do has
more work than it gives. The clocks run from rest to rest (see `worker.timed`). CPU time is that of all threads of the process.
Figures are medians over rounds; where SeqIO packs they are means, because it packs as many examples at a time as a row has tokens,
so that a round has the work of one such pool or of two.

Equal work is checked, in every batch (`streams.count`): examples of full chunks have exactly the solved lengths on all
sides, no text is lost from an epoch, and the endless mixtures come out 1:1:1:1:4, within five standard errors. t5 joins 128
documents at a time and ends each such batch with a shorter example, of which 8192 has more; ours has up to 8 at the end of an
epoch, the floor none. So
costs are told for a text token, one that is no sentinel, mode or EOS, as they came out; the
column `tokens` is how many an example has, and µs are those of an example. `fill` is the share of model inputs and of targets
that is no padding.

No source is held in memory by SeqIO: our tasks never are, and the peers' sources do not tell how many examples they have. Peak
memory is that of the process, its start (Python, TensorFlow, SeqIO: see the JSON) and the batches of a round in it.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Any

from rich import box
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

HERE = pathlib.Path(__file__).parent
EXAMPLES_PER_BATCH = 128
UNCOUNTED = 3  # rounds
OWN_PACKING = ("ours", "ours_rows")
WEIGHTS = {"r1": 1, "r2": 1, "x1": 1, "x2": 1, "s": 4}
TOGETHER = "together"
CASES = {
    "denoiser": ("ours", "t5", "numpy", "memcpy"),
    "task_r1": ("ours", "t5", "numpy", "floor", "memcpy"),
    "task_s": ("ours", "t5", "numpy", "floor", "memcpy"),
    "mixture": ("ours", "t5", "numpy", "floor", "memcpy"),
    "unpacked": ("ours", "ours_rows", "ours_seqio", "t5", "numpy", "floor", "memcpy"),
    "packed": ("ours", "ours_rows", "ours_seqio", "t5", "floor", "memcpy"),
    "text": ("ours", "t5", "numpy", "tokenizing", "memcpy"),
}


def main() -> None:
    arguments = parse_arguments()
    console = Console(width=max(132, Console().width))
    groups = [(case, length) for case in arguments.cases for length in arguments.lengths]
    rows = []
    # Refreshed between rounds only: a display with a thread of its own would take CPU time from what is measured.
    with tempfile.TemporaryDirectory() as folder, Progress(console=console, auto_refresh=False, transient=True) as progress:
        root = pathlib.Path(folder)
        bar = progress.add_task("writing the corpus and its cache", total=len(groups) * (arguments.repeats + UNCOUNTED))
        progress.refresh()
        corpus = make_corpus(root, arguments.tokens)
        for case, length in groups:
            progress.update(bar, description=f"{case} at {length}", refresh=True)
            for each in measured(root, case, length, arguments.examples, arguments.repeats):
                if isinstance(each, dict):
                    rows.append(each)
                else:
                    progress.update(bar, advance=1, refresh=True)
    add_ratios(rows)
    result = {
        "machine": machine(),
        "settings": {key: getattr(arguments, key) for key in ("lengths", "cases", "repeats", "examples", "tokens")},
        "corpus": corpus,
        "rows": rows,
        "corruption_by_tokenizing": corruption_by_tokenizing(rows),
    }
    report(console, result)
    if arguments.output:
        arguments.output.write_text(json.dumps(result, indent=1) + "\n")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lengths", type=lambda text: [int(length) for length in text.split(",")], default=[512, 2048, 8192])
    parser.add_argument("--cases", type=cases, default=list(CASES), help=f"some of {','.join(CASES)}")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--examples", type=int, default=16384, help="of a round at 512; fewer at larger lengths, in proportion")
    parser.add_argument("--tokens", type=int, default=6_000_000, help="about how many tokens the corpus has")
    parser.add_argument("--output", type=pathlib.Path, help="a JSON file for all results")
    return parser.parse_args()


def cases(text: str) -> list[str]:
    names = text.split(",")
    if unknown := set(names) - set(CASES):
        raise argparse.ArgumentTypeError(f"there is no case {sorted(unknown)}, only {list(CASES)}")
    return names


def make_corpus(root: pathlib.Path, tokens: int) -> dict[str, int]:
    corpus = json.loads(run(root, [str(HERE / "corpus.py"), str(tokens)]))
    run(root, ["-m", "ul2_tasks", "cache", f"{HERE / 'tasks.py'}:ours", "--output=cache"])
    run(root, [str(HERE / "records.py")])
    manifest = json.loads((root / "cache" / "ours_corpus" / "manifest.json").read_text())
    return {**corpus, "tokens": manifest["totals"]["tokens"]}


def run(root: pathlib.Path, command: list[str]) -> str:
    process, errors = start(root, command)
    output = process.communicate()[0]
    if process.returncode:
        raise SystemExit(f"{command} ended with {process.returncode}:\n{last_words(errors)}")
    return output


def start(root: pathlib.Path, command: list[str]) -> tuple[subprocess.Popen[str], IO[str]]:
    """A process, and the file of its errors."""
    paths = os.pathsep.join([str(HERE.parent), str(HERE.parents[1]), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": paths, "TF_CPP_MIN_LOG_LEVEL": "3"}
    errors = tempfile.TemporaryFile("w+")  # noqa: SIM115, the process writes to it as long as it lives
    process = subprocess.Popen(
        [sys.executable, *command], cwd=root, env=environment, text=True, bufsize=1, stdin=-1, stdout=-1, stderr=errors
    )
    return process, errors


def last_words(errors: IO[str]) -> str:
    errors.seek(0)
    return "".join(errors.readlines()[-30:])


def sides(case: str, length: int) -> tuple[str, ...]:
    """Those that a machine has memory for: to pack 8,192 tokens a row takes SeqIO ten gigabytes."""
    return tuple(side for side in CASES[case] if case != "packed" or length < 8192 or side not in ("ours_seqio", "floor"))


def measured(root: pathlib.Path, case: str, length: int, examples: int, repeats: int) -> Iterator[dict[str, Any] | None]:
    """The rows of a case at a length, after a None for each round."""
    # SeqIO packs as many examples at a time as a row has tokens: a round has more of them.
    at_least = length // EXAMPLES_PER_BATCH if case == "packed" else 2
    batches = {side: max(at_least, examples * 512 // length // EXAMPLES_PER_BATCH) for side in sides(case, length)}
    # Documents are as long at all lengths.
    batches["tokenizing"] = max(2, examples // EXAMPLES_PER_BATCH)
    rounds: dict[str, list[dict]] = {side: [] for side in sides(case, length)}
    with contextlib.ExitStack() as stack:
        workers = {side: stack.enter_context(worker(root, case, side, length)) for side in sides(case, length)}
        ready = {side: answer(*process, f"{case}, {side} at {length}") for side, process in workers.items()}
        for _ in range(UNCOUNTED + repeats):
            for side, (process, errors) in workers.items():
                made = rounds["ours"][-1]["variants"].values() if side == "memcpy" else ()
                size = sum(variant["bytes"] for variant in made)
                print(json.dumps({"batches": batches[side], "bytes": size}), file=process.stdin, flush=True)
                played = answer(process, errors, f"{case}, {side} at {length}")
                if side == "memcpy":  # the bytes are those of our examples
                    totals = {key: sum(variant[key] for variant in made) for key in ("examples", "tokens")}
                    played["variants"] = {TOGETHER if case == "denoiser" else "": {**played["variants"][""], **totals}}
                rounds[side].append(played)
            yield None
    for side, of_rounds in rounds.items():
        counted = of_rounds[UNCOUNTED:]
        if case not in ("denoiser", "task_r1", "task_s") and side not in ("tokenizing", "memcpy"):
            check_rates(f"{case}, {side} at {length}", [each["variants"][""]["denoisers"] for each in counted])
        about = {"case": case, "length": length, "side": side, "ready_mb": ready[side].get("ready_mb")}
        about["peak_mb"] = counted[-1]["peak_mb"]
        in_pools = case == "packed" and side not in OWN_PACKING
        of_side = [
            {**about, "variant": variant, **summary([each["variants"][variant] for each in counted], in_pools)}
            for variant in counted[0]["variants"]
        ]
        yield from of_side
        if case == "denoiser" and side != "memcpy":
            yield {**about, "variant": TOGETHER, **together(of_side)}


@contextlib.contextmanager
def worker(root: pathlib.Path, case: str, side: str, length: int) -> Iterator[tuple[subprocess.Popen[str], IO[str]]]:
    spec = json.dumps({"case": case, "side": side, "length": length})
    process, errors = start(root, [str(HERE / "worker.py"), spec])
    try:
        yield process, errors
    finally:
        process.kill()  # there is nothing left that it would have to save
        process.wait()


def answer(process: subprocess.Popen[str], errors: IO[str], who: str) -> dict[str, Any]:
    assert process.stdout
    line = process.stdout.readline()
    if not line:
        raise SystemExit(f"the worker of {who} ended with {process.wait()}:\n{last_words(errors)}")
    return json.loads(line)


def check_rates(who: str, rounds: Sequence[Mapping[str, int]]) -> None:
    found = {name: sum(each[name] for each in rounds) for name in WEIGHTS}
    total = sum(found.values())
    for name, weight in WEIGHTS.items():
        rate = weight / sum(WEIGHTS.values())
        error = (total * rate * (1 - rate)) ** 0.5
        assert abs(found[name] - total * rate) < 5 * error, f"{who}: {found[name]} of {total} examples are {name}, expected {rate}"


def summary(runs: Sequence[Mapping[str, Any]], in_pools: bool) -> dict[str, Any]:
    """Medians over rounds; where SeqIO packs means, as a round has one pool or two."""

    def ratio(figure: str, of: str) -> float:
        if in_pools:
            return sum(run[figure] for run in runs) / sum(run[of] for run in runs)
        return statistics.median(run[figure] / run[of] for run in runs)

    row: dict[str, Any] = {
        "us_per_example": ratio("cpu", "examples") * 1e6,
        "ns_per_token": ratio("cpu", "tokens") * 1e9,
        "wall_us_per_example": ratio("wall", "examples") * 1e6,
        "wall_ns_per_token": ratio("wall", "tokens") * 1e9,
        "tokens_per_cpu_second": ratio("tokens", "cpu"),
        "tokens_per_example": ratio("tokens", "examples"),
    }
    if "fill" in runs[0]:
        row["fill"] = {key: statistics.median(run["fill"][key] for run in runs) for key in ("inputs", "targets")}
        row["short_share"] = ratio("short", "examples")
    return {**row, "runs": list(runs)}


def together(rows: Sequence[Mapping[str, Any]], weights: Mapping[str, int] | None = None) -> dict[str, float]:
    """The mean example of several denoisers: one of each, or as many of each as its weight."""
    shares = {row["variant"]: 1 / len(rows) if weights is None else weights[row["variant"]] / sum(weights.values()) for row in rows}

    def mean(key: str) -> float:
        return sum(shares[row["variant"]] * row[key] for row in rows)

    tokens, cpu, wall = mean("tokens_per_example"), mean("us_per_example"), mean("wall_us_per_example")
    return {
        "us_per_example": cpu,
        "ns_per_token": cpu / tokens * 1e3,
        "wall_us_per_example": wall,
        "wall_ns_per_token": wall / tokens * 1e3,
        "tokens_per_cpu_second": tokens / cpu * 1e6,
        "tokens_per_example": tokens,
    }


def add_ratios(rows: Sequence[dict[str, Any]]) -> None:
    """To each row how many times more the t5 recipe costs."""
    t5 = {(row["case"], row["length"], row["variant"]): row["ns_per_token"] for row in rows if row["side"] == "t5"}
    for row in rows:
        row["t5_ratio"] = t5[row["case"], row["length"], row["variant"]] / row["ns_per_token"]


def corruption_by_tokenizing(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, float]]:
    """By length and side, what corrupting a token costs beside tokenizing one, where both cases were measured."""
    found = []
    tokenizing = {row["length"]: row["ns_per_token"] for row in rows if row["side"] == "tokenizing"}
    for length, cost in tokenizing.items():
        for side in ("ours", "t5"):
            of_side = [row for row in rows if (row["case"], row["length"], row["side"]) == ("denoiser", length, side)]
            parts = [row for row in of_side if row["variant"] in WEIGHTS]
            if parts:
                corruption = together(parts, WEIGHTS)["ns_per_token"]
                figures = {"corruption_ns": corruption, "tokenizing_ns": cost, "ratio": corruption / cost}
                found.append({"length": length, "side": side, **figures})
    return found


def report(console: Console, result: Mapping[str, Any]) -> None:
    table = Table(
        title="CPU and wall time, medians over rounds; all tokens are text tokens",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )
    for column in (
        "length",
        "case",
        "side",
        "µs",
        "ns a token",
        "t5 / it",
        "wall µs",
        "ns a token",
        "M tokens\n/ CPU s",
        "tokens",
        "peak\nMB",
        "fill, %",
    ):
        table.add_column(column, justify="left" if column in ("case", "side") else "right", no_wrap=True)
    before = None
    for row in result["rows"]:
        if before not in (None, (row["case"], row["length"])):
            table.add_section()
        before = row["case"], row["length"]
        fill = row.get("fill", {}) if row["case"] in ("packed", "unpacked") else {}
        table.add_row(
            str(row["length"]),
            f"{row['case']} {row['variant']}",
            row["side"],
            f"{row['us_per_example']:,.1f}",
            f"{row['ns_per_token']:,.2f}",
            f"{row['t5_ratio']:,.{0 if row['t5_ratio'] > 99 else 2}f}",
            f"{row['wall_us_per_example']:,.1f}",
            f"{row['wall_ns_per_token']:,.2f}",
            f"{row['tokens_per_cpu_second'] / 1e6:,.2f}",
            f"{row['tokens_per_example']:,.0f}",
            f"{row['peak_mb']:,.0f}",
            " ".join(f"{share * 100:.1f}" for share in fill.values()),
        )
    console.print(table)
    corpus = result["corpus"]
    console.print(f"{corpus['documents']:,} documents, {corpus['tokens']:,} tokens; {result['machine']}", soft_wrap=True)
    for each in result["corruption_by_tokenizing"]:
        console.print(
            f"corruption / tokenizing at {each['length']}, {each['side']}: {each['ratio']:.2f}"
            f" ({each['corruption_ns']:.1f} / {each['tokenizing_ns']:.1f} ns a token; case denoiser, examples 1:1:1:1:4)",
            soft_wrap=True,
        )


def machine() -> dict[str, Any]:
    packages = ("ul2_tasks", "tensorflow", "tensorflow-text", "seqio", "t5", "numpy")
    versions = {}
    for package in packages:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):  # a checkout that is on the path only
            versions[package] = importlib.metadata.version(package)
    return {
        "platform": platform.platform(),
        "processor": processor(),
        "cpus": os.cpu_count(),
        "python": platform.python_version(),
        **versions,
    }


def processor() -> str:
    with contextlib.suppress(OSError):
        for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


if __name__ == "__main__":
    main()
