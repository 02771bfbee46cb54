"""Starts t5x training from the weights of another run. Imports t5x, so that only gin files that need it import this module.

t5x has `RestoreCheckpointConfig.path` for this. But a run that saves the state of its data iterator (`save_dataset`) also
restores that state from the initial checkpoint, which has the state of other data or none, and fails (at t5x cc342d4). Here
the initial checkpoint stands for what t5x calls "scratch": the state that a run starts from while MODEL_DIR has no checkpoint.
"""

from __future__ import annotations

import re
from typing import Any

import jax
import jax.numpy as jnp
from flax.core import unfreeze
from flax.traverse_util import flatten_dict
from t5x import train_state as train_state_lib
from t5x import utils

_ROWS = re.compile(r"(token_embedder/embedding|logits_dense/kernel)$")  # the parameters of t5x's networks with a row for each id


class FromCheckpoint(utils.TrainStateInitializer):
    """For `train.train_state_initializer_cls`: starts with an initial checkpoint's weights, optimizer state and step."""

    def __init__(self, *arguments, path: str, add_rows: bool = False, **keywords):
        """
        Args:
            path: the checkpoint, such as "gs://bucket/run/checkpoint_1000000", in any of t5x's formats.
            add_rows: whether the model may have more rows in its embedding, for ids that the checkpoint did not know. Such a row
                begins as the mean of the others.
            arguments, keywords: see `t5x.utils.TrainStateInitializer`.
        """
        super().__init__(*arguments, **keywords)
        self._path = path
        self._add_rows = add_rows

    def from_scratch(self, init_rng: jax.Array) -> train_state_lib.TrainState:
        """The checkpoint's state. `init_rng` is not used.

        Raises:
            ValueError: a parameter has another shape in the checkpoint than in the model; the first such one is named.
        """
        restore = utils.RestoreCheckpointConfig(path=self._path, mode="specific", dtype="float32")
        state, _ = utils.create_checkpoint_manager_and_restore(
            self, self._partitioner, restore, self._path, fallback_init_rng=None, use_orbax=True
        )
        wanted, found = (flatten_dict(unfreeze(it.params), sep="/") for it in (self.global_train_state_shape, state))
        others = [name for name in wanted if wanted[name].shape != found[name].shape]
        for name in others:
            if not (self._add_rows and _ROWS.search(name) and wanted[name].size > found[name].size):
                raise ValueError(
                    f"{name} must have the shape {wanted[name].shape} of the model, got {found[name].shape} in the checkpoint"
                    f" {self._path}. Set the checkpoint's size, vocabulary and EMBEDDING_ROWS. See"
                    " docs/help/troubleshooting.md#a-checkpoint-has-another-shape-than-the-model."
                )
        return self._grown(state) if others else state

    def _grown(self, state: train_state_lib.TrainState) -> train_state_lib.TrainState:
        """The same in the model's shapes: what is new of the weights and the optimizer's state is the mean of what is there."""

        def grow(found: jax.Array, wanted: jax.ShapeDtypeStruct) -> jax.Array:
            more = [(0, new - old) for old, new in zip(found.shape, wanted.shape)]
            return jnp.pad(found, more, mode="mean") if found.shape != wanted.shape else found

        def grow_all(state: Any) -> Any:
            return jax.tree.map(grow, state, self.global_train_state_shape)

        axes = self.train_state_axes
        return self._partitioner.partition(grow_all, in_axis_resources=(axes,), out_axis_resources=axes)(state)
