"""The door to t5x: the data of a step, losses by group, and how long a run waits for its data."""

from ul2_tasks.extras import needs

with needs("ul2_tasks.t5x", "t5x"):
    import seqio  # noqa: F401
