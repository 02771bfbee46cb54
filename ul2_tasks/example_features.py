"""What an example is made of: the features, their types, and whose tokens they belong to.

    feature    dtype    one value for each token of    padded with
    inputs     int32    inputs                         0
    targets    int32    targets                        0

Whatever holds, batches, packs, writes or counts examples reads it here. `inputs` and `targets` are tokens themselves. A feature
that says something of each token, such as a mask of the loss over `targets`, has the length of these and moves with them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

NO_TOKEN = -1  # pads the examples of a batch until they are in rows: no id is negative, but 0 can be a token of others' tasks


@dataclasses.dataclass(frozen=True)
class Feature:
    """A feature of an example: [tokens], a value for each token.

    Attributes:
        dtype: of the values; a name that NumPy, TensorFlow and Arrow have in common.
        per_token_of: the feature that the tokens are of: itself, or another one.
        padding: what fills up the rows that a model is fed.
    """

    dtype: str
    per_token_of: str
    padding: int


EXAMPLE: Mapping[str, Feature] = {key: Feature("int32", per_token_of=key, padding=0) for key in ("inputs", "targets")}


def token_features(spec: Mapping[str, Feature]) -> tuple[str, ...]:
    """The features that are tokens themselves, and so have a length and a budget of their own.

    >>> token_features({**EXAMPLE, "loss_mask": Feature("int32", per_token_of="targets", padding=0)})
    ('inputs', 'targets')
    """
    return tuple(key for key, feature in spec.items() if feature.per_token_of == key)


TOKEN_FEATURES = token_features(EXAMPLE)

# For get_dataset(passthrough_features=["denoiser", "task"]): the names of an example's denoiser, "" if there is none, and task.
DENOISER, TASK = "denoiser", "task"
