"""`TfdsSource`: documents in a dataset of TensorFlow Datasets."""

from __future__ import annotations

import os
from collections.abc import Sequence

import seqio
import tensorflow as tf
import tensorflow_datasets as tfds

from ul2_tasks.scalars import check_split
from ul2_tasks.sources.columns import check_fields
from ul2_tasks.sources.files import Layout


class TfdsSource(seqio.TfdsDataSource):
    """`seqio.TfdsDataSource` that says what it is without opening the dataset, and what to do where it is not prepared."""

    def __init__(self, name: str, text_key: str = "text"):
        """`name` is the dataset and its version, such as "c4/en:3.1.0"."""
        if ":" not in name:
            raise ValueError(f"source must be 'tfds:NAME:VERSION', such as 'tfds:c4/en:3.1.0', got 'tfds:{name}'.")
        super().__init__(tfds_name=name)
        self._name, self.text_key = name, text_key

    def __repr__(self) -> str:
        return f"TfdsSource({self._name!r}, text_key={self.text_key!r})"

    @property
    def splits(self) -> Sequence[str]:
        """The splits' names. Raises a ValueError where the dataset is not prepared."""
        try:
            if splits := super().splits:
                return splits
        except (tfds.core.DatasetNotFoundError, AssertionError, ImportError, OSError) as error:
            raise self._not_prepared(f" ({type(error).__name__})") from error
        raise self._not_prepared("")

    def num_input_examples(self, split: str) -> int | None:
        """See `seqio.DataSource.num_input_examples`. Raises a ValueError where the dataset is not prepared."""
        return super().num_input_examples(split) if split in self.splits else None

    def get_dataset(self, split: str = "train", *args, **kwargs) -> tf.data.Dataset:
        """See `seqio.DataSource.get_dataset`. Raises a ValueError where there is no such split or feature."""
        check_split(split, self.splits, self)
        dataset = super().get_dataset(split, *args, **kwargs)
        check_fields(f"tfds:{self._name}", sorted(dataset.element_spec), Layout("tfds", text_key=self.text_key))
        return dataset

    def _not_prepared(self, why: str) -> ValueError:
        folder = os.path.expanduser(self.tfds_dataset.data_dir or os.environ.get("TFDS_DATA_DIR", "~/tensorflow_datasets"))
        return ValueError(
            f"'tfds:{self._name}' is not prepared in {folder}{why}. Run `tfds build {self._name} --data_dir={folder}`, or set"
            " TFDS_DATA_DIR to the folder where it is prepared."
        )
