"""What goes along with a dataset to a process that is spawned, where it is registered again."""

import functools
import json
import pathlib
import pickle
from collections.abc import Callable

import datasets
import new_process
import pytest
import seqio

import ul2_tasks
from ul2_tasks.mixtures.description import Description
from ul2_tasks.tasks.carried import carried

LENGTHS = {"inputs": 64, "targets": 64}
TEXTS = [f"document {number} of this corpus, with some words more" for number in range(60)]
IMAGE = ul2_tasks.ImageTokens(boi_id=4000, image_id=4001, eoi_id=4002, image_seq_length=4)
RECORDS = [{"texts": ["A cat:", None], "images": [None, b".."]}, {"texts": ["A dog:", None], "images": [None, b".,"]}]


def register() -> dict[str, str]:
    """The names of what can be carried, by what they are."""
    held = ul2_tasks.register("held", datasets.Dataset.from_dict({"text": TEXTS}))
    memory = ul2_tasks.register("memory", ul2_tasks.MemoryDataSource(lambda: TEXTS[::-1], validation=0.2), denoisers="UL2")
    shared = ul2_tasks.register("shared", corpus=held, denoisers="UL2R")
    tempered = ul2_tasks.mix("tempered", {held: 9, memory: 1}, temperature=2)
    stages = [ul2_tasks.Stage(0, {held: 1}), ul2_tasks.Stage(10, {held: 1, memory: 3}, ramp_steps=4)]
    return {
        "a dataset": held,
        "a task": "held_r1",
        "a lambda's documents": memory,
        "a shared corpus": shared,
        "a mixture": tempered,
        "a mixture of mixtures": ul2_tasks.mix("nested", {tempered: 1, shared: 2}),
        "a schedule": ul2_tasks.mix("scheduled", schedule=stages, batch_size=8, steps=20),
        "conversations": ul2_tasks.register_chat("talks"),
        "prompts": ul2_tasks.register_chat("talks", format="prompt_completion"),
        "images": ul2_tasks.register_image_text("seen", RECORDS, image_tokens=IMAGE),
    }


def in_words(name: str) -> str:
    """What is registered by a name, and all that it mixes."""
    provider = seqio.get_mixture_or_task(name)
    configuration = getattr(provider, "configuration", None)
    words = configuration.fingerprint() if isinstance(configuration, Description) else repr(configuration)
    inner = [in_words(task.name) for task in provider.tasks] if isinstance(provider, seqio.Mixture) else []
    return "; ".join([f"{name} {words}", *inner])


def register_again(pickled: str, to: str) -> None:
    told = {}
    for what, (name, found) in pickle.loads(pathlib.Path(pickled).read_bytes()).items():
        before = name in {*seqio.MixtureRegistry.names(), *seqio.TaskRegistry.names()}
        for _ in range(2):
            found.register()
        told[what] = [before, in_words(name)]
    told["cache_dirs"] = list(seqio.get_global_cache_dirs())
    told["element"] = element()
    pathlib.Path(to).write_text(json.dumps(told))


def element() -> list:
    dataset = seqio.get_mixture_or_task("nested_mix").get_dataset(LENGTHS, seed=3, shuffle=True, num_epochs=None)
    return [example["inputs"].tolist() for example in dataset.take(20).as_numpy_iterator()]


@functools.cache
def names() -> dict[str, str]:
    return register()


@pytest.fixture(autouse=True, scope="module")
def _registered_in_this_module(registries_of_a_file):
    """A worker may run tests of this file, of another one, and of this file again, each time with other registries."""
    names.cache_clear()


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    folder, before = tmp_path_factory.mktemp("carried"), [*seqio.get_global_cache_dirs()]
    seqio.add_global_cache_dirs([str(folder)])
    try:
        found = {what: (name, carried(name)) for what, name in reversed(names().items())}
    finally:
        seqio.set_global_cache_dirs(before)
    (folder / "pickled").write_bytes(pickle.dumps(found))
    code = f"import sys; sys.path[:0] = {new_process.FOLDERS}; import test_carried as t; t.register_again(*sys.argv[1:])"
    new_process.run("-c", code, folder / "pickled", folder / "told", check=True)
    return json.loads((folder / "told").read_text()), str(folder)


def test_another_process_registers_the_same(told):
    for what, name in names().items():
        assert told[0][what][1] == in_words(name), what
    assert not told[0]["images"][0]
    assert told[0]["element"] == element()


def test_folders_of_caches_go_along(told):
    assert told[1] in told[0]["cache_dirs"], "beside those that other tests have added"


def registries(monkeypatch) -> Callable[[], None]:
    """Makes copies of the registries for a test. What is returned forgets what is registered from now on."""
    names()
    both = seqio.TaskRegistry, seqio.MixtureRegistry
    before = [dict(registry._REGISTRY) for registry in both]

    def fill():
        for registry, held in zip(both, before):
            monkeypatch.setattr(registry, "_REGISTRY", dict(held))

    fill()
    return fill


def local_lambda() -> seqio.DataSource:
    return seqio.FunctionDataSource(lambda split, shuffle_files=False, seed=None: None, splits=["train"])


@pytest.mark.parametrize("name", ["of_lambda_mix", "of_lambda_r1", "beside_lambda_mix"])
def test_a_lambda_is_named_where_it_would_be_needed(monkeypatch, name):
    forget = registries(monkeypatch)
    of_lambda = ul2_tasks.register("of_lambda", local_lambda())
    ul2_tasks.mix("beside_lambda", {of_lambda: 1, names()["a dataset"]: 1})
    found = pickle.loads(pickle.dumps(carried(name)))
    forget()
    with pytest.raises(ValueError, match=r"of_lambda_mix.*source"):
        found.register()


def test_what_cannot_be_read_there_is_named(monkeypatch):
    """As a function of a notebook, which the process does not have."""
    forget = registries(monkeypatch)
    ul2_tasks.register("of_notebook", ul2_tasks.MemoryDataSource(notebook_texts, validation=0))
    found = carried("of_notebook_mix")
    forget()
    monkeypatch.delitem(globals(), "notebook_texts")
    with pytest.raises(ValueError, match=r"of_notebook_mix.*notebook_texts"):
        found.register()


def notebook_texts() -> list[str]:
    return TEXTS
