"""What commands of the golden tests look at. The current folder is that of this file."""

from ul2_tasks import Mixture, open_source
from ul2_tasks.image_rows import example_sources

text = Mixture("text", open_source("corpus/texts.jsonl", id_key="id", validation=0.1))
edits = [each for each in example_sources() if each.schema == "unified_edit"]
