"""Conversations: what it costs to bring them from JSON to a store, and to read packed rows of them.

    python benchmarks/chat.py

It makes conversations of the embedded corpus's prose, and compares, in CPU time a token:

    tiktoken        `encode_ordinary` of the contents alone, which are in memory
    ours            `ul2 cache`: JSON Lines are read, parsed, checked, rendered, tokenized, written and hashed
    openai-harmony  its own rendering of the same conversations, from JSON, nothing is written
    tokenizers      a byte-level BPE of `tokenizers`: the contents alone, all at once
    chat template   `ul2 cache` with the same tokenizer and a template as Qwen's
    rows            packed rows of 4096 from the store, as a model is fed them, without the start

and an unbroken run of 100,000 letters. It needs the tokenizer file, see `open_renderer`.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import os
import pathlib
import statistics
import tempfile
import time
from collections.abc import Callable

import seqio
import tiktoken
import tokenizers
from rich.console import Console
from rich.table import Table

import ul2_tasks
from ul2_tasks.corpus.build_cache import build
from ul2_tasks.vocabulary.o200k import find_file

ROW = 4096
MORE = 20  # epochs of rows, beside one that also pays for the start


def bare_encoding(file: str) -> Callable[[str], list[int]]:
    """tiktoken's own encoding of a text."""
    with tempfile.TemporaryDirectory() as folder:
        # tiktoken looks for the file under this name in its cache.
        os.symlink(file, os.path.join(folder, "fb374d419588a4632f3f557e76b4b70aebbca790"))
        os.environ["TIKTOKEN_CACHE_DIR"] = folder
        return tiktoken.get_encoding("o200k_base").encode_ordinary


def conversations(megabytes: float) -> list[list[dict[str, str]]]:
    """Conversations of two turns, of prose, until they have so many megabytes."""
    texts, found, size = itertools.cycle(ul2_tasks.embedded_documents()), [], 0
    while size < megabytes * 1e6:
        messages = []
        for channel in (None, "analysis", "final", None, "analysis", "final"):
            text = "\n".join(itertools.islice(texts, 3))
            messages.append(
                {"role": "assistant", "channel": channel, "content": text} if channel else {"role": "user", "content": text}
            )
            size += len(text)
        found.append(messages)
    return found


TEMPLATE = """{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' }}
{%- if m.reasoning_content %}{{ '<think>\\n' + m.reasoning_content + '\\n</think>\\n\\n' }}{% endif %}
{{- m.content + '<|im_end|>\\n' }}{% endfor %}"""


def write_tokenizer(folder: str) -> tokenizers.Tokenizer:
    """A folder with a tokenizer and a chat template, as models come with."""
    tokenizer = tokenizers.ByteLevelBPETokenizer()
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>"]
    tokenizer.train_from_iterator(ul2_tasks.embedded_documents(), 16_000, special_tokens=special, show_progress=False)
    tokenizer.save(f"{folder}/tokenizer.json")
    configuration = {"eos_token": special[0], "chat_template": TEMPLATE}
    pathlib.Path(folder, "tokenizer_config.json").write_text(json.dumps(configuration))
    return tokenizers.Tokenizer.from_file(f"{folder}/tokenizer.json")


def with_reasoning(messages: list[dict[str, str]]) -> list[dict[str, str]]:
    """The same conversation with reasoning as a field of the answer, as chat templates take it."""
    found = []
    for message in messages:
        if message.get("channel") == "final":
            reasoning = found.pop()["content"]
            found.append({"role": "assistant", "reasoning_content": reasoning, "content": message["content"]})
        else:
            found.append({"role": message["role"], "content": message["content"]})
    return found


def cpu_seconds(function: Callable[[], object]) -> float:
    before = time.process_time()
    function()
    return time.process_time() - before


def write(folder: str, found: list, name: str = "conversations") -> str:
    path = pathlib.Path(folder) / f"{name}.jsonl"
    path.write_text("".join(json.dumps({"messages": messages}) + "\n" for messages in found))
    return str(path)


