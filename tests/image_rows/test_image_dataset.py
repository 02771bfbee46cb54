"""`ImageTextDataset`: the same rows for any workers, a small state that is exact, and text that becomes no mark."""

import copy
import functools
import hashlib
import io
import itertools
import json
import pickle
import time
import types

import new_process
import numpy as np
import pytest
from image_sources import FORM, SIZES, edits, ids, made, png, source
from PIL import Image
from support import byte_vocabulary
from test_hugging_face_vocabulary import exclamation_first

torch = pytest.importorskip("torch", reason="the extra torch is not installed")

from ul2_tasks import ImageTextDataset, open_vocabulary  # noqa: E402
from ul2_tasks.image_rows import dataset as dataset_module  # noqa: E402
from ul2_tasks.image_rows.dropout import Dropout  # noqa: E402
from ul2_tasks.image_rows.recipe import Source  # noqa: E402
from ul2_tasks.image_rows.special_tokens import SpecialTokenConfig  # noqa: E402
from ul2_tasks.images.elements import Text  # noqa: E402
from ul2_tasks.sources.image_records import open_records  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore:This DataLoader will create")]
BUDGETS = {"tokens": 150, "vit": 100, "vae": 120}
BAD = {"image": b"none", "captions": "a"}
TOTALS = {"ce_tokens": int, "ce_weight": float, "mse_tokens": int, "samples": list}


def dataset(*sources, **settings) -> ImageTextDataset:
    return ImageTextDataset(
        sources or [source([*made(20), BAD, *made(30)])],
        FORM,
        settings.pop("vocabulary", ids),
        BUDGETS,
        **{"pool": 12, "num_epochs": 1, "on_error": "skip", "rank": 0, "world_size": 1, **settings},
    )


def digest(row: dict) -> str:
    parts = [f"{key} {value.numpy().tobytes() if isinstance(value, torch.Tensor) else value}" for key, value in sorted(row.items())]
    return hashlib.sha256("".join(parts).encode()).hexdigest()


def digests(rows) -> list[str]:
    return [digest(row) for row in rows]


def loader(data: ImageTextDataset, workers: int):
    return torch.utils.data.DataLoader(data, batch_size=None, num_workers=workers)


def test_any_processes_and_workers_have_the_same_rows_of_an_epoch():
    """Also more workers than there are pools, of one file."""
    alone = digests(dataset())
    assert len(set(alone)) == len(alone) > 8
    shared = [digests(dataset(rank=rank, world_size=3)) for rank in range(3)]
    assert all(shared)
    assert sorted(itertools.chain(*shared)) == sorted(alone)
    assert sorted(digests(loader(dataset(), 6))) == sorted(alone)


def test_without_an_end_every_worker_has_rows():
    rows = loader(dataset(source(made(5)), num_epochs=None, pool=4), 3)
    names = [row["samples"] for row in itertools.islice(rows, 12)]
    assert {name.split(",")[1] for row in names for name in row} == {f" record {number}" for number in range(5)}


def test_it_resumes_after_each_row_of_an_epoch():
    data = dataset()
    rows, states = [], [data.state_dict()]
    for row in data:
        assert {name: type(value) for name, value in row.items() if not isinstance(value, torch.Tensor)} == TOTALS
        rows.append(digest(row))
        states.append(json.loads(json.dumps(data.state_dict())))
    assert max(len(json.dumps(state)) for state in states) < 2000
    assert [state.get("number", 0) for state in states] == [*range(len(rows) + 1)]
    assert data.skipped == {"sample": 1}
    for number, state in enumerate(states):
        again = dataset()
        again.load_state_dict(state)
        assert again.state_dict() == state
        assert digests(again) == rows[number:]


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


@pytest.mark.parametrize("workers", [0, 2])
def test_a_stateful_data_loader_resumes_it(workers):
    stateful = pytest.importorskip("torchdata.stateful_dataloader").StatefulDataLoader
    whole = digests(stateful(dataset(), batch_size=None, num_workers=workers))
    begun = stateful(dataset(), batch_size=None, num_workers=workers)
    rows = iter(begun)
    given = [digest(next(rows)) for _ in range(5)]
    state = pickle.loads(pickle.dumps(begun.state_dict()))
    again = stateful(dataset(), batch_size=None, num_workers=workers)
    again.load_state_dict(state)
    assert given + digests(again) == whole


