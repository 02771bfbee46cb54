"""Trial runs: jobs that write only so much, with the code of the large job. Their manifests say so."""

from __future__ import annotations

from collections.abc import Mapping

from ul2_tasks.scalars import is_integer

_LEAST_TOKENS = 1 << 16  # of a shard, before others have tokens, too: documents are whole, and few tokens would hold none
_PREFIX = "max_"


def checked(**most: int | None) -> dict[str, int | None]:
    """The most that a job may write, such as max_tokens=1000; None is all. Raises a ValueError where one is neither."""
    for name, value in most.items():
        if value is not None and not is_integer(value, at_least=1):
            raise ValueError(f"{name} must be an integer of at least 1, or None for all, got {value!r}. Leave it out for all.")
    return {name: None if value is None else int(value) for name, value in most.items()}


def share(name: str, most: int | None, number: int, shards: int) -> int | None:
    """What the shard of this number, of so many, may have. The sum over the shards is `most`; None is all.

    >>> [share("max_documents", 7, number, 3) for number in range(3)], [share("max_documents", 2, number, 4) for number in range(4)]
    ([3, 2, 2], [1, 0, 1, 0])
    >>> [share("max_tokens", 200_000, number, 6) for number in range(6)]
    [66667, 0, 66667, 0, 66666, 0]
    """
    if most is None:
        return None
    used = min(shards, max(1, most // (_LEAST_TOKENS if name == "max_tokens" else 1)))
    if number * used % shards >= used:
        return 0
    return most // used + (number * used // shards < most % used)


def most_of(said: Mapping[str, object]) -> dict[str, int]:
    """The most that a trial run has, of a manifest, or of its arguments; empty where all is written."""
    return {name: value for name, value in said.items() if name.startswith(_PREFIX) and isinstance(value, int)}


def in_words(said: Mapping[str, object]) -> str:
    """What a manifest says of a trial run, in words; "" where all is written.

    >>> in_words({"format": "parquet", "max_documents": 1000, "max_tokens": None})
    'a trial run, of at most 1,000 documents of each split'
    """
    most = [f"{value:,} {name.removeprefix(_PREFIX)}" for name, value in most_of(said).items()]
    return f"a trial run, of at most {' and '.join(most)} of each split" if most else ""
