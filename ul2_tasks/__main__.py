"""`python -m ul2_tasks` shows the default mixture as text; `ul2` is the same program."""

from __future__ import annotations

import functools
import importlib
import logging
import os
import re
import sys
from collections.abc import Callable

import click

BAD_INPUT = 2  # exit status


def in_one_sentence(command: Callable[..., None]) -> Callable[..., None]:
    """Lets what goes wrong with a user's input end in its message, not in a traceback."""

    @functools.wraps(command)
    def wrapped(**arguments) -> None:
        import tensorflow as tf

        logging.getLogger("apache_beam").setLevel(logging.CRITICAL)  # it logs tracebacks of what it then raises
        try:
            command(**arguments)
        except (ImportError, OSError, RuntimeError, ValueError, tf.errors.OpError) as error:
            # Beam says where in its pipeline it happened, TensorFlow in which op; neither is the user's.
            message = re.sub(r"\[while running .*|\{\{.*?\}\}|\[\[.*?\]\]|\[Op:.*", "", str(error), flags=re.DOTALL)
            click.echo(f"Error: {' '.join(message.split())}", err=True)
            sys.exit(BAD_INPUT)

    return wrapped


@click.group(invoke_without_command=True)
@click.pass_context
def main(context: click.Context) -> None:
    """UL2 pre-training data for SeqIO and t5x. Without a command: examples of the default mixture, as text."""
    if context.invoked_subcommand is None:
        from ul2_tasks.show import show

        show("ul2_mix", {"inputs": 96, "targets": 96})


@main.command()
@click.argument("name")
@click.option("--output", required=True, help="Folder for the caches of several corpora, local or remote (gs://..).")
@click.option("--module", multiple=True, help="Module that registers NAME; for the default mixture none is needed.")
@click.option("--max_documents", type=click.IntRange(1), help="At most so many documents of each split: a smoke build.")
@click.option("--workers", type=click.IntRange(1), default=1, show_default=True, help="Processes of the local runner.")
@click.option("--runner", default="FnApiRunner", show_default=True, help="Beam's runner; DirectRunner downloads a binary first.")
@click.option("--pipeline_option", multiple=True, help="Another option of Beam, such as --pipeline_option=--region=us-central1.")
@in_one_sentence
def cache(name: str, output: str, module, max_documents, workers: int, runner: str, pipeline_option) -> None:
    """Tokenizes the corpus of the mixture NAME_mix once, for all of its denoisers, as a Beam job.

    A job that was interrupted goes on where it stopped when it is started again.
    """
    from ul2_tasks.build_cache import build

    sys.path.insert(0, os.getcwd())  # as `python -m` has it; the script `ul2` has its own folder there
    for each in module:
        importlib.import_module(each)
    options = [f"--runner={runner}", *pipeline_option]
    if workers > 1:
        options += [f"--direct_num_workers={workers}", "--direct_running_mode=multi_processing"]
    build(f"{name}_corpus", output, max_documents=max_documents, modules=("ul2_tasks", *module), pipeline_options=options)


@main.command()
@click.argument("cache_dir")
@in_one_sentence
def verify(cache_dir: str) -> None:
    """Reads the cache in CACHE_DIR (such as OUTPUT/ul2_corpus) again, and names each file that is not as it was written."""
    from ul2_tasks import cache as caches

    wrong = list(caches.verify(cache_dir))
    for sentence in wrong:
        click.echo(sentence)
    if wrong:
        sys.exit(1)
    totals = caches.read_manifest(cache_dir)["totals"]
    click.echo(f"{cache_dir} is as it was written: " + ", ".join(f"{count:,} {what}" for what, count in totals.items()))


if __name__ == "__main__":
    main()
