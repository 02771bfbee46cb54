"""Files of comma-separated values, whose first line names the fields."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from typing import BinaryIO

csv.field_size_limit(1 << 30)  # bytes of a document


def csv_records(file: BinaryIO) -> Iterator[dict | ValueError]:
    """The records of an open file."""
    for record in csv.DictReader(io.TextIOWrapper(file, "utf-8-sig", newline="")):
        yield ValueError("has more values than the first line has names") if None in record else record
