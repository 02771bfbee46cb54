"""Records of one value that follow each other are one document, in their order, with a token between each two."""

import dataclasses
import itertools
import json
import pickle

import numpy as np
import pytest

import ul2_tasks
from tests.laws.pipelines import digest, plain

SEPARATOR = "[S]"  # no sentinel, and here no mode
LENGTHS = {"inputs": 8, "targets": 512}


def records(count=400):
    generator = np.random.default_rng(0)
    groups = np.sort(generator.integers(0, 100, count)).tolist()
    texts = [" ".join(["text", *map(str, generator.integers(0, 99, size).tolist())]) for size in generator.integers(0, 9, count)]
    return [{"repo": f"repo {group}", "content": text, "weight": group % 3} for group, text in zip(groups, texts)]


def mixture(folder, found, **settings):
    (folder / "files.jsonl").write_text("".join(json.dumps(record) + "\n" for record in found))
    keys = {"text_key": "content", "group_by": "repo", "separator": SEPARATOR, "loss_weight_key": "weight", **settings}
    lm = ul2_tasks.CausalDenoiser(mode=None)
    return ul2_tasks.Mixture(folder.name, str(folder / "files.jsonl"), denoisers=lm, merge_examples=False, **keys)


@pytest.mark.parametrize("is_cached", [False, True])
def test_groups_are_documents(is_cached, tmp_path):
    found, vocabulary = records(), ul2_tasks.default_vocabulary()
    separator, expected = vocabulary.piece_id(SEPARATOR), dict[str, list[int]]()
    for record in found:
        ids = [*vocabulary.encode(record["content"])]
        expected[record["repo"]] = [*expected[record["repo"]], separator, *ids] if record["repo"] in expected else ids
    grouped = mixture(tmp_path, found)
    folders = [tmp_path] if is_cached else []
    if is_cached:
        grouped.cache(tmp_path)
    examples = ul2_tasks.examples(grouped, LENGTHS, shuffle=False, cache_dirs=folders)
    assert [example["targets"].tolist() for example in examples] == [*expected.values()]
    for example, name in zip(examples, expected):
        assert {*example["loss_weight"].tolist()} == {float(int(name.split()[1]) % 3)}
    if is_cached:
        assert [examples.locate(number).origins[0].id for number in range(3)] == [*expected][:3]
        left = ul2_tasks.examples(grouped, LENGTHS, cache_dirs=folders, exclude=[{"id": next(iter(expected))}])
        assert not left.find(0)


def test_what_is_wrong_is_said(tmp_path):
    with pytest.raises(ValueError, match="'repo 0' must be in one place"):
        ul2_tasks.examples(mixture(tmp_path, [*records(40), records(40)[0]]), LENGTHS)
    with pytest.raises(ValueError, match="'repo' must be a text or an integer"):
        ul2_tasks.examples(mixture(tmp_path, [{**records(1)[0], "repo": None}]), LENGTHS)
    with pytest.raises(ValueError, match="separator must be a token with group_by"):
        mixture(tmp_path, records(2), separator=None)
    with pytest.raises(ValueError, match="separator must be no sentinel"):
        ul2_tasks.examples(mixture(tmp_path, records(9), separator="<extra_id_9>"), LENGTHS)


@pytest.mark.torch
def test_all_at_once_resumes_on_another_number_of_hosts(tmp_path):
    """Groups, weights, repeated n-grams, cuts at characters and diffusion, by tokens and in stages."""
    marks = [f"<extra_id_{number}>" for number in range(4)]
    fim = ul2_tasks.FIMDenoiser(tokens=tuple(marks[:3]), borders="characters")
    grouped = dataclasses.replace(
        mixture(tmp_path, records()), denoisers=[*ul2_tasks.T5GEMMA2[:4], fim], repeated_ngrams=ul2_tasks.RepeatedNgrams(2, 2)
    )
    other = ul2_tasks.Mixture("other", denoisers=ul2_tasks.MaskDiffusion(mask=marks[3]), merge_examples=False)
    stages = [ul2_tasks.Stage(0, {grouped: 1}), ul2_tasks.Stage(3, {grouped: 1, other: 2})]
    mix = ul2_tasks.Mix("all", schedule=stages, batch_size=6, steps=20, weigh="tokens")

    def of_hosts(hosts, count, state=None):
        """The digests of the first elements of hosts, from a state on, and what one of them saves then."""
        found = []
        for host in range(hosts):
            dataset = ul2_tasks.UL2IterableDataset(
                ul2_tasks.examples(mix, {"inputs": 128, "targets": 256}, pack=True), rank=host, world_size=hosts
            )
            if state:
                dataset.load_state_dict(pickle.loads(state))
            found.append([digest(plain(row)) for row in itertools.islice(dataset, count)])
            saved = pickle.dumps(dataset.state_dict())
        return [*itertools.chain(*zip(*found))], saved

    whole, _ = of_hosts(1, 60)
    before, saved = of_hosts(2, 9)
    after, _ = of_hosts(3, 14, saved)
    assert len({*whole}) == 60
    steps = [[sorted(run[first : first + 6]) for first in range(0, 60, 6)] for run in (whole, before + after)]
    assert steps[0] == steps[1]
