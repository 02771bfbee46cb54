"""What commands of the golden tests look at. The current folder is that of this file."""

from ul2_tasks import Mix, Mixture, Stage, open_source
from ul2_tasks.image_rows import example_sources

text = Mixture("text", open_source("corpus/texts.jsonl", id_key="id", validation=0.1))
edits = [each for each in example_sources() if each.schema == "unified_edit"]
first, second = (Mixture(name, text.source, denoisers="UL2R") for name in ("first", "second"))
staged = Mix("staged", schedule=[Stage(0, {first: 1, second: 1}), Stage(10, {second: 1})], batch_size=4, steps=20)
