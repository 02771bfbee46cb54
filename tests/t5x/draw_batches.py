"""Reads gin files as t5x does, and draws a batch from each dataset that they configure, without training anything.

    python tests/t5x/draw_batches.py --gin_file=FILE ... --gin=NAME=VALUE ...

`tests/t5x/test_t5x.py` runs this. Prints each dataset's features with their shapes, then the model's class.
"""

import argparse

import gin
from t5x import gin_utils, models, utils

from ul2_tasks import EncDecFeatureConverter, PromptCompletionFeatureConverter


def train(*, model, train_dataset_cfg, train_eval_dataset_cfg, **unused):
    draw(model, train=train_dataset_cfg, train_eval=train_eval_dataset_cfg)


def infer(*, model, dataset_cfg, **unused):
    draw(model, infer=dataset_cfg)


def draw(model, **configs):
    if isinstance(model, models.EncoderDecoderModel):
        assert issubclass(model.FEATURE_CONVERTER_CLS, (EncDecFeatureConverter, PromptCompletionFeatureConverter))
    for name, config in configs.items():
        utils.verify_matching_vocabs(config, model)
        batch = next(utils.get_dataset(config, 0, 1, model.FEATURE_CONVERTER_CLS).as_numpy_iterator())
        assert all(len(value) == config.batch_size for value in batch.values())
        print(name, {key: value.shape for key, value in sorted(batch.items()) if key.endswith("tokens")})
    print(type(model).__name__)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--gin_file", action="append")
    parser.add_argument("--gin", action="append", help="NAME=VALUE")
    arguments = parser.parse_args()
    run = gin.configurable(infer if "gin/ul2_infer.gin" in arguments.gin_file else train)
    gin_utils.parse_gin_flags(["."], arguments.gin_file, arguments.gin)
    run()
