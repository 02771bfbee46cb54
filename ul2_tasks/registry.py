"""`register`: the corpus, the denoisers' tasks and the mixture of them, under one name."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

import gin
import seqio

from ul2_tasks.corpora import CorpusView, describe_source, embedded_corpus
from ul2_tasks.denoisers import T5GEMMA2, UL2, UL2R, Denoiser, check_denoisers
from ul2_tasks.preprocessors import chunk, corrupt, read_text
from ul2_tasks.providers import DenoisingMixture, DenoisingTask
from ul2_tasks.vocabularies import Mode, default_vocabulary

# The presets by name in gin files: `ul2_tasks.register.denoisers = %ul2_tasks.UL2R`.
for _name, _preset in {"T5GEMMA2": T5GEMMA2, "UL2": UL2, "UL2R": UL2R}.items():
    gin.constant(f"ul2_tasks.{_name}", _preset)


def register(
    name: str = "ul2",
    source: seqio.DataSource | None = None,
    vocabulary: seqio.Vocabulary | None = None,
    denoisers: Sequence[Denoiser] = T5GEMMA2,
    *,
    text_key: str = "text",
    invalid_utf8: str = "fail",
    sentinels: Sequence[int] | str | None = None,
    modes: Mapping[str, Mode] | None = None,
    chunk_tokens: int | None = None,
    merge_examples: bool = True,
    separate_documents: bool = False,
) -> str:
    """Registers `NAME_corpus`, a task `NAME_<denoiser>` for each denoiser, and the mixture `NAME_mix`.

    Called again with the same arguments it changes nothing. No file is opened before a dataset is asked for.

    Args:
        name: starts all names.
        source: where the documents come from; by default the embedded corpus. Its elements are dictionaries or,
            as `seqio.TextLineDataSource` gives them, bare strings.
        vocabulary: tokenizes the text; by default the vocabulary that ships with this package.
        denoisers: a preset, or denoisers of one's own. Their weights are the mixture's rates, in examples.
        text_key: the source's feature that holds the text.
        invalid_utf8: what becomes of a document that is not UTF-8: "fail", or "skip", which a cache counts.
        sentinels: the sentinels' ids in the order of use, or the pieces' common name such as "<unused{}>"; by default
            `<extra_id_0>`, `<extra_id_1>`, .. or the vocabulary's extra ids. See `vocabularies.special_tokens`.
        modes: what each mode is, an id, ids, or a text; by default the piece of the mode's name.
        chunk_tokens: an upper bound for the chunks; by default they fill the budgets.
        merge_examples: whether documents are joined to fill chunks, or kept apart.
        separate_documents: whether an EOS ends each document when they are joined.

    Returns:
        "NAME_mix".

    Raises:
        ValueError: bad denoisers; the name is taken, by another provider or by other arguments, which are named.
    """
    settings = {
        "source": embedded_corpus() if source is None else source,
        "vocabulary": default_vocabulary() if vocabulary is None else vocabulary,
        "denoisers": check_denoisers(denoisers),
        "text_key": text_key,
        "invalid_utf8": invalid_utf8,
        "sentinels": sentinels if sentinels is None or isinstance(sentinels, str) else tuple(sentinels),
        "modes": None if modes is None else dict(modes),
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
    corpus = seqio.TaskRegistry.add(
        f"{name}_corpus",
        source=settings["source"],
        preprocessors=[
            functools.partial(read_text, text_key=text_key, source=describe_source(settings["source"]), invalid_utf8=invalid_utf8),
            functools.partial(seqio.preprocessors.tokenize, copy_pretokenized=False),
            seqio.CacheDatasetPlaceholder(),
        ],
        output_features={"targets": feature},
        shuffle_buffer_size=None if settings["source"].performs_internal_shuffling else seqio.dataset_providers.SHUFFLE_BUFFER_SIZE,
    )
    corpus.modes = settings["modes"]  # for the cache's manifest
    rates = []
    for denoiser in settings["denoisers"]:
        shared = {
            "denoiser": denoiser,
            **{key: settings[key] for key in ("sentinels", "modes", "chunk_tokens", "merge_examples")},
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
    seqio.MixtureRegistry.add(mixture, rates, mixture_cls=DenoisingMixture).settings = settings
    return mixture


def _check_types(settings: Mapping[str, object]) -> None:
    expected = {
        "source": (seqio.DataSource, "a seqio.DataSource, such as seqio.TextLineDataSource({'train': 'corpus/*.txt'})"),
        "vocabulary": (seqio.Vocabulary, "a seqio.Vocabulary, such as seqio.SentencePieceVocabulary('my.model')"),
        "merge_examples": (bool, "True or False"),
        "separate_documents": (bool, "True or False"),
    }
    for key, (kind, description) in expected.items():
        if not isinstance(settings[key], kind):
            raise ValueError(f"{key} is {settings[key]!r}, expected {description}")
    if settings["invalid_utf8"] not in ("fail", "skip"):
        raise ValueError(f"invalid_utf8 is {settings['invalid_utf8']!r}, expected 'fail' or 'skip'")


def _is_registered(mixture: str, settings: Mapping[str, object]) -> bool:
    if mixture not in seqio.MixtureRegistry.names():
        return False
    present = getattr(seqio.MixtureRegistry.get(mixture), "settings", None)
    if present is None:
        raise ValueError(f"{mixture!r} is already registered, and not by ul2_tasks.register; give another name")
    different = [key for key in settings if not _same(present[key], settings[key])]
    if different:
        changes = "; ".join(f"{key} is {present[key]!r}, got {settings[key]!r}" for key in different)
        raise ValueError(f"{mixture!r} is already registered with other arguments: {changes}; give another name")
    return True


def _same(a: object, b: object) -> bool:
    # SeqIO's sources have no ==, but say what they are; an object that does not is only the same as itself.
    return a is b or a == b or repr(a) == repr(b)


def _check_names_are_free(name: str, denoisers: Sequence[Denoiser]) -> None:
    wanted = [f"{name}_{suffix}" for suffix in ("corpus", "mix", *(denoiser.name for denoiser in denoisers))]
    taken = sorted({*seqio.TaskRegistry.names(), *seqio.MixtureRegistry.names()} & set(wanted))
    if taken or len(set(wanted)) < len(wanted):
        raise ValueError(f"cannot register {name!r}: the names {taken or wanted} are taken; give another name")
