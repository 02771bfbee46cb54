"""One of several t5x processes: reads an epoch of its shard of a mixture, packed, and writes the rows to a file.

    python tests/read_shard.py COORDINATOR_PORT PROCESS_COUNT PROCESS_INDEX OUTPUT.npz

`tests/test_t5x.py` runs this.
"""

import sys

import jax
import numpy as np
from support import byte_vocabulary, long_documents
from t5x import partitioning, utils

from ul2_tasks import EncDecFeatureConverter, register
from ul2_tasks.sources.memory import MemoryDataSource

if __name__ == "__main__":
    port, count, index = map(int, sys.argv[1:4])
    jax.distributed.initialize(f"127.0.0.1:{port}", count, index)
    layout = partitioning.PjitPartitioner(num_partitions=1).get_data_layout(8)
    vocabulary, modes = byte_vocabulary()
    config = utils.DatasetConfig(
        mixture_or_task_name=register("shards", MemoryDataSource(long_documents, validation=0), vocabulary, modes=modes),
        task_feature_lengths={"inputs": 128, "targets": 128},
        split="train",
        batch_size=8,
        shuffle=True,
        seed=0,
        pack=True,
    )
    dataset = utils.get_dataset(config, layout.shard_id, layout.num_shards, EncDecFeatureConverter, num_epochs=1)
    batches = list(dataset.as_numpy_iterator())
    rows = {key: np.concatenate([batch[key] for batch in batches]) for key in batches[0]}
    np.savez(sys.argv[4], shard=[layout.shard_id, layout.num_shards], **rows)