def test_a_sorted_corpus_is_mixed_by_shuffling_blocks():
    """Of four kinds of records one after the other: a row has one kind, or several."""
    records = [{"text": str(number // 200)} for number in range(800)]
    words = [source(records, lambda record, draws: [Text(record["text"] * 9, droppable=False)])]

    def kinds(shuffle_blocks):
        rows = dataset(*words, pool=64, shuffle_blocks=shuffle_blocks)
        found = [{int(name.split()[2].strip(",")) // 200 for name in row["samples"]} for row in rows]
        assert sum(len(row["samples"]) for row in dataset(*words, pool=64, shuffle_blocks=shuffle_blocks)) == 800
        return np.mean([len(each) for each in found])

    assert kinds(0) < 1.5
    assert kinds(13) > 3.5


def test_rows_of_files_are_those_of_any_folder_and_of_any_shards_also_shuffled_in_blocks(tmp_path):
    lines = [json.dumps({"image": "a.png", "captions": [f"caption {line}", "other"]}) for line in range(600)]
    found = []
    for folder in ("one", "two/three"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "a.jsonl").write_text("\n".join(lines))
        (tmp_path / folder / "a.png").write_bytes(png(20, 20))
        of_file = functools.partial(
            dataset, Source(open_records(tmp_path / folder), "t2i_pretrain", SIZES), pool=100, shuffle_blocks=2
        )
        shares = [list(of_file(rank=rank, world_size=2)) for rank in (0, 1)]
        rows = list(of_file())
        assert sorted(digests(itertools.chain(*shares))) == sorted(digests(rows))
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
    for chosen in (None, 2):
        again = dataset()
        again.load_state_dict(states[3])
        if chosen:
            again.set_epoch(chosen)
        assert digests(again) == rows[4:]
    again.load_state_dict(states[3])
    again.set_epoch(3)
    with pytest.raises(
        ValueError, match=r"^epoch must be that of the state that was loaded, 2, got 3\. Call set_epoch\(2\) before"
    ):
        iter(again)
    again.set_epoch(0)
    assert digests(again) == digests(dataset())
    endless = dataset(num_epochs=None)
    endless.set_epoch(1)
    assert {name.rpartition(" ")[2] for row in itertools.islice(endless, 5) for name in row["samples"]} == {"1"}


RUN = (
    f"import sys; sys.path[:0] = {new_process.FOLDERS}"
    + """
import json
from test_image_dataset import dataset, digest
data = dataset(num_epochs=None)
path = sys.argv[1]
try:
    lines = open(path).read().splitlines()
except FileNotFoundError:
    lines = []
if lines:
    data.load_state_dict(json.loads(lines[-1])["state"])
with open(path, "a") as file:
    for row in data:
        file.write(json.dumps({"row": digest(row), "state": data.state_dict()}) + chr(10))
        file.flush()
        if len(sys.argv) > 2 and data.state_dict()["number"] > int(sys.argv[2]) + 9:
            break
"""
)


def test_it_goes_on_after_it_was_killed(tmp_path):
    path = tmp_path / "rows.jsonl"
    program = new_process.Program(["-c", RUN, path])
    while not path.exists() or path.read_text().count("\n") < 7:
        assert program.poll() is None, "it ended before it was killed"
        time.sleep(0.01)
    program.kill()
    program.wait()
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(line for line in lines if line.endswith("\n")))
    last = json.loads(path.read_text().splitlines()[-1])["state"]["number"]
    new_process.run("-c", RUN, path, last, check=True)
    found = [json.loads(line)["row"] for line in path.read_text().splitlines()]
    assert len(found) > 7
    assert found == digests(itertools.islice(dataset(num_epochs=None), len(found)))


@pytest.mark.parametrize(
    ("change", "argument"),
    [
        ({"seed": 1}, "seed was '0' and is '1'"),
        ({"pool": 13}, "pool was '12' and is '13'"),
        ({"shuffle_blocks": 2}, "shuffle_blocks was '0' and is '2'"),
        ({"vocabulary": lambda text: [9]}, "text was "),
    ],
)
def test_a_state_of_other_settings_is_refused_with_both(change, argument):
    data = dataset(**change)
    data.load_state_dict(dataset().state_dict())
    with pytest.raises(ValueError, match=f"the state must be of the same dataset, got another: .*{argument}"):
        iter(data)


@pytest.mark.parametrize(
    ("change", "argument"),
    [({"version": 7}, "version"), ({"settings": None}, "settings")]
    + [({name: value}, name) for name, value in (("epoch", -1), ("number", "1"), ("start", -1), ("readers", 0))],
)
def test_what_is_no_state_is_refused(change, argument):
    data = dataset()
    with pytest.raises(ValueError, match=argument):
        data.load_state_dict({**data.state_dict(), **change})
    with pytest.raises(ValueError, match="state"):
        data.load_state_dict(None)


def test_a_state_is_of_the_files_and_of_the_schema_that_it_was_taken_of(tmp_path):
    file = tmp_path / "a.jsonl"
    file.write_text('{"a": 1}\n' * 40)

    def of(version):
        def schema(record, draws):
            return [Text("one", learned=True)]

        schema.version = version
        return dataset(Source(open_records(file), schema, SIZES))

    data = of(1)
    next(iter(data))
    state = json.loads(json.dumps(data.state_dict()))
    same = of(1)
    same.load_state_dict(state)
    assert next(iter(same))
    other = of(2)
    other.load_state_dict(state)
    with pytest.raises(ValueError, match="the state must be of the same dataset, got another: code was"):
        iter(other)
    file.write_text('{"a": 2}\n' * 40)
    other = of(1)
    other.load_state_dict(state)
    with pytest.raises(ValueError, match="the state must be of the same dataset, got another: files was"):
        iter(other)


def test_an_epoch_of_bad_records_ends_with_an_error():
    for settings in ({"num_epochs": 1}, {"num_epochs": None}):
        with pytest.raises(ValueError, match=r"in a row were skipped, by cause \{'sample': 30\}"):
            list(dataset(source([BAD] * 30), **settings))


def test_an_epoch_of_which_all_is_dropped_ends_with_an_error():
    for epochs in (1, None):
        words = source(made(30), lambda record, draws: [Text("a")], dropout=Dropout(text=1))
        with pytest.raises(
            ValueError, match=r"^sources must give at least one row, got none of \d pools; skipped, by cause: \{\}\.$"
        ):
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
    with pytest.raises(
        ValueError, match=r"^made, record 0: a text must not have the ids of special_tokens, got \d+\. Pass a vocabulary"
    ):
        list(ImageTextDataset(written, SpecialTokenConfig(*marks, 8, 8), lambda text: tokenizer.encode(text).ids, **settings))


def test_it_can_be_sent_to_a_worker_that_is_spawned():
    vocabulary, _ = byte_vocabulary()
    data = dataset(source([*made(20)]), vocabulary=vocabulary)
    expected = digests(data)
    assert digests(pickle.loads(pickle.dumps(data))) == expected


@pytest.mark.parametrize(
    ("settings", "argument"),
    [
        *(({name: value}, "rank") for name, value in (("rank", 1), ("rank", None))),
        ({"shuffle_blocks": -1}, "shuffle_blocks"),
        ({"num_epochs": 0}, "epochs"),
        ({"skipped_file": "a", "on_error": "raise"}, "skipped_file"),
        ({"vocabulary": "my.model"}, "vocabulary"),
    ],
)
def test_arguments_that_cannot_be_are_refused(settings, argument):
    with pytest.raises(ValueError, match=argument):
        dataset(**settings)


def test_budgets_and_epochs_that_cannot_be_are_refused():
    with pytest.raises(ValueError, match="budgets"):
        ImageTextDataset(source(made()), FORM, ids, {"tokens": 1})
    for epoch in (-1, 1.5, None):
        with pytest.raises(ValueError, match="epoch"):
            dataset().set_epoch(epoch)


def ramp(first: int) -> bytes:
    """An image of 24 x 24 pixels, which is not resized: 4 x 4 patches for the ViT, 3 x 3 of latents."""
    file = io.BytesIO()
    Image.fromarray((first + np.arange(24 * 24 * 3).reshape(24, 24, 3) % 200).astype(np.uint8)).save(file, "PNG")
    return file.getvalue()


def test_the_golden_row():
    """Three edits, C V T N; of the second the clean image is there, the ViT's is dropped: it leaves its position."""
    records = [{"image_list": [ramp(n), ramp(n + 1)], "instruction_list": [[f"do {n}", f"{n}!"]]} for n in range(3)]
    data = ImageTextDataset(source(records, "unified_edit"), FORM, ids, BUDGETS, num_epochs=1, seed=4, pool=3)
    [row] = data
    assert row["samples"] == ["made, record 0, epoch 0", "made, record 1, epoch 0", "made, record 2, epoch 0"]
    assert row["sample_lens"].tolist() == [11 + 18 + 4 + 11, 11 + 6 + 11, 11 + 18 + 6 + 11]
    assert row["split_lens"].tolist() == [11, 18, 4, 11, 11, 6, 11, 11, 18, 6, 11]
    assert row["attn_modes"].tolist() == [1, 1, 0, 2, 1, 0, 2, 1, 1, 0, 2]
    first = [0] * 11 + [1] * 18 + [2, 3, 4, 5] + [6] * 11
    second = [0] * 11 + [2, 3, 4, 5, 6, 7] + [8] * 11
    assert row["packed_position_ids"][:72].tolist() == first + second
    texts = [[1, *ids(text), 2] for text in ("0!", "do 1", "do 2")]
    shown = [3, 4]
    expected = shown * 2 + texts[0] + shown * 2 + texts[1] + shown * 3 + texts[2] + shown
    assert row["packed_text_ids"].tolist() == expected
    clean = -float("inf")
    timesteps = [clean, 0.08082058, clean, -1.81730294, clean, -0.17581224]
    assert row["packed_timesteps"].reshape(6, 9).tolist() == [pytest.approx([time] * 9) for time in timesteps]
    assert row["packed_latent_position_ids"].reshape(6, 9).tolist() == [[0, 1, 2, 8, 9, 10, 16, 17, 18]] * 6
    assert row["packed_vae_patches"][::9, 0].tolist() == [0, 1, 1, 2, 2, 3]
    assert row["packed_vit_patches"][::16, 0].tolist() == [0, 2]
    assert (row["packed_vae_patches"].sum(), row["packed_vit_patches"].sum()) == (1_019_520, 338_112)
    assert (row["ce_tokens"], row["mse_tokens"], row["mse_loss_indexes"].tolist()[::9]) == (0, 27, [34, 62, 108])


def test_what_deals_rows_out_gets_all_of_them(monkeypatch):
    """In the second of two processes; the state of such a one says so, too."""
    dealer = pytest.importorskip("accelerate.data_loader", reason="the extra torch is not installed").IterableDatasetShard
    whole = digests(dataset())
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    auto = {"rank": None, "world_size": None}
    data = [dataset(**auto) for _ in range(2)]
    shares = [digests(dealer(of_one, 1, True, 2, rank)) for rank, of_one in enumerate(data)]
    assert sorted(itertools.chain(*shares)) == sorted(whole[: 2 * len(shares[0])])
    assert data[0].state_dict()["readers"] == 1
    assert len(digests(dataset(**auto))) < len(whole)
    with pytest.raises(ValueError, match=r"rank and world_size must be 0 and 1 with.*its processes again, got 1 and 2"):
        next(iter(dealer(dataset(rank=1, world_size=2), 1, True, 2, 1)))


def test_ids_that_the_tokenizer_does_not_have_are_refused():
    vocabulary, _ = byte_vocabulary()
    special_tokens = SpecialTokenConfig(1, 2, 3, vocabulary.vocab_size, 8, 8)
    with pytest.raises(
        ValueError,
        match=rf"^eoi_id of special_tokens must be below {(ids := special_tokens.eoi_id)}, the size of the vocabulary, got {ids}",
    ):
        ImageTextDataset(source(made()), special_tokens, vocabulary, BUDGETS)
    with pytest.raises(ValueError, match=r"^made, record \d+: vocabulary must return ids from 0, got -1\.$"):
        list(dataset(source(made()), vocabulary=lambda text: [-1], on_error="raise"))


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


def test_a_tokenizer_without_eos_is_told_when_the_dataset_is_made_and_not_of_a_record(tmp_path):
    exclamation_first().save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(ValueError, match=r"^\S+/tokenizer\.json: no .* there names an EOS\. Pass eos"):
        ImageTextDataset(source(made()), FORM, open_vocabulary(tmp_path), BUDGETS)
