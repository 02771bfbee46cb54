"""The shards of a job on Apache Beam's workers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ul2_tasks.extras import needs


def import_beam():
    """Apache Beam. Where it is not installed, an ImportError says what to install."""
    with needs("a Beam job", "beam"):
        import apache_beam
    return apache_beam


def map_on_beam(options: Sequence[str], function: Callable[[object], object], shards: Iterable[object]) -> None:
    """Calls a function with each shard, on the workers of a pipeline with these options.

    Raises a RuntimeError with all that Beam says of an error there: it comes from another process, as a text.
    """
    beam = import_beam()
    try:
        with beam.Pipeline(options=beam.options.pipeline_options.PipelineOptions(list(options))) as pipeline:
            _ = pipeline | beam.Create(list(shards)) | beam.Reshuffle() | "write shards" >> beam.Map(function)
    except Exception as error:
        if isinstance(error.__context__, KeyboardInterrupt):  # of a function that runs in this process
            raise KeyboardInterrupt from error
        raise RuntimeError(f"the Beam job failed. Beam says: {error}") from error
