"""Trains an encoder-decoder with UL2, then on conversations with one loss for reasoning and one for answers, and lets it reply.

At a tiny size, on a CPU, with the built-in texts and conversations:

    python recipes/chat_after_ul2.py --use_cpu

At a real size, with your texts and conversations, each with a list `messages`. Texts and conversations share the tokenizer, to
which the control tokens of conversations are added (`harmony:my.model`). `recipes/t5_trainer.py` shows how a stage resumes:

    python recipes/chat_after_ul2.py --model base --corpus 'corpus/*.jsonl.gz' --chat 'talks/*.jsonl' --renderer harmony:my.model \
        --length 512 --rows 128 --ul2_steps 100000 --chat_steps 2000 --learning_rate 1e-3 --bf16

Cost: the tiny run takes 12 CPU seconds. Real sizes: not measured.

Look at: `eval_loss/reasoning` and `eval_loss/answer` before and after the second stage, and the reply to a held-out prompt beside
the one in the data. A model of this tiny size learns the form of a reply; the right words need a real size.
"""

import argparse
from typing import Any

import torch
import transformers

import ul2_tasks

SIZES: dict[str, dict[str, Any]] = {  # of T5 1.1
    "tiny": {"d_model": 64, "d_kv": 16, "d_ff": 128, "num_layers": 2, "num_heads": 4},
    "base": {"d_model": 768, "d_kv": 64, "d_ff": 2048, "num_layers": 12, "num_heads": 12},
}
# Tied embeddings make the first logits small. T5 1.1 is pre-trained without dropout.
T5: dict[str, Any] = {
    "feed_forward_proj": "gated-gelu",
    "tie_word_embeddings": True,
    "dropout_rate": 0.0,
}


def main() -> None:
    args = arguments()
    torch.manual_seed(0)
    lengths = {"inputs": args.length, "targets": args.length}

    # Both stages read the tokenizer of the conversations, which has their control tokens. A prompt begins with the mode token of S,
    # by which the model continued texts before.
    held_out_part = None if args.chat == "embedded" else 0.1  # the built-in conversations have a split of their own
    chat = ul2_tasks.Chat("talks", args.chat, args.renderer, validation=held_out_part, mode="[S]", truncation="drop")
    vocabulary = chat.renderer.vocabulary
    texts = ul2_tasks.Mixture("texts", args.corpus, vocabulary)
    eos = vocabulary.eos_id
    pad = eos if vocabulary.uses_0 else 0
    ids: Any = {"pad_token_id": pad, "decoder_start_token_id": pad, "eos_token_id": eos}
    config = transformers.T5Config(vocab_size=ul2_tasks.embedding_rows(vocabulary), **ids, **SIZES[args.model], **T5)
    model: Any = transformers.T5ForConditionalGeneration(config)

    def settings(folder: str, steps: int) -> transformers.TrainingArguments:
        return transformers.TrainingArguments(
            f"{args.output}/{folder}",
            max_steps=steps,
            per_device_train_batch_size=args.rows,
            learning_rate=args.learning_rate,
            warmup_steps=steps // 10,
            logging_steps=max(steps // 4, 1),
            save_steps=max(steps // 4, 1),
            bf16=args.bf16,
            use_cpu=args.use_cpu,
            disable_tqdm=True,
            report_to=[],
        )

    # Stage 1: UL2.
    converter = ul2_tasks.HuggingFaceFeatureConverter(model=model, task_id=True)
    of_all: dict[str, Any] = {"rank": 0, "world_size": 1}  # Trainer splits the rows among processes
    dataset = ul2_tasks.UL2IterableDataset(texts, lengths, feature_converter=converter, batch_size=args.rows, **of_all)
    ul2_tasks.GroupLossTrainer(model, settings("ul2", args.ul2_steps), train_dataset=dataset).train()

    # Stage 2: prompts and completions. Reasoning and answer are loss groups, and each has a mean of its own over a step.
    converter = ul2_tasks.HuggingFaceFeatureConverter(model=model, span_id=True)
    of_all |= {"feature_converter": converter}
    dataset = ul2_tasks.UL2IterableDataset(chat, lengths, batch_size=args.rows, **of_all)
    held_out = ul2_tasks.UL2IterableDataset(chat, lengths, split="validation", num_epochs=1, **of_all)
    trainer = ul2_tasks.GroupLossTrainer(
        model,
        settings("chat", args.chat_steps),
        train_dataset=dataset,
        eval_dataset=held_out,
        groups=ul2_tasks.TokenGroups.of_chat({"reasoning": args.reasoning_weight, "answer": 1.0, "other": 1.0}),
    )
    trainer.evaluate()
    trainer.train()
    trainer.evaluate()

    # A reply to a held-out prompt, beside the one in the data.
    example = ul2_tasks.examples(chat, lengths, split="validation")[0]
    prompt = torch.from_numpy(example["inputs"]).long()[None].to(model.device)
    model.eval()
    reply = model.generate(prompt, max_new_tokens=args.length, do_sample=False, eos_token_id=int(example["targets"][-1]))
    for name, ids in (("prompt", example["inputs"]), ("data", example["targets"]), ("reply", reply[0, 1:])):
        print(f"{name}: {vocabulary.decode(ids.tolist())}")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--model", choices=SIZES, default="tiny", help="train a T5 of this size")
    parser.add_argument("--corpus", default="embedded", help="read these files of texts")
    parser.add_argument("--chat", default="embedded", help="read these files of conversations")
    parser.add_argument("--renderer", default="harmony:default", help="render conversations in this format, with this tokenizer")
    parser.add_argument(
        "--length", type=int, default=96, help="the tokens of inputs, and of targets; longer conversations are dropped"
    )
    parser.add_argument("--rows", type=int, default=8, help="the rows of a step")
    parser.add_argument("--ul2_steps", type=int, default=20)
    parser.add_argument("--chat_steps", type=int, default=40)
    parser.add_argument("--learning_rate", type=float, default=5e-3)
    parser.add_argument(
        "--reasoning_weight", type=float, default=1.0, help="the weight of the loss of reasoning; that of answers is 1"
    )
    parser.add_argument("--bf16", action="store_true", help="compute in bfloat16, with weights in float32")
    parser.add_argument("--use_cpu", action="store_true", help="train on the CPU, also where there is a GPU")
    parser.add_argument("--output", default="run", help="keep checkpoints in this folder")
    return parser.parse_args()


if __name__ == "__main__":
    main()
