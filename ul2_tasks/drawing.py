"""Examples to measure and to look at: those of training, with what training does without.

That is the task's name, where documents meet, and an answer in seconds for a corpus of a few tokens, too, which
would be read a million times: each time is a new iterator, and a shuffle buffer alone takes half a million tokens.
"""

from __future__ import annotations

import functools
import secrets
from collections.abc import Mapping, Sequence

import seqio
import tensorflow as tf

from ul2_tasks.corpora import salted
from ul2_tasks.first_documents import FirstDocuments, first_documents
from ul2_tasks.graphs import no_autograph
from ul2_tasks.mixing import sample_examples
from ul2_tasks.preprocessors import TOKENS_PER_BLOCK, chunk
from ul2_tasks.providers import SHUFFLED_TOKENS, DenoisingMixture, DenoisingTask

MOST_DOCUMENTS_READ = 250_000  # of one corpus for a sample; so many take some ten seconds
PASS = 20  # as many documents as it takes to start from the beginning again
TOKENS_IN_MEMORY, BATCHES_IN_MEMORY = 1 << 17, 8  # of a batch of documents in memory, at least, and of a pass over them


class _StockMixture(DenoisingMixture):
    """As one of SeqIO's own: tasks without the split are left out."""

    get_dataset = seqio.Mixture.get_dataset


def drawn_mixture(mixture: seqio.Mixture, tasks: Mapping[str, DenoisingTask]) -> seqio.Mixture:
    """The mixture itself, if it is of `register` or `mix`; where some of its tasks are replaced, one that is not registered.

    Args:
        mixture: any of SeqIO's, whose examples are of inputs and targets.
        tasks: what replaces the tasks of these names.

    Returns:
        A mixture whose examples have the feature `examples.TASK` where that is asked for. It draws as many of each task, and
        leaves out, or refuses, what the mixture does.
    """
    is_ours = isinstance(mixture, DenoisingMixture)
    if is_ours and all(tasks.get(task.name, task) is task for task in mixture.tasks):
        return mixture
    rates = [(tasks.get(task.name, task), mixture.get_rate(task)) for task in mixture.tasks]
    return (DenoisingMixture if is_ours else _StockMixture)(mixture.name, rates, sample_fn=sample_examples)


def quick_tasks(
    tasks: Sequence[DenoisingTask], sequence_length: Mapping[str, int], split: str, examples: Mapping[str, float]
) -> tuple[dict[str, DenoisingTask], dict[str, FirstDocuments]]:
    """The same tasks where that takes seconds, and others that read the first documents of the corpus in memory where not.

    Args:
        tasks: of one or several corpora.
        sequence_length, split: for which they are.
        examples: how many are wanted, by the task's name.

    Returns:
        The tasks by name, and by the name of each corpus its first documents.

    Raises:
        ValueError: see `first_documents`, `lengths.chunk_length` and `vocabularies.special_tokens`.
    """
    found, quick = {}, {}
    for corpus in dict.fromkeys(task.source.corpus for task in tasks):
        found[corpus.name] = documents = first_documents(corpus, split)
        of_corpus = [task for task in tasks if task.source.corpus is corpus]
        mean = documents.lengths.mean()
        read = sum(_documents_read(task, sequence_length, examples[task.name], mean) for task in of_corpus)
        work = read + (PASS * read / documents.lengths.size if documents.is_all else 0)
        quick |= {task.name: _in_memory(task, documents) if work > MOST_DOCUMENTS_READ else task for task in of_corpus}
    return quick, found


def marked_task(task: DenoisingTask) -> DenoisingTask:
    """The task, whose examples also have "starts_document", [L] bool: which tokens of the chunk, padded, begin a document."""
    _, corrupt = task.preprocessors
    return _copy(task, task.source, [functools.partial(chunk, **task.preprocessors[0].keywords, mark_documents=True), corrupt])


def reads_memory(task: DenoisingTask) -> bool:
    """Whether `quick_tasks` made it to read documents in memory."""
    return isinstance(task.source, _DocumentsInMemory)


def _documents_read(task: DenoisingTask, sequence_length: Mapping[str, int], examples: float, tokens_a_document: float) -> float:
    """Until so many examples are drawn: with a full shuffle buffer, and in whole blocks."""
    length = task.full_chunk(sequence_length).length
    examples += min(task.shuffle_buffer_size, SHUFFLED_TOKENS // length)
    documents = max(examples * length, TOKENS_PER_BLOCK) / tokens_a_document
    is_joined = task.preprocessors[0].keywords["merge_examples"]
    return documents if is_joined else min(documents, examples)  # kept apart, each is an example at least


def _in_memory(task: DenoisingTask, documents: FirstDocuments) -> DenoisingTask:
    return _copy(task, _DocumentsInMemory(task.source, documents, task.name), task.preprocessors)


def _copy(task: DenoisingTask, source: seqio.DataSource, preprocessors) -> DenoisingTask:
    return DenoisingTask(task.name, source, task.output_features, preprocessors, shuffle_buffer_size=task.shuffle_buffer_size)


class _DocumentsInMemory(seqio.DataSource):
    """Documents that a task reads instead of its corpus, as often as it takes to be of some size, in an order of its own."""

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
