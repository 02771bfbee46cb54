"""Trains a decoder-only model in torchtitan on packed rows of U-PaLM's mixture, UL2R.

The file is a registry of configurations, as torchtitan expects it. At a tiny size, on one GPU, with the built-in corpus:

    torchrun --nproc_per_node 1 recipes/torchtitan_ul2.py --config tiny

At a real size, a Llama 3 of 8 billion weights on 8 GPUs. The cache is written once, before the launch:

    ul2 cache mine --corpus 'corpus/*.jsonl.gz' --vocabulary my.model --output CACHE
    torchrun --nproc_per_node 8 recipes/torchtitan_ul2.py --config llama3_8b --dataloader.corpus 'corpus/*.jsonl.gz' \
        --dataloader.vocabulary my.model --dataloader.cache CACHE --checkpoint.enable

Cost: not measured.

Look at: the loss in torchtitan's log, which is that of the targets alone.

A row has several examples, [inputs; targets] each. Positions start again with each of them, and by that torchtitan keeps attention
within examples. A checkpoint has the index of the next row, so a run resumes exactly, also with another degree of data parallelism.

torchtitan 0.3 has no encoder-decoder model, and its trainer runs only on GPUs.
"""

import dataclasses
import json
import sys
from collections.abc import Iterator
from typing import Any

import torch
import torchtitan.models.llama3
import torchtitan.models.llama3.config_registry
import torchtitan.train
from torchtitan.components.dataloader import BaseDataLoader
from torchtitan.components.tokenizer import BaseTokenizer
from torchtitan.trainer import Trainer

import ul2_tasks


class UL2DataLoader(BaseDataLoader):
    """Packed rows of UL2R's mixture: `examples` by index, which the data-parallel ranks share out."""

    @dataclasses.dataclass(kw_only=True, slots=True)
    class Config(BaseDataLoader.Config):
        corpus: str = "embedded"
        """Read these files."""
        vocabulary: str = "default"
        """Use this tokenizer."""
        cache: str | None = None
        """Read the tokens that `ul2 cache` wrote here; without it tokenize into memory."""
        workers: int = 0
        """The processes that read, for each process that trains."""

    def __init__(self, config: Config, *, dp_world_size: int, dp_rank: int, seq_len: int, local_batch_size: int, **_: Any):
        lengths = {"inputs": seq_len // 2, "targets": seq_len // 2}
        chunk_tokens = ul2_tasks.best_chunk_tokens(ul2_tasks.UL2R, lengths)
        mixture = ul2_tasks.Mixture("mine", config.corpus, config.vocabulary, ul2_tasks.UL2R, chunk_tokens=chunk_tokens)
        self.dataset = ul2_tasks.UL2IterableDataset(
            ul2_tasks.examples(mixture, lengths, pack=True, cache_dirs=[config.cache] if config.cache else []),
            rank=dp_rank,
            world_size=dp_world_size,
            feature_converter=ul2_tasks.HuggingFaceFeatureConverter(decoder_only=True, pack=True),
            batch_size=local_batch_size,
        )
        self.loader = torch.utils.data.DataLoader(self.dataset, local_batch_size, num_workers=config.workers)
        self.state, self.rows_of_a_batch = self.dataset.state_dict(), local_batch_size * dp_world_size

    def __iter__(self) -> Iterator[tuple[dict[str, torch.Tensor], torch.Tensor]]:
        """Batches in which a place has the label of the token that follows, as torchtitan wants it."""
        for batch in self.loader:
            self.state["number"] += self.rows_of_a_batch
            labels = torch.nn.functional.pad(batch["labels"][:, 1:], (0, 1), value=-100)
            yield {"input": batch["packed_input_ids"], "positions": batch["position_ids"]}, labels

    def state_dict(self) -> dict[str, Any]:
        return {"rows": json.dumps(self.state)}  # the same in all ranks

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.state = json.loads(state_dict["rows"])
        self.dataset.load_state_dict(self.state)


def tiny() -> Trainer.Config:
    """torchtitan's debug model, for the built-in tokenizer."""
    config = torchtitan.models.llama3.config_registry.llama3_debugmodel()
    resize(config, ul2_tasks.embedding_rows(ul2_tasks.default_vocabulary()))
    config.training.local_batch_size, config.training.seq_len, config.training.steps = 8, 512, 40
    return with_ul2(config)


def llama3_8b() -> Trainer.Config:
    """Llama 3 with 8 billion weights, for a tokenizer of up to 128,256 ids."""
    return with_ul2(torchtitan.models.llama3.config_registry.llama3_8b())


def with_ul2(config: Trainer.Config) -> Trainer.Config:
    """A configuration that reads from `UL2DataLoader`, which has a tokenizer of its own."""
    config.dataloader, config.tokenizer, config.validator.enable = UL2DataLoader.Config(), NoTokenizer.Config(), False
    return config


def resize(config: Trainer.Config, vocab_size: int) -> None:
    """Gives the model of a configuration another number of ids."""
    model: Any = config.model_spec.model
    model.vocab_size = model.tok_embeddings.num_embeddings = model.lm_head.out_features = vocab_size
    config.loss.loss_fn.global_vocab_size = vocab_size


class NoTokenizer(BaseTokenizer):
    """What torchtitan's trainer gets for a tokenizer: rows have ids already."""

    @dataclasses.dataclass(kw_only=True, slots=True)
    class Config(BaseTokenizer.Config):
        pass

    def __init__(self, config: Config, **_: Any):
        super().__init__()

    def encode(self, *args: Any, **kwargs: Any) -> list[int]:
        raise NotImplementedError("UL2DataLoader has a tokenizer of its own")

    decode = get_vocab_size = encode


if __name__ == "__main__":
    sys.argv[1:1] = ["--module", "torchtitan_ul2"]
    torchtitan.train.main()
