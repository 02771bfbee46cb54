"""SeqIO's tasks and mixtures. Once this is imported, SeqIO's registries have `ul2_mix` and its tasks.

`import ul2_tasks` asks for `built_in.py` to be imported at the end of `import seqio`, by the thread that imports SeqIO. Other
threads wait for it here. They hold no file of this folder meanwhile, which that thread would wait for, unless they name one first:
write `from ul2_tasks.tasks import preprocessors`, not `import ul2_tasks.tasks.preprocessors`.
"""

from ul2_tasks.extras import needs

with needs("ul2_tasks.tasks", "seqio"):
    import seqio  # noqa: F401
