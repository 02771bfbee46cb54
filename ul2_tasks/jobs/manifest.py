"""What the manifest of a job says of its files: checksums, differences.

A job (`job`) writes a folder of files, and a manifest that lists them with their bytes and SHA-256. The caches' and the
exports' manifests say more, which is their own (`corpus.cache`, `export.folder`); what is the same for both is here.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from ul2_tasks.files import systems
from ul2_tasks.files.atomic import write_atomically
from ul2_tasks.files.systems import parallel_map, place, read, sha256
from ul2_tasks.version import check_version

_CHECKSUM = "manifest_sha256"  # of the rest of a manifest


def load(path: str) -> Any:
    """The value of a JSON file. Raises a ValueError if it is none."""
    return _parse(path, read(path))


def _parse(path: str, content: bytes) -> Any:
    try:
        return json.loads(content.decode())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} must be JSON, but is not: {error}") from error


def load_object(path: str, remedy: str, fields: Collection[str] = ()) -> dict:
    """The value of a JSON file that holds an object with these fields. Raises a ValueError, with the `remedy`, if it does not.

    Where it has a checksum, see `write_manifest`, an altered one raises a ValueError, too.
    """
    value = _checked(load(path), path, remedy, ())
    return _checked(_unaltered(value, path, remedy) if _CHECKSUM in value else value, path, remedy, fields)


def load_written(path: str, remedy: str) -> dict:
    """What `write_manifest` wrote. Raises a ValueError, with the `remedy`, if it is anything else."""
    return _unaltered(_checked(load(path), path, remedy, ()), path, remedy)


def _checked(value: object, path: str, remedy: str, fields: Collection[str]) -> dict:
    if not isinstance(value, dict) or not value.keys() >= set(fields):
        what = f"an object with the fields {[*fields]}" if fields else "an object"
        raise ValueError(f"{path} is not as it was written: it must be {what}. {remedy}")
    return value


def sizes(folder: str, names: Sequence[str]) -> list[int]:
    """The sizes of files in a folder."""
    return systems.sizes([place(folder, name) for name in names])


def parse_manifest(path: str, content: bytes, readable: int, remedy: str, fields: Collection[str]) -> dict:
    """A manifest, as JSON has it.

    `readable` is the schema version that this package reads and writes. Another schema, a manifest that was altered, or one without
    these fields raises a ValueError, with `remedy`, which says what to do about it.
    """
    manifest = _checked(_parse(path, content), path, remedy, ())
    check_version(path, manifest.get("schema_version"), readable, remedy)
    return _checked(_unaltered(manifest, path, remedy), path, remedy, fields)


def _unaltered(manifest: dict, path: str, remedy: str) -> dict:
    """A manifest without its checksum, which is compared."""
    if manifest.pop(_CHECKSUM, None) != _checksum(manifest):
        raise ValueError(f"{path} is not as it was written: its {_CHECKSUM} is another. {remedy}")
    return manifest


def write_manifest(path: str, manifest: Mapping[str, object]) -> None:
    """Writes a manifest with a checksum of itself, so that what reads it need not ask whether it was altered."""
    written = json.loads(json.dumps(manifest))  # as it is read, with texts for keys
    write_atomically(path, json.dumps({**written, _CHECKSUM: _checksum(written)}, indent=1) + "\n")


def _checksum(manifest: Mapping[str, object]) -> str:
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()


def total(counts: Iterable[Mapping[str, int]], keys: Sequence[str]) -> dict[str, int]:
    """The sum of the counts under each key.

    >>> total([{"documents": 2, "tokens": 30}, {"documents": 1, "tokens": 5}], ["documents", "tokens"])
    {'documents': 3, 'tokens': 35}
    """
    counts = list(counts)
    return {key: sum(count[key] for count in counts) for key in keys}


def differences(before: object, now: object, path: str = "") -> Iterator[str]:
    """A sentence for each value of nested dictionaries that was another one before, or is in one of them alone.

    >>> list(differences({"seed": 0, "chunk": {"length": 64}}, {"seed": 0, "chunk": {"length": 32}}))
    ['chunk.length was 64, and is now 32']
    """
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        for key in {**before, **now}:
            yield from differences(before.get(key), now.get(key), f"{path}.{key}" if path else key)
    elif before != now:
        yield f"{path} was {before!r}, and is now {now!r}"


def faults(folder: str, shards: Sequence[Mapping], present: Collection[str], quick: bool) -> Iterator[str]:
    """Reads the files of a job again, or with `quick` compares their sizes alone.

    Gives a sentence for each that is missing, truncated or altered, or that is not listed.

    `shards` are the manifest's entries of the files, with "file", "bytes" and "sha256"; `present` are the names of the files there.
    """
    wrong = list(missing_or_resized(folder, shards, present))
    yield from wrong
    if quick:
        return
    rest = [shard for shard in shards if not any(shard["file"] in sentence for sentence in wrong)]
    yield from filter(None, parallel_map(functools.partial(altered, folder), rest))


def missing_or_resized(folder: str, shards: Sequence[Mapping], present: Collection[str]) -> Iterator[str]:
    """The faults, see `faults`, that can be found without opening a file."""
    listed, present = {shard["file"]: shard["bytes"] for shard in shards}, set(present)
    yield from (f"{name} is missing" for name in sorted(listed.keys() - present))
    yield from (f"{name} is not in the manifest" for name in sorted(present - listed.keys()))
    both = sorted(listed.keys() & present)
    for name, found in zip(both, sizes(folder, both)):
        if found != listed[name]:
            kind = "truncated" if found < listed[name] else "too long"
            yield f"{name} is {kind}: it has {found} bytes, but the manifest says {listed[name]}"


def altered(folder: str, shard: Mapping) -> str | None:
    """A sentence if the SHA-256 of a file is not the one that the manifest has for it; otherwise None."""
    found = sha256(place(folder, shard["file"]), shard["bytes"])
    if found == shard["sha256"]:
        return None
    return f"{shard['file']} is altered: its SHA-256 is {found}, but the manifest says {shard['sha256']}"
