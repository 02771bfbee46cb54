"""The door to t5x: the data of a step, losses by group, and how long a run waits for its data."""
