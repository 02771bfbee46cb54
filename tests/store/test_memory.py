"""The bound of the block cache is that of what all processes of a host may take, whatever groups they are in."""

import numpy as np
import pytest

from ul2_tasks.store import block_cache
from ul2_tasks.store.block_cache import BlockCache, set_block_cache
from ul2_tasks.store.memory import available_bytes

GROUPS = {
    "version 2": ("0::/slurm/job_7", "/ {place} rw - cgroup2 cgroup2 rw", "memory.max"),
    "version 1": (
        "5:memory:/slurm/job_7\n1:name=systemd:/\n0::/",
        "/ {place} rw - cgroup cgroup rw,memory",
        "memory.limit_in_bytes",
    ),
    "version 1 with others": ("5:cpu,memory:/slurm/job_7", "/ {place} rw - cgroup cgroup rw,cpu,memory", "memory.limit_in_bytes"),
    "mounted below": ("0::/pods/slurm/job_7", "/pods {place} rw shared:1 - cgroup2 cgroup2 rw", "memory.max"),
}


@pytest.mark.parametrize("kind", GROUPS)
def test_each_group_above_a_process_bounds_it(tmp_path, kind):
    group, mount, name = GROUPS[kind]
    (tmp_path / "groups/slurm/job_7").mkdir(parents=True)
    (tmp_path / "cgroup").write_text(f"{group}\n")
    (tmp_path / "mountinfo").write_text(f"31 23 0:27 {mount.format(place=tmp_path / 'groups')}\n")
    whole = available_bytes(str(tmp_path))
    assert whole > 1 << 28, "no group has a limit: that of the machine"
    for number, folder in enumerate(("", "slurm", "slurm/job_7")):
        (tmp_path / "groups" / folder / name).write_text(f"{(1 << 27) - number}\n")
        assert available_bytes(str(tmp_path)) == (1 << 27) - number
    for folder in ("", "slurm/job_7"):
        (tmp_path / "groups" / folder / name).write_text("max\n")
    assert available_bytes(str(tmp_path)) == (1 << 27) - 1
    (tmp_path / "cgroup").write_text("0::/../elsewhere\n")
    assert available_bytes(str(tmp_path)) <= whole
    assert available_bytes(str(tmp_path / "nothing")) == whole


@pytest.mark.parametrize("launcher", ["LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "SLURM_STEP_TASKS_PER_NODE"])
def test_processes_of_a_host_share_the_bound(monkeypatch, launcher):
    held = block_cache._Held()
    whole = held.max_bytes
    monkeypatch.setenv(launcher, "4(x2),3" if launcher.startswith("SLURM") else "4")
    assert held.max_bytes == whole // 4
    held.given = 1 << 20
    assert held.max_bytes == 1 << 18


class Bytes:
    """A store of bytes."""

    documents, tokens, dtype, provenance = 1, 1 << 15, np.dtype(np.uint8), None

    def read_values(self, start, stop):
        return np.zeros(stop - start, np.uint8)


class Held:
    """How many blocks of 1 kB a process holds after it has read all."""

    def __init__(self):
        self.cache = BlockCache(Bytes(), 1 << 10)

    def __len__(self):
        return 4

    def __getitem__(self, number):
        for start in range(0, 1 << 15, 1 << 10):
            self.cache.read_tokens(start, start + 1)
        return len(self.cache.held)


@pytest.mark.torch
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_share_the_bound(method):
    data = pytest.importorskip("torch.utils.data")
    set_block_cache(1 << 14)
    try:
        for workers in (1, 2):
            loader = data.DataLoader(Held(), num_workers=workers, multiprocessing_context=method)
            most = max(int(held) for held in loader)
            # A process that was forked has the blocks of its parent's caches, too.
            assert most == 16 // workers if method == "spawn" else 0 < most <= 16 // workers
    finally:
        set_block_cache()
