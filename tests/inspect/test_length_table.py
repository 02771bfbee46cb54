"""`ul2 lengths`: what lengths make of documents of any kind is what examples of these lengths are."""

import dataclasses

import pytest

import ul2_tasks
from tests.images.image_support import image, registered
from ul2_tasks import T5GEMMA2, Chat, Mix, Mixture
from ul2_tasks.inspect.lengths import lengths_of

PAIRS = {"inputs": 256, "targets": 64}
LONGER = [[f"Number {n}: ", image(n), "and on " * (n % 7 + 1), image(1)] for n in range(60)]


@pytest.mark.parametrize("lengths", [{"tokens": 128}, PAIRS], ids=["chat", "prompt_completion"])
def test_conversations_are_those_of_their_examples_and_packed_sequences(lengths):
    chat = Chat("lengths_dropped", truncation="drop")
    (found,) = lengths_of(chat, lengths).corpora
    assert [way.name for way in found.ways] == ["now", "half", "double"]
    for way in found.ways:
        examples = ul2_tasks.examples(chat, way.sequence_length)
        packed = ul2_tasks.examples(chat, way.sequence_length, pack=True)
        assert way.examples == len(examples)
        for key, length in way.sequence_length.items():
            total = sum(len(example[key]) for example in examples)
            assert way.tokens[key] == pytest.approx(total / len(examples))
            assert way.padded[key] == pytest.approx(total / len(examples) / length)
            assert way.packed[key] == pytest.approx(total / (len(packed) * length))
    now, half, double = (way.left_out.get("too long", 0) for way in found.ways)
    assert half > now > double
    (now,) = lengths_of(chat, dict.fromkeys(lengths)).corpora[0].ways
    assert (now.packed, now.left_out.get("too long", 0)) == ({}, 0)


def test_conversations_that_lose_turns_and_those_that_raise_are_counted():
    (found,) = lengths_of(Chat("lengths_oldest", truncation="drop_oldest_turns"), {"inputs": 128, "targets": 64}).corpora
    assert found.ways[0].cut
    raising = lengths_of(Chat("lengths_raise"), {"tokens": 128})
    assert raising.corpora[0].ways[0].left_out["too long"]
    (problem,) = raising.problems
    holds = raising.corpora[0].ninety_nine["tokens"]
    assert str(holds) in problem
    assert lengths_of(Chat("lengths_raise"), {"tokens": holds * 2}).problems == []


def test_images_and_texts_are_those_of_their_examples():
    name = registered("lengths_seen", *LONGER, denoisers=T5GEMMA2[::4], on_unusable="skip")
    text, seen = Mixture("lengths_texts", denoisers=T5GEMMA2[3:]), ul2_tasks.description_of(name)
    for description, lengths in ((text, PAIRS), (seen, {"inputs": 64, "targets": 40})):
        found = lengths_of(description, lengths)
        assert found.problems == []
        for way in found.corpora[0].ways:
            if way.problems:
                assert (description, way.name) == (seen, "half")
                continue
            capped = dataclasses.replace(description, chunk_tokens=way.chunk_tokens) if description is text else seen
            examples = ul2_tasks.examples(capped, way.sequence_length)
            assert way.examples == len(examples)
            assert description is text or sum(way.left_out.values()) == len(LONGER) - len(examples)
    raising = registered("lengths_seen_raise", *LONGER, denoisers=T5GEMMA2[::4])
    assert "on_unusable" in lengths_of(ul2_tasks.description_of(raising), {"inputs": 64, "targets": 40}).problems[0]


def test_texts_get_advice():
    (found,) = lengths_of(Mixture("lengths_texts", denoisers=T5GEMMA2[3:]), PAIRS).corpora
    sums = {way.name: sum(way.sequence_length.values()) for way in found.ways}
    assert sums == {"now": 320, "half": 160, "double": 640, "recommended": 320, "other lengths": 320}
    assert min(found.ways[3].packed.values()) > min(found.ways[0].packed.values())
    chunks = {f"lengths_texts_{name}": tokens for name, tokens in found.ways[0].chunk_tokens.items()}
    assert {chunk.task: chunk.tokens for chunk in found.chunks} == chunks


def test_each_corpus_of_a_mixture_has_its_lengths():
    chat = Chat("lengths_beside_talk", truncation="drop")
    text = Mixture("lengths_beside", vocabulary=chat.vocabulary, sentinels=range(3, 203), denoisers=T5GEMMA2[:1])
    shared = Mixture("lengths_shared", text, denoisers=T5GEMMA2[3:])
    found = lengths_of(Mix("lengths_mixed", {text: 1, chat: 1, shared: 1}), PAIRS)
    assert found.problems == []
    names = [each.name for each in found.corpora]
    assert names == ["lengths_beside_mix", "lengths_beside_talk_prompt_completion", "lengths_shared_mix"]
