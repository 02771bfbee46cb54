"""What an example is made of: the features, their types, and whose tokens they belong to.

    feature    dtype    one value for each token of    padded with
    inputs     int32    inputs                         0
    targets    int32    targets                        0

A conversation has more. As one sequence, and as a prompt and a completion:

    tokens     int32    tokens                         0            inputs, targets    as above
    loss_mask  uint8    tokens                         0            loss_mask          the same, of targets
    span_id    uint8    tokens                         0            span_id            the same, of targets

Targets of diffusion denoisers have `t`, `loss_weight`, float32, and `block_ids`, int32: see `models.diffusion`.
Texts whose tokens have weights, see `mixtures.mixture.Mixture`, have `loss_weight`, float32, of targets.

Whatever holds, batches, packs, writes or counts examples reads it here. `inputs`, `targets` and `tokens` are tokens themselves. A
feature that says something of each token, such as a mask of the loss, has the length of these and moves with them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping

DOCUMENTS_PER_BATCH = 128  # of each step of tf.data; with a cache as many as without, so that blocks are the same
# They pad the examples of a batch until they are in rows. No id is negative, but 0 can be a token of others' tasks; 0 in a mask
# is a value like any other.
NO_TOKEN = -1
NO_MARK = 255
IGNORED = -100  # the label of a position without loss, for PyTorch's cross entropy and for Transformers
# The ids that a model of Transformers reads of a packed row. By its own name, `input_ids`, it would read them as one example.
PACKED_IDS = "packed_input_ids"


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

    @property
    def absent(self) -> int:
        """What pads the examples of a batch until they are in rows: a value that no token has.

        >>> CHAT["tokens"].absent, CHAT["loss_mask"].absent
        (-1, 255)
        """
        return NO_MARK if self.dtype == "uint8" else NO_TOKEN


TASK_ID, NO_TASK = "task_id", -1  # of each target token, which task of the mixture it is of, see `random_access.tasks`
LOSS_MASK, SPAN_ID = "loss_mask", "span_id"  # of each token, whether it is trained on, and its loss group
RATE, LOSS_WEIGHT, BLOCK_IDS = "t", "loss_weight", "block_ids"  # of each target; but for the weight of a diffusion denoiser
TEXT = 4  # the loss group of the targets of a mixture's other tasks, which are not conversations

EXAMPLE: Mapping[str, Feature] = {key: Feature("int32", per_token_of=key, padding=0) for key in ("inputs", "targets")}


def _marks(key: str) -> dict[str, Feature]:
    return {mark: Feature("uint8", per_token_of=key, padding=0) for mark in (LOSS_MASK, SPAN_ID)}


CHAT: Mapping[str, Feature] = {"tokens": Feature("int32", per_token_of="tokens", padding=0), **_marks("tokens")}
PROMPT_COMPLETION: Mapping[str, Feature] = {**EXAMPLE, **_marks("targets")}
RATES: Mapping[str, Feature] = {
    key: Feature(dtype, per_token_of="targets", padding=0)
    for key, dtype in {RATE: "float32", LOSS_WEIGHT: "float32", BLOCK_IDS: "int32"}.items()
}
DIFFUSION: Mapping[str, Feature] = {**EXAMPLE, **RATES}
WEIGHTED: Mapping[str, Feature] = {**EXAMPLE, LOSS_WEIGHT: RATES[LOSS_WEIGHT]}


def token_features(spec: Mapping[str, Feature]) -> tuple[str, ...]:
    """The features that are tokens themselves, and so have a length and a budget of their own.

    >>> token_features({**EXAMPLE, "loss_mask": Feature("int32", per_token_of="targets", padding=0)})
    ('inputs', 'targets')
    """
    return tuple(key for key, feature in spec.items() if feature.per_token_of == key)


def with_task_id(spec: Mapping[str, Feature]) -> dict[str, Feature]:
    """The same features, and the task of each target token.

    >>> with_task_id(EXAMPLE)["task_id"]
    Feature(dtype='int32', per_token_of='targets', padding=-1)
    """
    return {**spec, TASK_ID: Feature("int32", per_token_of=token_features(spec)[-1], padding=NO_TASK)}


def features_named(names: Collection[str]) -> dict[str, Feature]:
    """The features of tokens of an example that has features of these names, in the order in which files have them.

    >>> list(features_named(["images", "span_id", "loss_mask", "targets", "inputs"]))
    ['inputs', 'targets', 'loss_mask', 'span_id']
    """
    known = CHAT if "tokens" in names else {**PROMPT_COMPLETION, **RATES}
    return {key: feature for key, feature in known.items() if key in names}


TOKEN_FEATURES = token_features(EXAMPLE)

SINGLE_EXAMPLE = {"inputs": "input_ids", "targets": "labels"}  # what `transformers` calls the features of one that is not padded

IMAGES = "images"  # of interleaved image-text data: the images' bytes, which have no tokens of their own

# For get_dataset(passthrough_features=["denoiser", "task"]): the names of an example's denoiser, "" if there is none, and task.
DENOISER, TASK = "denoiser", "task"


# Fields of a record beside its messages, which a model has to see. The first become a message, the next go to a chat template.
SYSTEM_FIELDS = ("system", "system_prompt")
TEMPLATE_FIELDS = ("tools", "documents", "chat_template_kwargs")
_NEVER_RENDERED = ("functions", "function_call", "tool_choice", "prompt", "completion")
_MEDIA = ("image", "images", "video", "videos", "audio", "audios")
CONVERSATION_FIELDS = (*SYSTEM_FIELDS, *TEMPLATE_FIELDS, *_NEVER_RENDERED, *_MEDIA)
