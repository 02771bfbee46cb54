"""Tasks and mixtures whose examples are measured: they are those of training, with what training does without.

An example then has the name of its task. And it comes in seconds from a small corpus as well, where training waits until a shuffle
buffer of half a million tokens is full: a corpus of a few tokens is read a million times for that, each time by a new iterator.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence

import seqio
import tensorflow as tf

from ul2_tasks.graphs import no_autograph
from ul2_tasks.looking.texts.first_documents import FirstDocuments, first_documents
from ul2_tasks.order.stream_keys import salted
from ul2_tasks.tasks.preprocessors import TOKENS_AT_A_TIME
from ul2_tasks.tasks.providers import SHUFFLED_TOKENS, DenoisingMixture, DenoisingTask

MOST_DOCUMENTS_READ = 250_000  # of one corpus for a sample; so many take some ten seconds
PASS = 20  # starting from the beginning again takes as long as reading so many documents
TOKENS_IN_MEMORY = 1 << 17  # the fewest tokens of a batch of documents in memory
BATCHES_IN_MEMORY = 8  # of a pass over them


class _StockMixture(DenoisingMixture):
    """Leaves out tasks that do not have the split, as SeqIO's own mixtures do."""

    get_dataset = seqio.Mixture.get_dataset


def drawn_mixture(mixture: seqio.Mixture, tasks: Mapping[str, DenoisingTask]) -> seqio.Mixture:
    """A mixture with the same rates, whose examples have the feature `TASK` where that is asked for; not registered.

    `tasks` replace its tasks of the same names. It leaves out or refuses what the mixture does.
    """
    is_ours = isinstance(mixture, DenoisingMixture)
    if is_ours and all(tasks.get(task.name, task) is task for task in mixture.tasks):
        return mixture
    rates = [(tasks.get(task.name, task), mixture.get_rate(task)) for task in mixture.tasks]
    return (DenoisingMixture if is_ours else _StockMixture)(mixture.name, rates)


def quick_tasks(
    tasks: Sequence[DenoisingTask], sequence_length: Mapping[str, int], split: str, examples: Mapping[str, float]
) -> tuple[dict[str, DenoisingTask], dict[str, FirstDocuments]]:
    """Tasks that give a sample in seconds, by their names, and the first documents of each corpus by its name.

    A task that would take longer, to give its part of `examples`, is replaced by one that reads the first documents
    of the corpus, in memory.
    """
    found: dict[str, FirstDocuments] = {}
    quick: dict[str, DenoisingTask] = {}
    for corpus in dict.fromkeys(task.source.corpus for task in tasks):
        found[corpus.name] = documents = first_documents(corpus, split)
        of_corpus = [task for task in tasks if task.source.corpus is corpus]
        mean = documents.lengths.mean()
        read = sum(_documents_read(task, sequence_length, examples[task.name], mean) for task in of_corpus)
        work = read + (PASS * read / documents.lengths.size if documents.is_all else 0)
        quick |= {task.name: _in_memory(task, documents) if work > MOST_DOCUMENTS_READ else task for task in of_corpus}
    return quick, found


def reads_memory(task: DenoisingTask) -> bool:
    """Whether `quick_tasks` made the task, so that it reads documents in memory."""
    return isinstance(task.source, _DocumentsInMemory)


def _documents_read(task: DenoisingTask, sequence_length: Mapping[str, int], examples: float, tokens_a_document: float) -> float:
    """How many documents are read before so many examples are drawn: they fill a shuffle buffer, and come in whole blocks."""
    length = task.full_chunk(sequence_length).length
    examples += min(task.shuffle_buffer_size, SHUFFLED_TOKENS // length)
    documents = max(examples * length, TOKENS_AT_A_TIME) / tokens_a_document
    # A document that is kept apart is an example at least.
    return documents if task.configuration.merge_examples else min(documents, examples)


def _in_memory(task: DenoisingTask, documents: FirstDocuments) -> DenoisingTask:
    return task.replaced(source=_DocumentsInMemory(task.source, documents, task.name))


class _DocumentsInMemory(seqio.DataSource):
    """Documents in memory that a task reads instead of its corpus, in an order of its own, repeated until they have some size."""

    def __init__(self, view: seqio.DataSource, documents: FirstDocuments, salt: str):
        super().__init__(splits=view.splits, caching_permitted=False)
        self.corpus = view.corpus
        self._documents = documents
        self._salt = salt

    @property
    def supports_arbitrary_sharding(self) -> bool:
        return True

    def list_shards(self, split: str) -> Sequence[str]:
        return [split]

    def reads(self, split: str) -> str:
        """See `CorpusView.reads`; nothing is told, as no iterator is saved."""
        return ""

    @no_autograph
    def get_dataset(
        self, split: str = "train", shuffle: bool = True, seed: int | None = None, shard_info=None, **unused_kwargs
    ) -> tf.data.Dataset:
        """A dataset of batches of documents, {"targets": RaggedTensor [documents, tokens] int32}."""
        lengths = self._documents.lengths
        documents = tf.RaggedTensor.from_row_lengths(tf.constant(self._documents.tokens), lengths)
        numbers = tf.range(-(-TOKENS_IN_MEMORY // int(lengths.sum())) * lengths.size) % lengths.size
        seed = secrets.randbits(31) if seed is None else salted(seed, self._salt)

        def batch(number: tf.Tensor) -> dict[str, tf.RaggedTensor]:
            order = tf.random.experimental.stateless_shuffle(numbers, tf.stack([tf.constant(seed, tf.int64), number]))
            return {"targets": tf.gather(documents, order if shuffle else numbers)}

        return tf.data.Dataset.range(BATCHES_IN_MEMORY).map(batch)