def harmony(path: str, file: str) -> None:
    import openai_harmony

    os.environ["TIKTOKEN_ENCODINGS_BASE"] = os.path.dirname(file)
    encoding = openai_harmony.load_harmony_encoding(openai_harmony.HarmonyEncodingName.HARMONY_GPT_OSS)
    keep = openai_harmony.RenderConversationConfig(auto_drop_analysis=False)
    with open(path) as lines:
        for line in lines:
            encoding.render_conversation_for_training(openai_harmony.Conversation.from_json(line), config=keep)


def read_rows(name: str, epochs: int) -> None:
    """Batches of packed rows, as a model is fed them."""
    dataset = seqio.get_dataset(
        name,
        {"tokens": ROW},
        ul2_tasks.ChatFeatureConverter(pack=True),
        dataset_split="train",
        shuffle=True,
        num_epochs=epochs,
        use_cached=True,
        seed=0,
    )
    for _ in dataset.batch(8):
        pass


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=float, default=10)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    file = find_file()
    encode = bare_encoding(file)
    found = conversations(arguments.megabytes)
    contents = [message["content"] for messages in found for message in messages]
    quiet = Console(quiet=True)
    with tempfile.TemporaryDirectory() as folder:
        path = write(folder, found)
        name = ul2_tasks.register_chat("benchmark", path, f"harmony:{file}")
        corpus = seqio.TaskRegistry.get("benchmark_corpus")
        ul2_tasks.register_chat("start", write(tempfile.mkdtemp(dir=folder), found[:1]), f"harmony:{file}")
        tokenizer = write_tokenizer(folder)
        own = [with_reasoning(messages) for messages in found]
        ul2_tasks.register_chat("template", write(folder, own, "template"), f"template:{folder}", loss_groups="plain")
        ul2_tasks.register_chat("template_start", write(folder, own[:1], "start"), f"template:{folder}", loss_groups="plain")
        gc.freeze()  # the objects of this benchmark are looked through by no side's garbage collection
        times: dict[str, list[float]] = {}
        for repeat in range(arguments.repeats):
            times.setdefault("tiktoken", []).append(cpu_seconds(lambda: [encode(text) for text in contents]))
            start = cpu_seconds(lambda repeat=repeat: build("start_corpus", f"{folder}/start{repeat}", console=quiet))
            whole = cpu_seconds(lambda repeat=repeat: build("benchmark_corpus", f"{folder}/cache{repeat}", console=quiet))
            times.setdefault("ours", []).append(whole - start)
            times.setdefault("tokenizers", []).append(
                cpu_seconds(lambda: [each.ids for each in tokenizer.encode_batch_fast(contents, add_special_tokens=False)])
            )
            start = cpu_seconds(lambda repeat=repeat: build("template_start_corpus", f"{folder}/start{repeat}", console=quiet))
            whole = cpu_seconds(lambda repeat=repeat: build("template_corpus", f"{folder}/cache{repeat}", console=quiet))
            times.setdefault("chat template", []).append(whole - start)
            try:
                times.setdefault("openai-harmony", []).append(cpu_seconds(lambda: harmony(path, file)))
            except ImportError:
                del times["openai-harmony"]
        seqio.add_global_cache_dirs([f"{folder}/cache0"])
        tokens = corpus.conversations("train", use_cached=True).tokens.tokens

        for _ in range(arguments.repeats):
            first = cpu_seconds(lambda: read_rows(name, epochs=1))
            more = cpu_seconds(lambda: read_rows(name, epochs=1 + MORE))
            times.setdefault("rows", []).append((more - first) / MORE)
    table = Table(title=f"{len(found):,} conversations, {tokens:,} tokens: CPU time, median of {arguments.repeats}")
    for column in ("side", "ns a token", "to the bare tokenizer"):
        table.add_column(column, justify="left" if column == "side" else "right")
    for side, seconds in times.items():
        median = statistics.median(seconds)
        bare = statistics.median(times["tokenizers" if side in ("tokenizers", "chat template") else "tiktoken"])
        table.add_row(side, f"{median / tokens * 1e9:.0f}", f"{median / bare:.2f}")
    run = "a" * 100_000
    table.add_row("a run of 100,000 letters", f"{cpu_seconds(lambda: encode(run)):.3f} s in all", "")
    Console().print(table)


if __name__ == "__main__":
    main()
