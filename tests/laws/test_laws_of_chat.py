"""The laws of conversations, of their replies, and of replies among texts; and that of masks, which they alone have."""

import collections
import functools

import numpy as np
import pytest

pytest.register_assert_rewrite("every_law")

from tests.laws.every_law import *  # noqa: E402, F403
from tests.laws.every_law import epochs_of  # noqa: E402
from tests.laws.pipelines import CHAT, own, plain  # noqa: E402
from tests.laws.pipelines import CHAT as PIPELINES  # noqa: E402, F401
from ul2_tasks import (  # noqa: E402
    ChatFeatureConverter,
    EncDecFeatureConverter,
    HuggingFaceChatConverter,
    HuggingFaceFeatureConverter,
    PrefixLMFeatureConverter,
    PromptCompletionFeatureConverter,
    seqio_converter,
)


def weighted(row) -> list[int]:
    tokens, weights = (np.asarray(row[f"decoder_{name}"]) for name in ("target_tokens", "loss_weights"))
    return (tokens[weights > 0] - 1).tolist()


def labelled(row) -> list[int]:
    labels = np.asarray(row["labels"])
    return labels[labels != -100].tolist()


ROW = {"tokens": 300, "inputs": 300, "targets": 300}
CONVERTERS = [
    *(pytest.param("tokens", ChatFeatureConverter(pack=pack), weighted, id=f"chat-{pack}") for pack in (True, False)),
    *(
        pytest.param("tokens", seqio_converter(HuggingFaceChatConverter(pack=pack)), labelled, id=f"chat-transformers-{pack}")
        for pack in (True, False)
    ),
    *(pytest.param("targets", PromptCompletionFeatureConverter(pack=pack), weighted, id=f"reply-{pack}") for pack in (True, False)),
    *(pytest.param("targets", EncDecFeatureConverter(pack=pack), weighted, id=f"encdec-{pack}") for pack in (True, False)),
    *(pytest.param("targets", PrefixLMFeatureConverter(pack=pack), weighted, id=f"prefix-lm-{pack}") for pack in (True, False)),
    *(
        pytest.param(
            "targets",
            seqio_converter(HuggingFaceFeatureConverter("longest", 4, decoder_only=decoder_only, decoder_start_token_id=start)),
            labelled,
            id=f"reply-transformers-{decoder_only}",
        )
        for decoder_only, start in ((True, None), (False, 0))
    ),
]


@pytest.mark.parametrize(("key", "converter", "learned"), CONVERTERS)
def test_a_converter_has_a_loss_where_the_mask_says_so_or_refuses_what_has_a_mask(key, converter, learned):
    row = next(row for row in CHAT if row.masked == key)
    examples = epochs_of(row)
    masked = collections.Counter(
        id for one in examples for id, mask in zip(own(one, key, 1), one["loss_mask"].tolist(), strict=True) if mask
    )
    assert 0 < masked.total() < sum(len(one[key]) for one in examples)
    lengths = {name: length for name, length in ROW.items() if name in examples[0]}
    rows = converted(converter, epoch_of(row), lengths)
    assert rows is None or collections.Counter(id for made in rows for id in learned(made)) == masked


@functools.cache
def epoch_of(row):
    return row.build(epochs=1)


def converted(converter, dataset, lengths):
    """The rows; None where the converter refuses what has a mask, by its name."""
    try:
        return [*map(plain, converter(dataset, lengths))]
    except ValueError as error:
        if "loss_mask" not in str(error):
            raise
        return None
