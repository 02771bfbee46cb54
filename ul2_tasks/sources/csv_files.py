"""Files of comma-separated values, whose first line names the fields."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from typing import BinaryIO

_LONGEST = 1 << 30  # characters of a document; the library's limit is 131,072


def csv_records(file: BinaryIO) -> Iterator[dict | ValueError]:
    """The records of an open file."""
    csv.field_size_limit(max(_LONGEST, csv.field_size_limit()))
    for record in csv.DictReader(io.TextIOWrapper(file, "utf-8-sig", newline="")):
        yield ValueError("has more values than the first line has names") if None in record else record
