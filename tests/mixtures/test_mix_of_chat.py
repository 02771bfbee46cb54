"""`Mix` of conversations beside denoisers, and alone: its examples are those of what `mix` registers."""

import collections
import json
import pickle

import numpy as np
import pytest
import seqio

import ul2_tasks
from ul2_tasks import Chat, Mix, Mixture

PAIRS, CHATS = {"inputs": 512, "targets": 512}, {"tokens": 512}
SETTINGS = {"truncation": "drop"}
WHOLE = Chat().renderer.vocabulary


def web(name="mc_q", **arguments) -> Mixture:
    return Mixture(name, vocabulary=WHOLE, **arguments)


def plain(examples) -> list[dict]:
    return [{key: value if isinstance(value, str) else value.tolist() for key, value in one.items()} for one in examples]


@pytest.fixture(scope="module")
def registered():
    """The names of a mixture of texts, and of pairs; "mc_q" sorts between the name of these and the one that is saved."""
    pairs = ul2_tasks.register_chat("mc", **SETTINGS, format="prompt_completion")
    ul2_tasks.register_chat("mc_two", **SETTINGS)
    web_mix = ul2_tasks.register("mc_q", vocabulary=WHOLE)
    return {"pairs": pairs, "web": web_mix}


@pytest.mark.parametrize("pack", [False, True])
@pytest.mark.parametrize("shuffle", [False, True])
def test_the_examples_are_those_of_the_registered_mix(registered, tmp_path, pack, shuffle):
    name = ul2_tasks.mix("mc_both", {registered["web"]: 3, registered["pairs"]: 1})
    mix = Mix("mc_both", {web(): 3, Chat("mc", **SETTINGS): 1})
    settings = {"seed": 11, "shuffle": shuffle, "pack": pack}
    described, of_name = ul2_tasks.examples(mix, PAIRS, **settings), ul2_tasks.examples(name, PAIRS, **settings)
    assert len(described) == len(of_name)
    assert plain(described) == plain(of_name)
    assert plain(described.epoch(2)[:9]) == plain(of_name.epoch(2)[:9])
    assert described.describe() == of_name.describe()
    assert plain(pickle.loads(pickle.dumps(described))[:9]) == plain(described[:9])
    if not pack:
        counts = collections.Counter(one["task"] == registered["pairs"] for one in described)
        assert abs(counts[False] - 3 * counts[True]) < 4, "within a group of four that is begun"
    manifests = mix.cache(tmp_path)
    assert {each: sorted(manifest["totals"])[:1] for each, manifest in manifests.items()}.keys() == {"mc_q", "mc"}
    cached = ul2_tasks.examples(mix, PAIRS, cache_dirs=[tmp_path], **settings)
    assert plain(cached) == plain(described)
    assert cached.describe()["use_cached"]


def test_masks_of_a_registered_mix_are_not_lost_in_silence(tmp_path):
    """A message of weight 0 is not trained on, whether its mask is asked for or not."""
    messages = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "channel": "analysis", "content": "a thought", "weight": 0},
        {"role": "assistant", "channel": "final", "content": "hello"},
    ]
    (tmp_path / "talks.jsonl").write_text(json.dumps({"messages": messages}) + "\n")
    pairs = ul2_tasks.register_chat("mc_weights", str(tmp_path / "talks.jsonl"), format="prompt_completion")
    web_mix = ul2_tasks.register("mc_beside", vocabulary=WHOLE)
    mixture = seqio.get_mixture_or_task(ul2_tasks.mix("mc_weighted", {web_mix: 1, pairs: 1}))
    for asked in ({}, {"passthrough_features": ["loss_mask", "span_id"]}):
        examples = mixture.get_dataset(PAIRS, num_epochs=1, seed=0, **asked).as_numpy_iterator()
        assert {int(np.min(one["loss_mask"])) for one in examples} == {0, 1}
