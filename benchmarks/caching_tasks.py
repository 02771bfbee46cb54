"""What `caching.py` compares: one corpus, as `register` has it and as five tasks of t5's recipe. Reads `corpus/*.txt`.

    python caching_tasks.py MIXTURE CACHE_DIR EXAMPLES

prints, as JSON, the seconds that reading so many examples of a mixture from a cache takes, in batches of 128.
"""

from __future__ import annotations

import json
import sys
import time

import seqio
from speed.peers import EXAMPLES_PER_BATCH, add_t5_mixture, batched, name_text

from ul2_tasks import register
from ul2_tasks.vocabulary.sentencepiece import DEFAULT_MODEL

LENGTHS = {"inputs": 512, "targets": 512}
VOCABULARY = seqio.SentencePieceVocabulary(str(DEFAULT_MODEL), extra_ids=100)
SOURCE = seqio.TextLineDataSource({"train": "corpus/*.txt"})


register("ours", SOURCE, VOCABULARY)
add_t5_mixture(
    "t5",
    SOURCE,
    [name_text, seqio.preprocessors.tokenize, seqio.CacheDatasetPlaceholder()],
    {key: seqio.Feature(VOCABULARY) for key in LENGTHS},
)


def read(mixture: str, cache_dir: str, examples: int) -> dict[str, float]:
    seqio.add_global_cache_dirs([cache_dir])
    dataset = seqio.get_mixture_or_task(mixture).get_dataset(LENGTHS, "train", use_cached=True, seed=0, num_epochs=None)
    batches = iter(batched(dataset.map(lambda example: {key: example[key] for key in LENGTHS})))
    next(batches)
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(examples // EXAMPLES_PER_BATCH):
        next(batches)
    return {"cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall}


if __name__ == "__main__":
    print(json.dumps(read(sys.argv[1], sys.argv[2], int(sys.argv[3]))))
