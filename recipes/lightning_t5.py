"""Trains a T5 in Lightning on packed rows, with the loss of each denoiser, and exact resume on any number of processes.

At a tiny size, on a CPU, with the built-in corpus:

    python recipes/lightning_t5.py --processes 2 --rows 4 --steps 40 --output run
    python recipes/lightning_t5.py --processes 1 --rows 8 --steps 80 --output run  # resumes, here in one process

At a real size, on 8 GPUs. The cache is written once, before the launch:

    ul2 cache mine --corpus 'corpus/*.jsonl.gz' --vocabulary my.model --output CACHE
    python recipes/lightning_t5.py --corpus 'corpus/*.jsonl.gz' --vocabulary my.model --cache CACHE --model base --length 512 \
        --processes 8 --rows 32 --workers 2 --precision bf16-mixed --steps 100000 --log_every 100 --save_every 2000 --output run

Cost: 40 steps of 8 rows take 12 s of CPU time. Real sizes: not measured.

Look at: the loss, which begins near ln(vocabulary) and falls, and that of each denoiser, also in OUTPUT/version_0/metrics.csv.

It needs the package lightning, 2.6 or later. The module itself saves the index of the next row. Torchdata's StatefulDataLoader does
not do that in Lightning 2.6, which reads one batch ahead of a dataset without an end: a run that resumes from its state skips that
batch.
"""

import argparse
import pathlib
from typing import Any

import lightning
import lightning.pytorch.callbacks
import lightning.pytorch.loggers
import torch
import transformers

import ul2_tasks

SIZES: dict[str, dict[str, Any]] = {  # of T5 1.1
    "tiny": {"d_model": 64, "d_kv": 16, "d_ff": 128, "num_layers": 2, "num_heads": 4},
    "small": {"d_model": 512, "d_kv": 64, "d_ff": 1024, "num_layers": 8, "num_heads": 6},
    "base": {"d_model": 768, "d_kv": 64, "d_ff": 2048, "num_layers": 12, "num_heads": 12},
}


class T5(lightning.LightningModule):
    """A T5 of Transformers and the examples that it reads, which are saved together."""

    def __init__(self, model: torch.nn.Module, dataset: ul2_tasks.UL2IterableDataset, args: argparse.Namespace):
        super().__init__()
        self.model, self.dataset, self.args = model, dataset, args
        self.data = dataset.state_dict()  # of which the number is that of the next row to train on
        self.losses = ul2_tasks.GroupLosses(ul2_tasks.TokenGroups.of_tasks(dataset.tasks))

    def train_dataloader(self) -> torch.utils.data.DataLoader:
        self.data = self.dataset.state_dict()  # where the data begin; workers read ahead
        return torch.utils.data.DataLoader(self.dataset, self.args.rows, num_workers=self.args.workers)

    def training_step(self, batch: dict[str, torch.Tensor], step: int) -> torch.Tensor:
        """The mean loss over the labels of all processes, whose gradients Lightning averages."""
        labels, task_id = batch.pop("labels"), batch.pop("task_id")
        logits = self.model(**batch, use_cache=False).logits
        self.data["number"] += len(labels) * self.trainer.world_size
        labels_of_a_process = self.trainer.strategy.reduce(self.losses.counts(task_id), reduce_op="mean")
        return self.losses.loss(logits, labels, task_id, labels_of_a_process)

    def on_train_batch_end(self, *_: Any) -> None:
        done = self.trainer.global_step
        if done % self.args.log_every == 0 or done == self.args.steps:
            metrics = self.losses.metrics()  # since the last ones, of all processes
            for logger in self.loggers:
                logger.log_metrics(metrics, done)
            if self.trainer.is_global_zero:
                losses = (f"{name} {value:.4f}" for name, value in metrics.items() if name.startswith("loss"))
                print(f"step {done}: {', '.join(losses)}", flush=True)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["data"] = dict(self.data)

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.dataset.load_state_dict(checkpoint["data"])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.model.parameters(), lr=self.args.learning_rate, betas=(0.9, 0.98))


def main() -> None:
    args = arguments()
    lightning.seed_everything(0, verbose=False)

    # The data: packed rows of one length, each label with the denoiser that it is of.
    lengths = {"inputs": args.length, "targets": args.length}
    chunk_tokens = ul2_tasks.best_chunk_tokens(ul2_tasks.T5GEMMA2, lengths)
    mixture = ul2_tasks.Mixture("mine", args.corpus, args.vocabulary, chunk_tokens=chunk_tokens)
    dataset = ul2_tasks.UL2IterableDataset(
        ul2_tasks.examples(mixture, lengths, pack=True, cache_dirs=[args.cache] if args.cache else []),
        feature_converter=ul2_tasks.HuggingFaceFeatureConverter(pack=True, task_id=True),
        batch_size=args.rows,
    )

    settings: dict[str, Any] = SIZES[args.model] | {
        "vocab_size": ul2_tasks.embedding_rows(mixture.vocabulary),
        "feed_forward_proj": "gated-gelu",
        "tie_word_embeddings": True,
        "dropout_rate": 0.0,
        "decoder_start_token_id": 0,
    }
    model = ul2_tasks.accept_packed_sequences(transformers.T5ForConditionalGeneration(transformers.T5Config(**settings)))

    # Lightning starts the other processes; under torchrun or Slurm it finds them.
    checkpoint = pathlib.Path(args.output) / "last.ckpt"
    trainer = lightning.Trainer(
        accelerator=args.device,
        devices=args.processes,
        strategy="ddp" if args.processes > 1 else "auto",
        precision=args.precision,
        max_steps=args.steps,
        gradient_clip_val=1.0,
        logger=lightning.pytorch.loggers.CSVLogger(args.output, name=""),
        callbacks=[
            lightning.pytorch.callbacks.ModelCheckpoint(
                args.output, "last", every_n_train_steps=args.save_every, enable_version_counter=False
            )
        ],
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(T5(model, dataset, args), ckpt_path=checkpoint if checkpoint.exists() else None, weights_only=True)
    trainer.save_checkpoint(checkpoint)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--model", choices=SIZES, default="tiny", help="train a T5 of this size")
    parser.add_argument("--corpus", default="embedded", help="read these files")
    parser.add_argument("--vocabulary", default="default", help="use this tokenizer")
    parser.add_argument("--cache", help="read the tokens that `ul2 cache` wrote here; without it tokenize into memory")
    parser.add_argument("--length", type=int, default=128, help="the tokens of inputs, and of targets, of a row")
    parser.add_argument("--processes", type=int, default=1, help="the processes that train, one on each device")
    parser.add_argument("--rows", type=int, default=4, help="the rows of a step in each process")
    parser.add_argument("--workers", type=int, default=0, help="the processes that read, for each process that trains")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--learning_rate", type=float, default=3e-3)
    parser.add_argument("--precision", default="32-true", help="such as bf16-mixed")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--output", default="run", help="keep the last checkpoint in this folder, and resume from it")
    parser.add_argument("--log_every", type=int, default=10)
    parser.add_argument("--save_every", type=int, default=20)
    return parser.parse_args()


if __name__ == "__main__":
    main()
