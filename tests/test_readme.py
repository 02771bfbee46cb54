"""The README's Python runs as it stands, and its numbers are those of the code."""

import json
import pathlib
import re
import subprocess
import sys

import sentencepiece

from ul2_tasks import T5GEMMA2, chunk_length
from ul2_tasks.memory import embedded_documents

REPOSITORY = pathlib.Path(__file__).parent.parent
README = (REPOSITORY / "README.md").read_text()


def test_the_python_of_the_readme_runs(tmp_path):
    """In a folder that has the corpus and the vocabulary that it speaks of."""
    documents = embedded_documents()
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "one.txt").write_text("\n\n".join(documents))
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(documents[:100]),
        model_prefix=str(tmp_path / "my"),
        vocab_size=500,
        pad_id=0,
        eos_id=1,
        unk_id=2,
        bos_id=-1,
        minloglevel=2,
    )
    blocks = re.findall(r"^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 6
    program = "\n".join(
        [
            *blocks,
            "print(sorted(example), sorted(next(batches.as_numpy_iterator())))",
            "both = seqio.get_mixture_or_task(name).get_dataset({'inputs': 256, 'targets': 256}, split='train', seed=0)",
            "print(*(len(seqio.get_mixture_or_task(n).tasks) for n in (web, own)))",
            "print(len(next(both.as_numpy_iterator())['inputs']))",
            "print(*row, *row['labels'].shape[:1])",
            "print(half, seqio.get_mixture_or_task(half).total_rate)",
        ]
    )
    paths = {"PYTHONPATH": str(REPOSITORY), "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, env=paths, check=True, capture_output=True, text=True)
    solved, advice, default, tasks, own, row, half = done.stdout.splitlines()
    assert f"# {solved}" in README
    assert f"# {advice}" in README
    assert default.startswith("['inputs', 'targets'] ['decoder_input_tokens'")
    assert tasks == "5 6"
    assert 0 < int(own) <= 256
    assert row == "input_ids attention_mask decoder_input_ids decoder_attention_mask labels 8"
    assert half == "half_mix 16.0"


def test_the_gin_of_the_readme_mixes_two_corpora(tmp_path):
    """In a process of its own, because gin's bindings are for a whole process."""
    for name in ("web", "own"):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in embedded_documents()[:50]))
    (lines,) = re.findall(r"^      (MIXTURE_OR_TASK_NAME = @ul2_tasks\.mix\(\)\n(?:      .*\n)+)", README, re.MULTILINE)
    config = "from __gin__ import dynamic_registration\nimport ul2_tasks\n" + re.sub("^ +", "", lines, flags=re.MULTILINE)
    config = config.replace("/data/web/*.jsonl", f"{tmp_path}/web.jsonl").replace("/data/own/*.parquet", f"{tmp_path}/own.jsonl")
    program = f"""
import gin, seqio
gin.parse_config({config!r})
mixture = seqio.get_mixture_or_task(gin.query_parameter("%MIXTURE_OR_TASK_NAME").scoped_configurable_fn())
print(mixture.name, len(mixture.tasks), {{task.name: mixture.get_rate(task) for task in mixture.tasks}}["web_s"])
print(len(next(mixture.get_dataset({{"inputs": 64, "targets": 64}}, seed=0).as_numpy_iterator())["inputs"]))
"""
    paths = {"PYTHONPATH": str(REPOSITORY), "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, env=paths, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    mixture, length = done.stdout.splitlines()
    assert mixture == "both_mix 10 1.5"
    assert 0 < int(length) <= 64


def test_the_numbers_of_the_readme():
    spans = {
        budget: max(chunk_length(d, {"inputs": budget, "targets": budget}).spans for d in T5GEMMA2) for budget in (512, 2048, 16384)
    }
    assert spans == {512: 39, 2048: 157, 16384: 1260}
    assert "of 512 tokens needs 39 of them, of\n  2,048 157, of 16,384 1,260" in README
    fill = {d.name: chunk_length(d, {"inputs": 512, "targets": 512}).targets / 512 for d in T5GEMMA2}
    assert (round(fill["r1"], 2), round(fill["x1"], 2)) == (0.22, 0.18)
    assert "R1 fills 22 % of its targets\n  and X1 18 %" in README


def test_the_table_of_the_readme_is_the_default_preset():
    rows = re.findall(r"^\| .* \| `ul2_(\w+)` \| `(\[\w\])` \| (\d+|the suffix) \| ([\d.]+) \| (\d) \|$", README, re.MULTILINE)
    assert rows == [
        (d.name, d.mode, str(getattr(d, "mean_span_length", "the suffix")), f"{d.noise_density:.2f}", str(d.weight))
        for d in T5GEMMA2
    ]
