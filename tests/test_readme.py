"""The README's Python runs as it stands, and its numbers are those of the code."""

import ast
import json
import pathlib
import re
import shlex
import textwrap

import click
import new_process
import pytest
import sentencepiece

from ul2_command import main
from ul2_tasks import T5GEMMA2, chunk_length
from ul2_tasks.memory import embedded_documents

REPOSITORY = pathlib.Path(__file__).parent.parent
README = (REPOSITORY / "README.md").read_text()


def indented_blocks() -> list[str]:
    """What README shows as commands, output or gin: the blocks that are indented and not fenced."""
    unfenced = re.sub(r"^```.*?^```$", "", README, flags=re.MULTILINE | re.DOTALL)
    return [textwrap.dedent(block) for block in re.findall(r"(?:^ {4}.*\n|^ {6}.*\n|(?<=\n)\n(?= {4}))+", unfenced, re.MULTILINE)]


def commands(*words: str) -> list[list[str]]:
    """The command lines of README that begin with these words, split as a shell would."""
    lines = "\n".join(indented_blocks()).replace("\\\n", " ").splitlines()
    return [shlex.split(line, comments=True) for line in lines if line.split()[: len(words)] == list(words)]


def test_all_of_its_python_stands_in_blocks_that_are_run():
    assert len(indented_blocks()) > 15
    for block in indented_blocks():
        with pytest.raises(SyntaxError):
            ast.parse(block)


def test_the_python_of_the_readme_runs(tmp_path):
    """As one script, in a folder that has the corpus and the vocabulary that it speaks of."""
    for package in ("torch", "transformers", "accelerate"):
        pytest.importorskip(package, reason="the extra torch is not installed")
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
    ends = {
        "batches = seqio": "print(sorted(example), sorted(next(batches.as_numpy_iterator())))",
        "named = seqio": "",
        "web = register": """
both = seqio.get_mixture_or_task(name).get_dataset({"inputs": 256, "targets": 256}, split="train", seed=0)
print(*(len(seqio.get_mixture_or_task(n).tasks) for n in (web, own)), len(next(both.as_numpy_iterator())["inputs"]))""",
        "print(chunk_length": "",
        "print(best_chunk_tokens": "",
        "converter = HuggingFace": "print(*row, *row['labels'].shape[:1])",
        "dataset = UL2IterableDataset": "print(list(batch) == list(row), loss.isfinite().item())",
        "examples = UL2IterableDataset": "",
        "collator = ul2_tasks": "print(len(batch['labels']), loss.isfinite().item())",
        "half = register": "print(half, seqio.get_mixture_or_task(half).total_rate)",
    }
    blocks = re.findall(r"^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    assert [key for block, key in zip(blocks, ends) if key in block] == list(ends), "each block is known here"
    script = tmp_path / "readme.py"
    script.write_text("\n".join(f"{block}\nprint('\\n#')\n{end}\nprint('\\n#')" for block, end in zip(blocks, ends.values())))
    done = new_process.run(
        script, cwd=tmp_path, env={"PYTHONPATH": str(REPOSITORY), "TF_CPP_MIN_LOG_LEVEL": "3"}, check=True, timeout=1200
    )
    printed = dict(zip([f"{key}{part}" for key in ends for part in ("", " end")], map(str.strip, done.stdout.split("\n#\n"))))
    assert printed["batches = seqio end"].startswith("['inputs', 'targets'] ['decoder_input_tokens'")
    assert re.fullmatch("b'(r1|r2|x1|x2|s)'", printed["named = seqio"])
    tasks, length = printed["web = register end"].rsplit(" ", 1)
    assert (tasks, 0 < int(length) <= 256) == ("5 6", True)
    for key in ("print(chunk_length", "print(best_chunk_tokens"):
        assert f"# {printed[key]}\n" in README
    row = "input_ids attention_mask decoder_input_ids decoder_attention_mask labels 8"
    assert printed["converter = HuggingFace end"] == row
    assert printed["dataset = UL2IterableDataset end"] == "True True"
    trained = ast.literal_eval(printed["examples = UL2IterableDataset"].splitlines()[-1])
    assert 0 < float(trained["train_loss"]) < 12
    assert printed["collator = ul2_tasks end"] == "32 True"
    assert printed["half = register end"] == "half_mix 16.0"


def test_each_command_of_the_readme_has_the_options_that_it_shows():
    shown = commands("ul2")
    assert len(shown) > 8
    for _, name, *arguments in shown:
        command = main.commands[name]
        if isinstance(command, click.Group):
            name, *arguments = arguments
            command = command.commands[name]
        command.make_context(name, arguments)


def test_each_script_and_extra_that_the_readme_names_is_there():
    benchmarks = commands(".venv-test/bin/python")
    assert len(benchmarks) > 4
    for _, script, *arguments in benchmarks:
        text = (REPOSITORY / script).read_text()
        assert all(f'"{argument}"' in text for argument in arguments if argument.startswith("--")), arguments
    extras = re.findall(r"pip install '\.\[(.*?)\]'", README)
    assert len(extras) > 4
    assert all(f'"{extra}": ' in (REPOSITORY / "setup.py").read_text() for extra in extras)
    files = re.findall(r"--gin_file=(\S+)", README)
    assert len(files) > 2
    assert all((REPOSITORY / file).is_file() for file in files)


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
    done = new_process.run("-c", program, cwd=tmp_path, env=paths)
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
