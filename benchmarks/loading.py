"""What `MeasuredLoader` costs beside the batches that it measures: `python benchmarks/loading.py [--batch_size 32] [--repeats 7]`.

In turns it reads the same batches of the built-in mixture at 512, packed, with and without it, and the same tensors again and
again, with and without masks, so that nothing is left but what it does. Printed is the least of `--repeats` turns.
"""

import argparse
import itertools
import time
from collections.abc import Iterable

import ul2_tasks
from ul2_tasks import HuggingFaceFeatureConverter, MeasuredLoader, UL2IterableDataset

LENGTHS = {"inputs": 512, "targets": 512}


def microseconds(batches: Iterable, count: int) -> float:
    begun = time.perf_counter()
    for _ in itertools.islice(batches, count):
        pass
    return (time.perf_counter() - begun) / count * 1e6


def main(batch_size: int, repeats: int) -> None:
    import torch

    rows = UL2IterableDataset(ul2_tasks.Mixture(), LENGTHS, feature_converter=HuggingFaceFeatureConverter(pack=True))
    loader = torch.utils.data.DataLoader(rows, batch_size=batch_size)
    batch = next(iter(loader))
    made: dict[str, list[float]] = {}
    for _ in range(repeats):
        for name, batches, count in (
            ("batches", loader, 100),
            ("batches, measured", MeasuredLoader(loader), 100),
            ("the same batch", itertools.repeat(batch), 2000),
            ("the same batch, measured", MeasuredLoader(itertools.repeat(batch)), 2000),
            ("no masks", itertools.repeat(None), 100_000),
            ("no masks, measured", MeasuredLoader(itertools.repeat(None)), 100_000),
        ):
            made.setdefault(name, []).append(microseconds(batches, count))
    for name, values in made.items():
        print(f"{name:26} {min(values):10.2f} microseconds per batch")
    alone, measured = (min(made[name]) for name in ("the same batch", "the same batch, measured"))
    print(f"measured, to the time of a batch: {(measured - alone) / min(made['batches']):.2%}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch_size", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=7)
    arguments = parser.parse_args()
    main(arguments.batch_size, arguments.repeats)
