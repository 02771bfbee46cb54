"""`ImageText`: two are equal if their arguments are, and a cache is that of the registered corpus."""

import pytest
import seqio

import ul2_tasks
from tests.images.image_support import SPECIAL, VOCABULARY, S, image, read, record_of
from ul2_tasks.sources.image_examples import parsed, serialized

RECORDS = [record_of(["A cat:", image(1), "It sleeps."]), record_of([image(2), "Grey."])]


def described(name="mp", records=RECORDS, denoisers=S, **changed) -> ul2_tasks.ImageText:
    return ul2_tasks.ImageText(name, records, VOCABULARY, denoisers, **{**SPECIAL, **changed})


def test_its_cache_is_that_of_its_name(tmp_path, monkeypatch):
    described("mp_cached").cache(tmp_path)
    monkeypatch.setattr(seqio.utils, "_GLOBAL_CACHE_DIRECTORIES", [str(tmp_path)])
    ul2_tasks.register_image_text("mp_cached", RECORDS, VOCABULARY, S, **SPECIAL)
    found = read("mp_cached_mix", use_cached=True)
    assert [each["images"] for each in found] == [[image(1)], [image(2)]]
    assert found == read("mp_cached_mix")
    with pytest.raises(
        ValueError, match=r"'mp_cached_mix' is already registered with other arguments: on_unusable is 'raise', got 'skip'"
    ):
        ul2_tasks.register_image_text("mp_cached", RECORDS, VOCABULARY, S, on_unusable="skip", **SPECIAL)


@pytest.mark.parametrize(
    ("changed", "argument"),
    [
        ({"on_unusable": "drop"}, "on_unusable"),
        ({"split": "words"}, "split"),
        ({"image_tokens": 5}, "image_tokens"),
        ({"denoisers": ul2_tasks.CausalDenoiser()}, "denoisers"),
        ({"name": "a b"}, "name"),
    ],
)
def test_what_is_wrong_is_said_at_once(changed, argument):
    with pytest.raises(ValueError, match=argument):
        described(**changed)


def test_ids_beyond_the_vocabulary_are_refused_before_anything_is_cached(tmp_path):
    with pytest.raises(ValueError, match="image_tokens"):
        described(image_tokens=ul2_tasks.ImageTokens()).cache(tmp_path)


def test_records_are_examples_of_tensorflow():
    import tensorflow as tf

    record = [b"", b"A cat" * 60, "狐".encode()], [image(1), b"", b"x" * (1 << 15)], b"line 7"
    example = tf.train.Example.FromString(serialized(*record))
    lists = {key: list(feature.bytes_list.value) for key, feature in example.features.feature.items()}
    assert lists == {"texts": record[0], "images": record[1], "where": [record[2]]}
    assert len(example.SerializeToString()) == len(serialized(*record))
    assert parsed(example.SerializeToString()) == parsed(serialized(*record)) == record
