"""`register`: the corpus, the denoisers' tasks and the mixture of them, under one name. `mix`: several such."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Mapping, Sequence

import gin
import seqio

from ul2_tasks.corpora import CorpusView
from ul2_tasks.denoisers import PRESETS, T5GEMMA2, Denoiser, check_denoisers
from ul2_tasks.file_source import Files
from ul2_tasks.identity import cannot_tell, source_identity
from ul2_tasks.mixing import sample_examples
from ul2_tasks.named_vocabularies import open_for_modes
from ul2_tasks.preprocessors import chunk, corrupt
from ul2_tasks.providers import DenoisingMixture, DenoisingTask
from ul2_tasks.scalars import as_python, is_finite
from ul2_tasks.sources import open_source
from ul2_tasks.tokenization import read_text, tokenize
from ul2_tasks.vocabularies import Mode, plain_modes

# The presets by name in gin files: `ul2_tasks.register.denoisers = %ul2_tasks.UL2R`.
for _name, _preset in PRESETS.items():
    gin.constant(f"ul2_tasks.{_name}", _preset)


def register(
    name: str = "ul2",
    source: seqio.DataSource | Files | Mapping[str, Files] = "embedded",
    vocabulary: seqio.Vocabulary | str | os.PathLike = "default",
    denoisers: Iterable[Denoiser] | Denoiser | str = T5GEMMA2,
    *,
    text_key: str | None = None,
    on_error: str = "raise",
    sentinels: int | Sequence[int] | str | None = None,
    modes: Mapping[str, Mode] | None = None,
    chunk_tokens: int | Mapping[str, int] | None = None,
    merge_examples: bool = True,
    separate_documents: bool = False,
) -> str:
    """Registers `NAME_corpus`, a task `NAME_<denoiser>` for each denoiser, and the mixture `NAME_mix`.

    Called again with the same arguments it changes nothing. No file is opened before a dataset is asked for. Whether a source
    is the same one, it has to tell itself: see `identity.source_identity`. One that cannot, as it reads what a lambda or a
    function within a function gives, equals itself alone, and has no cache; documents in memory tell by their content.

    Args:
        name: starts all names.
        source: where the documents come from: files, by path, glob, folder or list, or those of each split in a dictionary;
            "hf:NAME"; "tfds:NAME"; a `seqio.DataSource`. `open_source` has all kinds, and more arguments.
        vocabulary: tokenizes the text: the path of a SentencePiece model, of a `tokenizer.json` or a folder with one;
            "bytes"; "default"; or a `seqio.Vocabulary`. See `open_vocabulary`.
        denoisers: a preset, also by its name ("UL2"), or denoisers of one's own. Their weights are the mixture's rates, in
            examples.
        text_key: the source's field, column or feature that holds the text; by default "text", or what the source was opened with.
        on_error: what becomes of a record that cannot be read, or is not UTF-8: "raise", or "skip", which is counted, in a
            cache and in the log.
        sentinels: the sentinels' ids in the order of use, or the pieces' common name such as "<unused{}>"; by default
            `<extra_id_0>`, `<extra_id_1>`, .. or the vocabulary's extra ids. See `vocabularies.special_tokens`. Or how many
            of `<extra_id_0>` .. a vocabulary that is given by its path has at least.
        modes: what each mode is, an id, ids, or a text; by default the piece of the mode's name.
        chunk_tokens: an upper bound for the chunks, one for all or by the denoisers' names, where a denoiser without one has no
            bound; by default they fill the budgets.
        merge_examples: whether documents are joined to fill chunks, or kept apart.
        separate_documents: whether an EOS ends each document when they are joined.

    Returns:
        "NAME_mix".

    Raises:
        ValueError: bad denoisers; the name is taken, by another provider or by other arguments, which are named.
    """
    source = open_source(source, text_key=text_key or "text")
    denoisers = check_denoisers(denoisers)
    vocabulary, sentinels = open_for_modes(vocabulary, [denoiser.mode for denoiser in denoisers], sentinels, modes)
    if isinstance(chunk_tokens, Mapping):
        chunk_tokens = {name: as_python(tokens) for name, tokens in chunk_tokens.items()}
    chunk_tokens = as_python(chunk_tokens)
    settings = {
        "source": source,
        "vocabulary": vocabulary,
        "denoisers": denoisers,
        "text_key": text_key or getattr(source, "text_key", "text"),
        "on_error": on_error,
        "sentinels": sentinels,
        "modes": plain_modes(modes),
        "chunk_tokens": chunk_tokens,
        "merge_examples": merge_examples,
        "separate_documents": separate_documents,
    }
    _check_types(settings)
    mixture = f"{name}_mix"
    if _is_registered(mixture, settings):
        return mixture
    _check_names_are_free(name, settings["denoisers"])

    feature = seqio.Feature(settings["vocabulary"], add_eos=True)
    special = {
        "mode_names": tuple(dict.fromkeys(denoiser.mode for denoiser in settings["denoisers"])),
        "sentinels": settings["sentinels"],
        "modes": settings["modes"],
    }
    reader = {"source": source, "text_key": settings["text_key"], "on_error": on_error}
    corpus = seqio.TaskRegistry.add(
        f"{name}_corpus",
        source=source,
        preprocessors=[
            functools.partial(read_text, **reader, **special),
            functools.partial(tokenize, **special),
            seqio.CacheDatasetPlaceholder(),
        ],
        output_features={"targets": feature},
        shuffle_buffer_size=None if source.performs_internal_shuffling else seqio.SHUFFLE_BUFFER_SIZE,
    )
    corpus.modes = settings["modes"]  # for the cache's manifest
    rates = []
    for denoiser in settings["denoisers"]:
        shared = {
            "denoiser": denoiser,
            **{key: settings[key] for key in ("sentinels", "modes", "merge_examples")},
            "chunk_tokens": chunk_tokens.get(denoiser.name) if isinstance(chunk_tokens, Mapping) else chunk_tokens,
        }
        task = seqio.TaskRegistry.add(
            f"{name}_{denoiser.name}",
            source=CorpusView(corpus, salt=denoiser.name),
            preprocessors=[
                functools.partial(chunk, **shared, separate_documents=separate_documents),
                functools.partial(corrupt, **shared),
            ],
            output_features={"inputs": feature, "targets": feature},
            task_cls=DenoisingTask,
        )
        rates.append((task.name, denoiser.weight))
    _add_mixture(mixture, rates, settings)
    return mixture


def mix(name: str, mixtures: Mapping[str, float] | Sequence[tuple[str, float]]) -> str:
    """Registers `NAME_mix`, a mixture of mixtures and tasks: several corpora under the same denoisers, or supervised tasks beside.

    Every corpus is repeated on its own, as often as its weight needs; in a finite epoch (`num_epochs=1`) the mixture ends when
    the first task of any of them ends. Tasks that `register` did not make are SeqIO's as ever: what is too long is trimmed.

    Args:
        name: starts the name.
        mixtures: each with its weight, a number: its share of the examples, after division by the sum. What `register` or `mix`
            returned, or the name of any registered mixture or task with the features inputs and targets of the same
            vocabulary (which is checked when a dataset is asked for). One denoising task at least is among theirs.

    Returns:
        "NAME_mix".

    Raises:
        ValueError: a weight is no positive number, a name is not registered, a task has other features, none is a denoising
            task, or the name is taken by another mixture.
    """
    try:
        weights = dict(mixtures)
    except (TypeError, ValueError):
        weights = {}
    if not weights or len(weights) < len(mixtures) or not all(map(_is_weight, weights.values())):
        raise ValueError(
            f"mixtures are {mixtures!r}, expected different ones, each with a number above 0 as its weight, and no function as"
            " SeqIO has them"
        )
    registered = {*seqio.MixtureRegistry.names(), *seqio.TaskRegistry.names()}
    missing = sorted(set(weights) - registered)
    if missing:
        raise ValueError(f"there is no mixture or task {missing}, only {sorted(registered)}; register it first")
    tasks = {task.name: task for part in weights for task in seqio.get_subtasks(seqio.get_mixture_or_task(part))}
    features = {name: sorted(task.output_features) for name, task in tasks.items()}
    if others := {name: keys for name, keys in features.items() if keys != ["inputs", "targets"]}:
        raise ValueError(f"only tasks of inputs and targets can be mixed, got {others}")
    if not any(isinstance(task, DenoisingTask) for task in tasks.values()):
        raise ValueError(f"none of {sorted(tasks)} is a denoising task; mix them with seqio.MixtureRegistry.add")
    mixture = f"{name}_mix"
    if not _is_registered(mixture, {"mixtures": weights}):
        _add_mixture(mixture, list(weights.items()), {"mixtures": weights})
    return mixture


def _is_weight(weight: object) -> bool:
    return is_finite(weight) and weight > 0


def _add_mixture(name: str, rates: Sequence[tuple[str, float]], settings: Mapping[str, object]) -> None:
    seqio.MixtureRegistry.add(name, rates, mixture_cls=DenoisingMixture, sample_fn=sample_examples).settings = settings


def _check_types(settings: Mapping[str, object]) -> None:
    expected = {
        "merge_examples": (bool, "True or False"),
        "separate_documents": (bool, "True or False"),
    }
    for key, (kind, description) in expected.items():
        if not isinstance(settings[key], kind):
            raise ValueError(f"{key} is {settings[key]!r}, expected {description}")
    if settings["on_error"] not in ("raise", "skip"):
        raise ValueError(f"on_error is {settings['on_error']!r}, expected 'raise' or 'skip'")

    names = [denoiser.name for denoiser in settings["denoisers"]]
    unknown = sorted(set(settings["chunk_tokens"]) - set(names)) if isinstance(settings["chunk_tokens"], dict) else []
    if unknown:
        raise ValueError(f"chunk_tokens has {unknown}, but the denoisers are {names}")


def _is_registered(mixture: str, settings: Mapping[str, object]) -> bool:
    if mixture not in seqio.MixtureRegistry.names():
        return False
    present = getattr(seqio.MixtureRegistry.get(mixture), "settings", None)
    if present is None:
        raise ValueError(f"{mixture!r} is already registered, and not by ul2_tasks.register; give another name")
    different = [key for key in {**present, **settings} if not _same(present.get(key), settings.get(key))]
    if different:
        changes = "; ".join(f"{key} is {_shown(present.get(key))}, got {_shown(settings.get(key))}" for key in different)
        sources = [source for source in (present.get("source"), settings.get("source")) if "source" in different]
        silent = next((f". {cannot_tell(source)}" for source in sources if source and source_identity(source) is None), "")
        raise ValueError(f"{mixture!r} is already registered with other arguments: {changes}; give another name{silent}")
    return True


def _same(a: object, b: object) -> bool:
    if a is b or not (isinstance(a, seqio.DataSource) and isinstance(b, seqio.DataSource)):
        return a is b or a == b
    identity = source_identity(a)
    return identity is not None and identity == source_identity(b)


def _shown(value: object) -> str:
    if not isinstance(value, seqio.DataSource):
        return repr(value)
    identity = source_identity(value)
    return repr(value) if identity in (None, repr(value)) else f"{value!r}, that is {identity}"


def _check_names_are_free(name: str, denoisers: Sequence[Denoiser]) -> None:
    wanted = [f"{name}_{suffix}" for suffix in ("corpus", "mix", *(denoiser.name for denoiser in denoisers))]
    taken = sorted({*seqio.TaskRegistry.names(), *seqio.MixtureRegistry.names()} & set(wanted))
    if taken or len(set(wanted)) < len(wanted):
        raise ValueError(f"cannot register {name!r}: the names {taken or wanted} are taken; give another name")
