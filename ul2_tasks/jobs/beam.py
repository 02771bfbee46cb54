"""The shards of a job on Apache Beam's workers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence


def import_beam():
    """Apache Beam. Where it is not installed, an ImportError says what to install."""
    try:
        import apache_beam
    except ImportError as error:
        raise ImportError(f"a Beam job needs Apache Beam ({error}). Run `pip install 'ul2_tasks[cache]'`.") from error
    return apache_beam


def map_on_beam(options: Sequence[str], function: Callable[[object], object], shards: Iterable[object]) -> None:
    """Calls a function with each shard, on the workers of a pipeline with these options."""
    beam = import_beam()
    try:
        with beam.Pipeline(options=beam.options.pipeline_options.PipelineOptions(list(options))) as pipeline:
            _ = pipeline | beam.Create(list(shards)) | beam.Reshuffle() | beam.Map(function)
    except RuntimeError as error:
        if isinstance(error.__context__, KeyboardInterrupt):  # of a function that runs in this process
            raise KeyboardInterrupt from error
        raise
