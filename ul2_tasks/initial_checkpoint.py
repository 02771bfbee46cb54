"""Starts t5x training from the weights of another run. Imports t5x, so that only gin files that need it import this module.

t5x has `RestoreCheckpointConfig.path` for this. But a run that saves the state of its data iterator (`save_dataset`) also
restores that state from the initial checkpoint, which has the state of other data or none, and fails (at t5x cc342d4). Here
the initial checkpoint stands for what t5x calls "scratch": the state that a run starts from while MODEL_DIR has no checkpoint.
"""

from __future__ import annotations

import jax
from flax.core import unfreeze
from flax.traverse_util import flatten_dict
from t5x import train_state as train_state_lib
from t5x import utils


class FromCheckpoint(utils.TrainStateInitializer):
    """For `train.train_state_initializer_cls`: starts with an initial checkpoint's weights, optimizer state and step."""

    def __init__(self, *arguments, path: str, **keywords):
        """
        Args:
            path: the checkpoint, such as "gs://bucket/run/checkpoint_1000000", in any of t5x's formats.
            arguments, keywords: see `t5x.utils.TrainStateInitializer`.
        """
        super().__init__(*arguments, **keywords)
        self._path = path

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
        for name in wanted:
            if wanted[name].shape != found[name].shape:
                raise ValueError(
                    f"{name} is {found[name].shape} in the checkpoint {self._path}, and {wanted[name].shape} in the model; take the"
                    " checkpoint's size and vocabulary, with EMBEDDING_ROWS as it has them"
                )
        return state
