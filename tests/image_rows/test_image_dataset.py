"""`ImageTextDataset`: the same rows for any workers, a small state that is exact, and text that becomes no mark."""

import copy
import functools
import hashlib
import itertools
import json
import types

import numpy as np
import pytest

from tests.image_sources import FORM, SIZES, edits, ids, made, png, source
from tests.support import byte_vocabulary
from tests.tokenizers.test_hugging_face_vocabulary import exclamation_first

torch = pytest.importorskip("torch", reason="the extra torch is not installed")

from ul2_tasks import ImageTextDataset, open_vocabulary  # noqa: E402
from ul2_tasks.image_rows import dataset as dataset_module  # noqa: E402
from ul2_tasks.image_rows.dropout import Dropout  # noqa: E402
from ul2_tasks.image_rows.recipe import Source  # noqa: E402
from ul2_tasks.image_rows.records import open_records  # noqa: E402
from ul2_tasks.image_rows.special_tokens import SpecialTokenConfig  # noqa: E402
from ul2_tasks.images.elements import Text  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore:This DataLoader will create")]
BUDGETS = {"tokens": 150, "vit": 100, "vae": 120}
BAD = {"image": b"none", "captions": "a"}


def dataset(*sources, **settings) -> ImageTextDataset:
    return ImageTextDataset(
        sources or [source([*made(20), BAD, *made(30)])],
        settings.pop("form", FORM),
        settings.pop("vocabulary", ids),
        settings.pop("budgets", BUDGETS),
        **{"pool": 12, "num_epochs": 1, "on_error": "skip", "rank": 0, "world_size": 1, **settings},
    )


def digest(row: dict) -> str:
    parts = [f"{key} {value.numpy().tobytes() if isinstance(value, torch.Tensor) else value}" for key, value in sorted(row.items())]
    return hashlib.sha256("".join(parts).encode()).hexdigest()


def digests(rows) -> list[str]:
    return [digest(row) for row in rows]


def loader(data: ImageTextDataset, workers: int):
    return torch.utils.data.DataLoader(data, batch_size=None, num_workers=workers)


def test_iterators_have_places_of_their_own_and_the_state_is_the_last_ones():
    data = dataset()
    whole, first = digests(dataset()), iter(data)
    began = [digest(next(first)) for _ in range(3)]
    second = iter(data)
    began += [digest(next(first)) for _ in range(2)]
    assert data.state_dict()["number"] == 0
    assert digest(next(second)) == whole[0]
    state = data.state_dict()
    assert [*began, *digests(first)] == whole
    assert data.state_dict() == state
    assert digests(second) == whole[1:]
    data.load_state_dict(state)
    assert digests(data) == whole[1:]


