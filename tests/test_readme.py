"""The README's Python runs as it stands, and its numbers are those of the code."""

import pathlib
import re
import subprocess
import sys

import sentencepiece

from ul2_tasks import T5GEMMA2, chunk_length
from ul2_tasks.corpora import embedded_documents

REPOSITORY = pathlib.Path(__file__).parent.parent
README = (REPOSITORY / "README.md").read_text()


def test_the_python_of_the_readme_runs(tmp_path):
    """In a folder that has the corpus and the vocabulary that it speaks of."""
    documents = embedded_documents()
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "one.txt").write_text("\n".join(documents))
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
    assert len(blocks) == 3
    program = "\n".join(
        [
            *blocks,
            "print(sorted(example), sorted(next(batches.as_numpy_iterator())))",
            "own = seqio.get_mixture_or_task(name).get_dataset({'inputs': 256, 'targets': 256}, split='train', seed=0)",
            "print(len(next(own.as_numpy_iterator())['inputs']))",
        ]
    )
    paths = {"PYTHONPATH": str(REPOSITORY), "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, env=paths, check=True, capture_output=True, text=True)
    solved, default, own = done.stdout.splitlines()
    assert f"# {solved}" in README
    assert default.startswith("['inputs', 'targets'] ['decoder_input_tokens'")
    assert 0 < int(own) <= 256


def test_the_numbers_of_the_readme():
    spans = {
        budget: max(chunk_length(d, {"inputs": budget, "targets": budget}).spans for d in T5GEMMA2) for budget in (512, 2048, 16384)
    }
    assert spans == {512: 39, 2048: 157, 16384: 1260}
    assert "of 512 tokens needs 39 of them, of\n  2,048 157, of 16,384 1,260" in README
    fill = {d.name: chunk_length(d, {"inputs": 512, "targets": 512}).targets / 512 for d in T5GEMMA2}
    assert (round(fill["r1"], 2), round(fill["x1"], 2)) == (0.22, 0.18)
    assert "R1 fills 22 % of its targets and X1 18 %" in README


def test_the_table_of_the_readme_is_the_default_preset():
    rows = re.findall(r"^\| .* \| `ul2_(\w+)` \| `(\[\w\])` \| (\d+|the suffix) \| ([\d.]+) \| (\d) \|$", README, re.MULTILINE)
    assert rows == [
        (d.name, d.mode, str(getattr(d, "mean_span_length", "the suffix")), f"{d.noise_density:.2f}", str(d.weight))
        for d in T5GEMMA2
    ]
