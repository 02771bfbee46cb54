"""How much memory the processes of this host may take: that of the machine, or what the group that they are in may take."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

_LIMITS = {"cgroup2": "memory.max", "cgroup": "memory.limit_in_bytes"}  # the file of a group, by the version of cgroups


def available_bytes(process: str = "/proc/self") -> int:
    """The least of the machine's memory and the limits of this process's cgroup and of all above it, of both versions."""
    found = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    with contextlib.suppress(OSError):
        for path in _limits(process):
            with contextlib.suppress(OSError, ValueError), open(path) as file:  # a group without a limit says "max"
                found.append(int(file.read()))
    return min(found)


def _limits(process: str) -> Iterator[str]:
    """The files with the limits of the groups of a process, as far as they are mounted."""
    with open(f"{process}/cgroup") as file:
        lines = [line.rstrip("\n").split(":", 2) for line in file]
    groups = {"cgroup2" if not kinds else "cgroup": group for _, kinds, group in lines if not kinds or "memory" in kinds.split(",")}
    with open(f"{process}/mountinfo") as file:
        mounts = [line.split() for line in file]
    for mount in mounts:
        root, place, (kind, _, options) = mount[3], mount[4], mount[mount.index("-") + 1 :][:3]
        if kind not in groups or (kind == "cgroup" and "memory" not in options.split(",")):
            continue
        # In a container, the mount may begin at a group below the machine's first.
        below = os.path.relpath(groups[kind], root)
        names = [] if below == "." or below.startswith("..") else below.split("/")
        for depth in range(len(names) + 1):
            yield os.path.join(place, *names[:depth], _LIMITS[kind])
