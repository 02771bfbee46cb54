"""t5x training that starts from another run's weights. Imports t5x; only the gin files that need it import this.

t5x takes `RestoreCheckpointConfig.path` for that. But where the run saves the place in its data (`save_dataset`), it
also restores that place from the initial checkpoint, which is a place in other data or in none: it fails (at t5x cc342d4).
So here the initial checkpoint is what t5x calls scratch, from which a run starts when MODEL_DIR has no checkpoint yet.
"""

from __future__ import annotations

import jax
from flax.core import unfreeze
from flax.traverse_util import flatten_dict
from t5x import train_state as train_state_lib
from t5x import utils


class FromCheckpoint(utils.TrainStateInitializer):
    """For `train.train_state_initializer_cls`: weights, the optimizer's state and the step of an initial checkpoint."""

    def __init__(self, *arguments, path: str, **keywords):
        """
        Args:
            path: the checkpoint, such as "gs://bucket/run/checkpoint_1000000", in any of t5x's formats.
            arguments, keywords: of `t5x.utils.TrainStateInitializer`.
        """
        super().__init__(*arguments, **keywords)
        self._path = path

    def from_scratch(self, init_rng: jax.Array) -> train_state_lib.TrainState:
        """The checkpoint's state; `init_rng` makes no difference.

        Raises:
            ValueError: a parameter has another shape in the checkpoint than in the model; names the first.
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
