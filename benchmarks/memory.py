"""Peak memory while the mixture streams from a corpus of JSON Lines, and from one 50 times as large: `python benchmarks/memory.py`.

Each corpus is read to its end by the denoiser R1 in a process of its own, uncached, as text; as one file, and compressed. What
must not grow is the difference to the small corpus, whose peak is Python's and TensorFlow's own and that of full buffers.
"""

import argparse
import gzip
import json
import pathlib
import resource
import subprocess
import sys
import tempfile

from rich.console import Console
from rich.progress import track
from rich.table import Table

from ul2_tasks.sources.memory import embedded_documents

SMALL, TIMES = 10, 50  # copies of the embedded corpus, 0.4 MB each
LENGTHS = {"inputs": 512, "targets": 512}


def write(path: pathlib.Path, copies: int) -> None:
    lines = "".join(json.dumps({"text": text}) + "\n" for text in embedded_documents()).encode()
    with gzip.open(path, "wb", compresslevel=1) if path.suffix == ".gz" else path.open("wb") as file:
        for _ in range(copies):
            file.write(lines)


def read(path: str) -> None:
    """Prints examples and the peak in MB of this process."""
    import seqio

    from ul2_tasks import register

    register("corpus", path)
    dataset = seqio.get_mixture_or_task("corpus_r1").get_dataset(LENGTHS, "train", seed=0)
    examples = sum(int(batch["inputs"].nrows()) for batch in dataset.ragged_batch(128))
    print(examples, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def main() -> None:
    table = Table(title=f"peak memory of reading, MB; {SMALL} and {SMALL * TIMES} copies of the embedded corpus")
    for column in ("corpus", "MB", "examples", "peak MB", "more than the small one"):
        table.add_column(column, justify="left" if column == "corpus" else "right")
    with tempfile.TemporaryDirectory() as folder:
        for name in ("a.jsonl", "a.jsonl.gz"):
            small = None
            for copies in track((SMALL, SMALL * TIMES), name, transient=True):
                path = pathlib.Path(folder) / name
                write(path, copies)
                done = subprocess.run([sys.executable, __file__, "--read", path], check=True, capture_output=True, text=True)
                examples, peak = map(float, done.stdout.split())
                small = small or peak
                table.add_row(
                    f"{name}, {copies} copies",
                    f"{path.stat().st_size / 1e6:.1f}",
                    f"{examples:,.0f}",
                    f"{peak:,.1f}",
                    f"{peak - small:+.1f}",
                )
    Console().print(table)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--read", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.read:
        read(arguments.read)
    else:
        main()