@pytest.mark.parametrize("epochs", [1, None])
def test_a_state_of_any_numbers_of_processes_and_workers_goes_on_with_any_others(epochs, monkeypatch):
    """Exactly: each row of an epoch, or of the first reads without an end, once, wherever runs were interrupted."""
    monkeypatch.setattr(dataset_module, "_RUN", 4)
    drawn = np.random.default_rng(0)
    for epoch in (0, 1, 0, 0, 2, 0) if epochs else (0, 1):
        seen, state = [], None
        for _ in range(4):
            world_size, workers, given = (int(drawn.integers(*limits)) for limits in ((1, 4), (1, 4), (0, 9)))
            states = []
            for rank in range(world_size):
                data = dataset(source(made(90)), num_epochs=epochs, rank=rank, world_size=world_size, pool=7)
                if state:
                    data.load_state_dict(json.loads(json.dumps(state)))
                else:
                    data.set_epoch(epoch)
                states.append(data.state_after(given, workers))
                for worker in range(workers):  # a DataLoader has them in turn
                    info = types.SimpleNamespace(id=worker, num_workers=workers, seed=worker)
                    monkeypatch.setattr(torch.utils.data, "get_worker_info", lambda info=info: info)
                    seen += digests(itertools.islice(copy.deepcopy(data), given // workers + (worker < given % workers)))
                monkeypatch.setattr(torch.utils.data, "get_worker_info", lambda: None)
            assert all(one == states[0] for one in states)
            state = states[0]
        whole = dataset(source(made(90)), num_epochs=epochs, pool=7)
        whole.set_epoch(epoch)
        again = dataset(source(made(90)), num_epochs=epochs, pool=7)
        again.load_state_dict(state)
        rest = digests(again) if epochs else []
        expected = digests(whole if epochs else itertools.islice(whole, 200))
        assert len(set(seen)) == len(seen) == state["number"]
        assert sorted(seen + rest) == sorted(expected) if epochs else {*seen} <= {*expected}


def test_rows_of_files_are_those_of_any_folder_also_shuffled_in_blocks(tmp_path):
    lines = [json.dumps({"image": "a.png", "captions": [f"caption {line}", "other"]}) for line in range(600)]
    found = []
    for folder in ("one", "two/three"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "a.jsonl").write_text("\n".join(lines))
        (tmp_path / folder / "a.png").write_bytes(png(20, 20))
        of_file = functools.partial(
            dataset, Source(open_records(tmp_path / folder), "t2i_pretrain", SIZES), pool=100, shuffle_blocks=2
        )
        rows = list(of_file())
        found.append(
            digests(row | {"samples": [name.replace(f"{tmp_path}/{folder}", "") for name in row["samples"]]} for row in rows)
        )
    assert found[0] == found[1]
    assert sorted(name for row in rows for name in row["samples"]) == sorted(
        f"{tmp_path}/two/three/a.jsonl, line {line + 1}, epoch 0" for line in range(600)
    )


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loop_over_epochs_has_other_rows_each_time(workers):
    """Workers that persist are told, too. The first has those without a call."""
    data = dataset(source(made(20)), source(edits(10), "unified_edit", "edits"), num_epochs=1)
    first = sorted(digests(data))
    settings = {"num_workers": workers, "persistent_workers": workers > 0}
    rows, seen = torch.utils.data.DataLoader(data, batch_size=None, **settings), []
    for epoch in (0, 1, 2, 1, 0):
        data.set_epoch(epoch)
        seen.append(list(rows))
    names = [{name for row in each for name in row["samples"]} for each in seen]
    for epoch, of_epoch in enumerate(names[:3]):
        assert {name.rpartition(" ")[2] for name in of_epoch if name.startswith("made")} == {str(epoch)}
        assert not of_epoch & names[(epoch + 1) % 3]
    of_each = [sorted(digests(each)) for each in seen]
    assert of_each[0] == of_each[4] == first
    assert of_each[1] == of_each[3]


def test_a_state_has_its_epoch():
    data = dataset()
    assert data.state_dict()["epoch"] == 0
    data.set_epoch(2)
    assert data.state_dict()["epoch"] == 2
    rows, states = [], []
    for row in data:
        rows.append(digest(row))
        states.append(json.loads(json.dumps(data.state_dict())))
    assert rows != digests(dataset())
    again = dataset()
    again.load_state_dict(states[3])
    assert digests(again) == rows[4:]
    again.load_state_dict(states[3])
    again.set_epoch(3)
    with pytest.raises(ValueError, match="epoch"):
        iter(again)
    again.set_epoch(0)
    assert digests(again) == digests(dataset())


@pytest.mark.parametrize(
    ("change", "argument"),
    [
        *(({name: value}, name) for name, value in (("epoch", -1), ("number", "1"), ("start", -1), ("readers", 0))),
        ({"version": 7}, "version"),
        ({"pipeline": None}, "pipeline"),
    ],
)
def test_what_is_no_state_is_refused(change, argument):
    data = dataset()
    with pytest.raises(ValueError, match=argument):
        data.load_state_dict({**data.state_dict(), **change})


@pytest.mark.parametrize("epochs", [1, None])
def test_an_epoch_of_bad_records_or_of_which_all_is_dropped_ends_with_an_error(epochs):
    with pytest.raises(ValueError, match=r"in a row were skipped, by cause \{'sample': 30\}"):
        list(dataset(source([BAD] * 30), num_epochs=epochs))
    words = source(made(30), lambda record, draws: [Text("a")], dropout=Dropout(text=1))
    with pytest.raises(ValueError, match="sources"):
        list(dataset(words, num_epochs=epochs))


def test_no_text_becomes_a_mark_and_ids_are_the_tokenizers_own(tmp_path):
    """Of a tokenizer whose id 0 is "!", so that SeqIO has all ids one higher, and whose marks are tokens that text can spell."""
    tokenizer = exclamation_first()
    tokenizer.add_tokens(["<start>", "<end>", "<image>"])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text('{"eos_token": "<|endoftext|>"}')
    marks = [tokenizer.token_to_id(name) for name in ("<think>", "<start>", "<end>", "<image>")]
    settings = {"budgets": BUDGETS, "num_epochs": 1}
    written = source([{"image": png(9, 9), "captions": "so! <think> and <end>"}], dropout=Dropout(text=0))
    [row] = ImageTextDataset(written, SpecialTokenConfig(*marks, 8, 8), open_vocabulary(tmp_path), **settings)
    bos, *text, eos, start, end = row["packed_text_ids"].tolist()
    assert [bos, eos, start, end] == marks
    assert not {*text} & {*marks}
    assert tokenizer.decode(text, skip_special_tokens=False) == "so! <think> and <end>"
    with pytest.raises(ValueError, match=r"^made, record 0: a text .* special_tokens"):
        list(ImageTextDataset(written, SpecialTokenConfig(*marks, 8, 8), lambda text: tokenizer.encode(text).ids, **settings))


def test_what_is_skipped_is_counted_and_written_once_by_whoever_reads_and_resumes(tmp_path):
    """Of records that are wrong by their headers, by their pixels, and of a pool without a row."""
    cut = {"image": png(40, 40)[:-300], "captions": "its header is right"}
    records = [*made(20), BAD, cut, *made(30), *[BAD] * 12]
    names = sorted(["made, record 20", "made, record 21, epoch 0", *(f"made, record {number}" for number in range(52, 64))])

    def of(**settings):
        return dataset(source(records), skipped_file=file, pool=6, seed=1, **settings)

    file = tmp_path / "skipped.jsonl"
    for readers in (1, 3):
        counts = [data.skipped for data in (of(rank=rank, world_size=readers) for rank in range(readers)) if list(data)]
        assert sum(sum(each.values()) for each in counts) == len(names)
        assert sorted(json.loads(line)["record"] for line in file.read_text().splitlines()) == names
        file.unlink()
    data = of()
    rows = iter(data)
    while not file.exists():
        next(rows)
    again = of(rank=0, world_size=1)
    again.load_state_dict(data.state_dict())
    assert list(again)
    assert sorted(json.loads(line)["record"] for line in file.read_text().splitlines()) == names
    assert list(loader(data, 2))
    for ask in (lambda: data.skipped, lambda: data.skipped_by_source, data.state_dict):
        with pytest.raises(ValueError, match="workers"):
            ask()


@pytest.mark.parametrize(
    ("settings", "argument"),
    [
        *(({"rank": rank}, "rank") for rank in (1, None)),
        ({"shuffle_blocks": -1}, "shuffle_blocks"),
        ({"num_epochs": 0}, "epochs"),
        ({"skipped_file": "a", "on_error": "raise"}, "skipped_file"),
        ({"vocabulary": "my.model"}, "vocabulary"),
        ({"vocabulary": byte_vocabulary()[0], "form": SpecialTokenConfig(1, 2, 3, 5000, 8, 8)}, "eoi_id of special_tokens"),
        ({"budgets": {"tokens": 1}}, "budgets"),
    ],
)
def test_arguments_that_cannot_be_are_refused(settings, argument):
    with pytest.raises(ValueError, match=argument):
        dataset(**settings)


@pytest.mark.parametrize("epoch", [-1, 1.5, None])
def test_an_epoch_that_cannot_be_is_refused(epoch):
    with pytest.raises(ValueError, match="epoch"):
        dataset().set_epoch(epoch)


def test_a_tokenizer_without_eos_is_told_when_the_dataset_is_made_and_not_of_a_record(tmp_path):
    exclamation_first().save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(ValueError, match=r"^\S+/tokenizer\.json: .* eos"):
        dataset(vocabulary=open_vocabulary(tmp_path))
