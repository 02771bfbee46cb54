"""README and the pages of docs/: their Python runs as it stands, and their numbers, names and links are those of the code."""

import ast
import importlib
import importlib.util
import json
import pathlib
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import textwrap
import types

import click
import new_process
import pytest
import sentencepiece
import seqio
from test_advice import ADVICE

import ul2_tasks
from ul2_command import main
from ul2_tasks import T5GEMMA2, UL2, UL2R, ImageTokens, chunk_length, register_chat, register_image_text
from ul2_tasks.chat.supervision import TRAIN_ON, TRUNCATION, TURNS
from ul2_tasks.export.conversations import write_conversations
from ul2_tasks.export.megatron import write_megatron
from ul2_tasks.export.write import write_examples
from ul2_tasks.sources.memory import embedded_conversations, embedded_documents

pytestmark = pytest.mark.docs

REPOSITORY = pathlib.Path(__file__).parent.parent
README = "README.md"
ROOT = (README, "CONTRIBUTING.md", "CHANGELOG.md")
NEEDED = {"megatron": "megatron", "pytorch": "torch"}  # of rooms and modules, packages that the extra test does not have
FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)

# What is checked of a page's Python beyond that it runs; it goes on where the page's blocks end.
CHECKS = {
    README: """
assert sorted(example) == ["inputs", "targets"]
assert "encoder_segment_ids" in batches.element_spec and "labels" in converter.MODEL_FEATURES
""",
    "docs/get_started/first_run.md": """
assert sorted(example) == ["inputs", "targets"]
assert "encoder_segment_ids" in batches.element_spec
""",
    "docs/guides/whole_documents.md": """
assert rows.find(17) == [index for index in range(len(rows)) if any(each.documents == ((17, 18),) for each in rows.locate(index))]
assert {int(group) for each in examples for group in each["span_id"]} >= {2, 4}
""",
    "docs/explanation/kinds_of_data.md": """
assert [text, chat, photos] == ["text_mix", "talks_chat", "photos_mix"]
""",
    "docs/explanation/cost.md": """
assert round(1.50 / 5.1e6, 9) == tokenize  # docs/explanation/performance.md has 1.50 CPU s for 5.1 million tokens
""",
    "docs/get_started/from_hugging_face.md": """
assert len(batch["labels"]) == 8
row = next(iter(sequences))
assert len(row["input_ids"]) == 256 and 0 < (row["labels"] != -100).sum() < (row["attention_mask"] == 1).sum()
written = vocabulary.decode([id + shift for id in example["inputs"].tolist()])
assert tokenizer(written, add_special_tokens=False)["input_ids"] == example["inputs"].tolist()
assert prompt["input_ids"][0, 0] == 1257 and prompt["input_ids"][0, -2:].tolist() == [1000, 1]
assert get_last_checkpoint("checkpoints") == "checkpoints/checkpoint-4" and ul2_tasks.UL2IterableDataset(
    mixture, lengths, cache_dirs=["CACHE"]
).state_dict()["number"] == 0
""",
    "docs/get_started/which_path.md": """
assert len(batch["labels"]) == 32 and len(inputs["labels"]) == 8 and examples[0]["inputs"].shape == (128,)
""",
    "docs/guides/adapt_gemma3.md": """
assert 102 <= example["inputs"][0] <= 104 and 0 < result.training_loss < 1000
""",
    "docs/guides/lengths.md": "",
    "docs/guides/mix.md": """
import seqio
assert name == "both_mix" and len(seqio.get_mixture_or_task(name).tasks) == 10
web_s, own_s = (seqio.get_mixture_or_task(tempered).get_rate(seqio.TaskRegistry.get(name)) for name in ("web_s", "own_s"))
assert round(web_s / own_s, 2) == 3.23
corpora = {task.corpus.name for task in seqio.get_mixture_or_task(objectives).tasks}
assert (ul2, corpora) == ("web_ul2_mix", {"web_corpus"})
""",
    "docs/guides/tokenizer.md": """
assert register("unused", "embedded", "gemma.model", **gemma) == "unused_mix"
example = next(seqio.get_mixture_or_task("trained_r1").get_dataset({"inputs": 64, "targets": 64}).as_numpy_iterator())
assert example["inputs"][0] == 600 and example["targets"][0] == 599
""",
    "docs/guides/train_tokenizer.md": "",
    "docs/guides/corpus.md": """
import seqio
mixture = seqio.get_mixture_or_task(name)
example = next(mixture.get_dataset({"inputs": 64, "targets": 64}, split="train", seed=0).as_numpy_iterator())
assert len(list(source().get_dataset("validation").as_numpy_iterator())) == 100
assert [len(seqio.get_mixture_or_task(one).tasks) for one in (web, own)] == [5, 6] and 0 < len(example["inputs"]) <= 64
""",
    "docs/guides/cache.md": """
import seqio
dataset = seqio.get_mixture_or_task("mine_mix").get_dataset({"inputs": 64, "targets": 64}, split="train", seed=0)
assert len(next(dataset.as_numpy_iterator())["inputs"]) <= 64
""",
    "docs/guides/random_access.md": """
assert len(later) == 10 and len(batch) == 8
assert {"inputs", "targets", "denoiser", "task"} == batch[0].keys()
""",
    "docs/guides/block_shuffle.md": """
whole = ul2_tasks.examples(ul2_tasks.Mixture("mine"), {"inputs": 128, "targets": 128}, seed=0)
assert ul2_tasks.BlockShuffle() == blocks and (whole[3]["inputs"] == examples[3]["inputs"]).all()
""",
    "docs/guides/leave_out.md": """
assert resumed.find(3) == [index for index in examples.find(3) if index < 40 * 8]
assert resumed.locate(20 * 8) == ul2_tasks.examples(mixture, lengths, exclude={10: listed}, batch_size=8).locate(22 * 8)
""",
    "docs/guides/export.md": """
assert collate([{"inputs": [5, 6], "targets": [7]}, {"inputs": [5], "targets": [7, 8]}])["labels"].tolist() == [[7, -100], [7, 8]]
assert image.size[0] > 0 and batch["pixel_values"].shape[1:] == (3, 8, 8)
assert batch["labels"].shape[0] == 4 and (batch["input_ids"] == 263).sum() == 4 * len(batch["pixel_values"])
""",
    "docs/guides/operate.md": """
import pathlib
assert pathlib.Path("blocks").is_dir() and loader.batches == 200
""",
    "docs/guides/schedule.md": """
assert sum(example["task"].startswith("web") for example in examples[step * 128 : step * 128 + 128]) == 64
assert len(ul2_tasks.examples(uneven, lengths)) == 204_800_000
changed = ul2_tasks.examples(objectives, lengths)
assert [changed[first * 128]["task"].rpartition("_")[0] for first in (0, 30_000, 49_000)] == ["ul2", "gemma", "s_alone"]
joined = ul2_tasks.examples(after, lengths)
assert sum(example["task"].startswith("new") for example in joined[6_000 * 128 : 6_003 * 128]) == 128
""",
    "docs/guides/denoisers.md": """
import seqio
assert half == "half_mix" and seqio.get_mixture_or_task(half).total_rate == 16
""",
    "docs/guides/migrate_from_t5.md": """
from ul2_tasks import T5GEMMA2
assert 0 < len(example["targets"]) < len(example["inputs"]) <= 512
assert [chunk_length(T5GEMMA2[4], {"inputs": 512, "targets": targets}).length for targets in (114, 512)] == [150, 680]
assert chunk_length(prefix, {"inputs": 512, "targets": 512}).length == 512 and prefix.noise_range(512) == (1, 511)
""",
    "docs/guides/resume.md": "",
    "docs/guides/train_with_t5x.md": """
import seqio
import ul2_tasks
assert seqio.get_mixture_or_task("mine_mix").tasks[0].splits == ("train", "validation")
assert [one.split for one in fixed(ul2_tasks.UL2R) if one.name == "s"] == ["fixed"]
""",
    "docs/guides/chat.md": """
assert example.keys() == {"tokens", "loss_mask", "span_id"} and "decoder_span_ids" in rows.element_spec
""",
    "docs/guides/images/overview.md": """
assert row["packed_vae_patches"].shape[1] == 768 and [len(source.records) for source in sources] == [32, 32]
""",
    "docs/guides/images/records.md": """
assert mask.shape == (3817, 3817) and sample.counts.tokens == row.sample_lens.sum() and len(row) == 17
""",
    "docs/guides/images/rows.md": """
assert found.sample.shape == tensors["packed_position_ids"].shape and sum(data["sample_lens"]) == 16384
""",
    "docs/guides/images/t5gemma2.md": """
assert {263} < set(example["inputs"].tolist()) and len(example["images"]) == (example["inputs"] == 263).sum() / 4
assert batch["pixel_values"].shape == (4, 3, 8, 8) and loss.isfinite()
assert asked["targets"].tolist() == [368, 262, 265, 265, 265, 265, 263, 1]
assert [len(chunk["inputs"]) for chunk in chunks] == [24, 18]
""",
    "docs/guides/pytorch_and_transformers.md": """
assert list(first) == ["input_ids", "attention_mask", "decoder_input_ids", "decoder_attention_mask", "labels"]
assert all(len(values) == 8 for values in first.values())
assert len(batch["labels"]) == len(original_ids) == 3 and loss.isfinite()
""",
    "docs/guides/loss_by_denoiser.md": """
assert {"loss", "loss_r1", "loss_s"} <= means.keys()
assert all(parameter.grad.isfinite().all() for parameter in model.parameters())
""",
    "docs/guides/chat_transformers.md": """
assert len(row["labels"]) == 1024 and (row["labels"] != -100).any()
logged = trainer.state.log_history[0]
assert {"loss", "reasoning_loss", "reasoning_tokens", "answer_weight"} <= logged.keys()
assert all(parameter.grad.isfinite().all() for parameter in model.parameters())
anew = UL2IterableDataset(chat, {"tokens": 1024}, rank=0, world_size=1, feature_converter=HuggingFaceChatConverter())
read = [row["packed_input_ids"] for row, _ in zip(anew, range(10))]
assert kept["step"] == 2 and next(rows)["packed_input_ids"].equal(torch.stack(read[8:]))
""",
    "docs/guides/chat_megatron.md": """
assert len(train) == 16 and sample["span_id"].any()
ends = sum((train[number]["tokens"][:-1] == manifest["eod"]).sum() for number in range(len(train)))
assert ends > 0 and ends == sum((train[number]["position_ids"][1:] == 0).sum() for number in range(len(train)))
losses = torch.ones(len(train), 128, requires_grad=True)
groups = torch.stack([train[number]["span_id"] for number in range(len(train))])
loss, reported = loss_function(groups, losses)
loss.backward()
assert loss.isfinite() and reported["tokens_reasoning"][0] == (groups == 1).sum() and ((losses.grad > 0) == (groups > 0)).all()
""",
}


def generated_pages() -> types.ModuleType:
    """The module that makes pages when the site is built."""
    spec = importlib.util.spec_from_file_location("generated_pages", REPOSITORY / "docs" / "generated_pages.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


WRITTEN = {name: (REPOSITORY / name).read_text() for name in ROOT} | {
    str(path.relative_to(REPOSITORY)): path.read_text() for path in sorted((REPOSITORY / "docs").rglob("*.md"))
}
NOW = {page: text for page, text in WRITTEN.items() if page != "CHANGELOG.md"}  # which has former names, too
GENERATED = {f"docs/{path}": text for path, text in generated_pages().pages().items()}


def blocks(page: str, language: str) -> list[str]:
    return [text for name, text in FENCED.findall(WRITTEN[page]) if name == language]


def indented_blocks(page: str) -> list[str]:
    """Commands and output that are indented and not fenced."""
    return [textwrap.dedent(block) for block in re.findall(r"(?:^ {4}.*\n|(?<=\n)\n(?= {4}))+", unfenced(page), re.MULTILINE)]


def unfenced(page: str) -> str:
    return FENCED.sub("", WRITTEN[page])


def commands(*words: str) -> list[list[str]]:
    """The command lines of all pages that begin with these words, split as a shell would."""
    shown = "\n".join(block for page in WRITTEN for block in (*indented_blocks(page), *blocks(page, "shell")))
    lines = shown.replace("\\\n", " ").splitlines()
    return [shlex.split(line, comments=True) for line in lines if line.split()[: len(words)] == list(words)]


def words_of(page: str) -> str:
    return re.sub(r"\s+", " ", WRITTEN[page])


def test_readme_is_two_screens():
    assert len(WRITTEN[README].splitlines()) <= 130


def test_all_python_stands_in_blocks_that_are_run():
    for page in WRITTEN:
        assert {language for language, _ in FENCED.findall(WRITTEN[page])} <= {"python", "shell", "text", "gin"}, page
        shown = [*indented_blocks(page), *(block for kind in ("shell", "text", "gin") for block in blocks(page, kind))]
        for block in shown:
            with pytest.raises(SyntaxError):
                ast.parse(block)
    with_python = {page for page in WRITTEN if blocks(page, "python")}
    assert with_python - CHECKS.keys() == {"docs/guides/pack.md"}, "of which the next test but one knows the number"


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> pathlib.Path:
    """A folder with the corpus and the vocabulary that the pages speak of."""
    path, documents = tmp_path_factory.mktemp("pages"), embedded_documents()
    (path / "corpus").mkdir()
    (path / "talk").mkdir()
    (path / "talk" / "one.jsonl").write_text("\n".join(embedded_conversations()))
    (path / "corpus" / "one.txt").write_text("\n\n".join(documents))
    (path / "corpus" / "one.jsonl").write_text("\n".join(json.dumps({"text": text}) for text in documents))
    write_megatron(seqio.TaskRegistry.get("ul2_corpus"), str(path / "megatron"))
    write_conversations(register_chat("talks"), str(path / "build"))
    if importlib.util.find_spec("PIL"):  # the extra images
        settings = {"modes": {"[R]": 259}, "sentinels": range(368, 264, -1), "image_tokens": ImageTokens(262, 263, 264, 4)}
        stories = register_image_text("stories", "embedded", seqio.ByteVocabulary(extra_ids=110), T5GEMMA2[0], **settings)
        write_examples(stories, str(path / "stories"), {"inputs": 640, "targets": 640}, format="parquet")
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(documents[:100]),
        model_prefix=str(path / "my"),
        vocab_size=500,
        pad_id=0,
        eos_id=1,
        unk_id=2,
        bos_id=-1,
        minloglevel=2,
    )
    return path


@pytest.mark.parametrize("page", CHECKS)
def test_the_python_of_a_page_runs(page, folder, tmp_path):
    """As one script in its own folder. Comments after a print are what it prints; other blocks run with lengths of 128, not 512."""
    if any("torch" in block for block in blocks(page, "python")):
        for package in ("torch", "transformers", "accelerate"):
            pytest.importorskip(package, reason="the extra torch is not installed")
    if any("import datasets" in block for block in blocks(page, "python")):
        pytest.importorskip("datasets", reason="the extra huggingface is not installed")
    if any("megatron.core" in block for block in blocks(page, "python")):
        pytest.importorskip("megatron.core", reason="megatron-core is not installed")
    told = [re.findall(r"^print\(.*\n((?:# .*\n)+)", block, re.MULTILINE) for block in blocks(page, "python")]
    shown = [block if "Chunk(" in block else block.replace("512", "128") for block in blocks(page, "python")]
    own = shutil.copytree(folder, tmp_path / "own")
    script = own / f"{pathlib.Path(page).stem}.py"
    script.write_text("\n".join([*shown, CHECKS[page]]))
    environment = {"PYTHONPATH": str(REPOSITORY), "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
    done = new_process.run(script, cwd=own, env=environment, check=True, timeout=600, torn_down=True)
    for text in (text for texts in told for text in texts):
        assert re.sub("^# ", "", text, flags=re.MULTILINE) in done.stdout
    if "such as b'r2'" in WRITTEN[page]:
        assert re.search("^b'(r1|r2|x1|x2|s)'$", done.stdout, re.MULTILINE)


def test_the_advice_is_that_of_the_tests_of_packing():
    (block,) = blocks("docs/guides/pack.md", "python")
    assert f"# {ADVICE}\n" in block
    assert f"--chunk_tokens {','.join(f'{name}={tokens}' for name, tokens in ADVICE.items())}`" in words_of("docs/guides/pack.md")


def test_each_command_has_the_options_that_are_shown():
    shown = commands("ul2")
    assert len(shown) > 12
    for _, name, *arguments in shown:
        command = main.commands[name]
        if isinstance(command, click.Group):
            name, *arguments = arguments
            command = command.commands[name]
        command.make_context(name, arguments)


def test_each_script_and_extra_that_is_named_is_there():
    benchmarks = [line for line in commands(".venv-test/bin/python") if line[1] != "-m"]
    assert len(benchmarks) > 4
    for _, script, *arguments in benchmarks:
        path = REPOSITORY / script
        text = (path / "__main__.py" if path.is_dir() else path).read_text()
        assert all(f'"{argument}"' in text for argument in arguments if argument.startswith("--")), arguments
    everything = "\n".join(WRITTEN.values())
    extras = {extra for names in re.findall(r"'\.\[(.*?)\]'", everything) for extra in names.split(",")}
    assert len(extras) > 7
    assert all(f'"{extra}": ' in (REPOSITORY / "setup.py").read_text() for extra in extras)
    files = set(re.findall(r"--gin_file=(gin/\S+)", everything)) | set(re.findall(r"^include '(gin/.*)'", everything, re.MULTILINE))
    assert len(files) > 3
    assert all((REPOSITORY / file).is_file() for file in files)


def test_each_name_of_the_package_that_is_written_out_is_there():
    """Bindings of gin name arguments, and are tested where gin reads them."""
    documented = set(re.findall(r"^::: (\S+)", WRITTEN["docs/reference/python.md"], re.MULTILINE))
    assert documented >= {f"ul2_tasks.{name}" for name in ul2_tasks.__all__}
    bindings = r"^```gin\n.*?^```$|`[^`\n]+ = [^`\n]+`|--gin\.\S+"
    text = "\n".join(re.sub(bindings, "", text, flags=re.MULTILINE | re.DOTALL) for text in NOW.values())
    for name in sorted(set(re.findall(r"\bul2_tasks(?:\.\w+)+", text))):
        module, _, attribute = name.rpartition(".")
        if module == "ul2_tasks" and attribute in dir(ul2_tasks):
            continue  # tests/test_when_imported.py imports each of them
        package = NEEDED.get(name.split(".")[1])
        if package and importlib.util.find_spec(package) is None:
            continue
        assert hasattr(importlib.import_module(module), attribute) or importlib.util.find_spec(name), name


def texts_of(path: pathlib.Path) -> list[str]:
    """The texts in a module, those of an f-string between its values."""
    constants = (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Constant))
    return [node.value for node in constants if isinstance(node.value, str)]


def slug(heading: str) -> str:
    """The anchor of a heading, as the site and GitHub have it."""
    return re.sub(r"\s+", "-", re.sub(r"[^\w\s-]", "", heading.lower()).strip())


def test_links_lead_somewhere():
    links = 0
    for page, text in {**WRITTEN, **GENERATED}.items():
        pages = {**WRITTEN, **GENERATED} if page.startswith("docs/") else {**GENERATED, **WRITTEN}
        for target in re.findall(r"\]\(([^)\s]+)\)", FENCED.sub("", text)):
            if "://" in target:
                continue
            links += 1
            path, _, anchor = target.partition("#")
            file = (REPOSITORY / page).parent.joinpath(path).resolve() if path else REPOSITORY / page
            name = str(file.relative_to(REPOSITORY))
            assert name in pages or file.is_file(), f"{page}: {target}"
            if anchor:
                headings = re.findall(r"^#+ (.*)$", FENCED.sub("", pages[name]), re.MULTILINE)
                assert anchor in map(slug, headings), f"{page}: {target}"
    assert links > 60


def test_the_messages_that_troubleshooting_quotes_are_the_package_s():
    """Two dots stand for what differs from one error to another."""
    texts = "\n".join(text for path in REPOSITORY.glob("ul2_*/**/*.py") for text in texts_of(path))
    lines = [line for block in blocks("docs/help/troubleshooting.md", "text") for line in block.splitlines()]
    assert len(lines) > 30
    for line in lines:
        for fragment in re.sub(r"^\w+Error: ", "", line).split(".."):
            assert fragment.strip() in texts, line


def test_the_pointers_of_messages_are_headings_of_troubleshooting():
    headings = re.findall(r"^#+ (.*)$", FENCED.sub("", WRITTEN["docs/help/troubleshooting.md"]), re.MULTILINE)
    texts = "\n".join(text for path in REPOSITORY.glob("ul2_*/**/*.py") for text in texts_of(path))
    anchors = re.findall(r"docs/help/troubleshooting\.md(?:#([\w-]*))?", texts)
    assert len({*anchors}) > 20
    assert {*anchors} <= {*map(slug, headings)}


def test_links_of_readme_are_files():
    """It is read on GitHub too, where no page is generated."""
    for target in re.findall(r"\]\(([^)#\s]+)", unfenced(README)):
        assert "://" in target or (REPOSITORY / target).is_file(), target


def test_the_table_of_layers_has_each_folder_once():
    rows = re.findall(r"^\| `(\w+)/` \|", WRITTEN["docs/developers/architecture.md"], re.MULTILINE)
    assert sorted(rows) == sorted(path.parent.name for path in (REPOSITORY / "ul2_tasks").glob("*/__init__.py"))


def test_every_page_is_in_the_navigation():
    navigation = (REPOSITORY / "mkdocs.yml").read_text().split("\nnav:\n")[1].split("\nvalidation:")[0]
    listed = re.findall(r"(\S+\.md)$", navigation, re.MULTILINE)
    pages = {name.removeprefix("docs/") for name in {**WRITTEN, **GENERATED} if name.startswith("docs/")}
    assert sorted(listed) == sorted(pages)


def test_generated_pages_hold_what_they_are_made_of():
    assert all(f"\n## ul2 {name}\n" in GENERATED["docs/reference/command.md"] for name in main.commands)
    assert "--max_documents" in GENERATED["docs/reference/command.md"]
    for path in (REPOSITORY / "gin").rglob("*.gin"):
        assert f"\n## {path.relative_to(REPOSITORY)}\n" in GENERATED["docs/reference/gin.md"]
    assert len(re.findall(r"^## \d+\. ", GENERATED["docs/tutorial.md"], re.MULTILINE)) == 10


def test_the_notebooks_are_those_of_the_tutorials():
    """`python docs/generated_pages.py` writes them again."""
    module = generated_pages()
    expected = {f"{name}.ipynb": module.notebook(script) for name, script in module.TUTORIALS.items()}
    assert {path.name: path.read_text() for path in module.NOTEBOOKS.glob("*.ipynb")} == expected


def test_the_site_builds(tmp_path):
    pytest.importorskip("mkdocstrings", reason="the extra docs is not installed")
    pytest.importorskip("material", reason="the extra docs is not installed")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", tmp_path]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    python = (tmp_path / "reference" / "python.html").read_text()
    assert all(f'id="ul2_tasks.{name}"' in python for name in ul2_tasks.__all__)
    for page in tmp_path.rglob("*.html"):
        loaded = re.findall(
            r'<(?:script|img|iframe)[^>]* src="?([^"\s>]+)|<link[^>]* rel="?stylesheet"? href="?([^"\s>]+)', page.read_text()
        )
        assert not [url for urls in loaded for url in urls if "//" in url], "all of it is on the disk"


def printed_with_gin(config: str, program: str, folder: pathlib.Path) -> str:
    """What a program prints after gin has read a configuration: in a process of its own, for which the bindings are."""
    program = f"import gin, seqio\ngin.parse_config({config!r})\n{program}"
    paths = {"PYTHONPATH": str(REPOSITORY), "TF_CPP_MIN_LOG_LEVEL": "3"}
    return new_process.run("-c", program, cwd=folder, env=paths, check=True).stdout


def test_the_gin_of_the_pages_mixes_two_corpora(tmp_path):
    """Whose files are not there, and not opened."""
    (lines,) = blocks("docs/guides/mix.md", "gin")
    program = """
mixture = seqio.get_mixture_or_task(gin.query_parameter("%MIXTURE_OR_TASK_NAME").scoped_configurable_fn())
print(mixture.name, len(mixture.tasks), {task.name: mixture.get_rate(task) for task in mixture.tasks}["web_s"])
print(all("validation" in task.splits for task in mixture.tasks))  # t5x evaluates on "validation"
"""
    config = f"from __gin__ import dynamic_registration\nimport ul2_tasks\n{lines}"
    assert printed_with_gin(config, program, tmp_path) == "both_mix 10 1.5\nTrue\n"


def test_the_gin_of_the_page_of_schedules_registers_one(tmp_path):
    (lines,) = blocks("docs/guides/schedule.md", "gin")
    program = """
planned = seqio.get_mixture_or_task(gin.query_parameter("%MIXTURE_OR_TASK_NAME").scoped_configurable_fn()).planned
print([(stage.first_step, stage.mixtures, stage.ramp_steps) for stage in planned.stages], planned.batch_size, planned.steps)
"""
    config = f"from __gin__ import dynamic_registration\nimport ul2_tasks\n{lines}"
    assert printed_with_gin(config, program, tmp_path) == (
        "[(0, (('code_mix', 1), ('web_mix', 3)), 0), (10000, (('code_mix', 1), ('web_mix', 1)), 2000)] 128 50000\n"
    )


def test_gin_shares_a_corpus(tmp_path):
    """As the page says. What is bound for all calls of `register` is that of the corpus, too."""
    (bound,) = re.findall(r"`(own/ul2_tasks\.register\.corpus = .*)`", WRITTEN["docs/guides/mix.md"])
    lines = f"""from __gin__ import dynamic_registration
import ul2_tasks
ul2_tasks.register.source = 'corpus/*.jsonl'
web/ul2_tasks.register.name = 'web'
own/ul2_tasks.register.name = 'own'
{bound}
NAME = @own/ul2_tasks.register()
"""
    program = """
mixture = seqio.get_mixture_or_task(gin.query_parameter("%NAME").scoped_configurable_fn())
print(mixture.name, {task.corpus.name for task in mixture.tasks})
"""
    assert printed_with_gin(lines, program, tmp_path) == "own_mix {'web_corpus'}\n"


def test_the_gin_of_readme_registers_a_corpus(folder):
    """What it binds of ours; t5x's part is tested with t5x."""
    (lines,) = blocks(README, "gin")
    config = re.sub(r"^include .*\n", "", lines, flags=re.MULTILINE)
    program = """
name = gin.query_parameter("%NAME").scoped_configurable_fn()
mixture = seqio.MixtureRegistry.get(name)
print(name, mixture.output_features["inputs"].vocabulary.vocab_size, all("validation" in task.splits for task in mixture.tasks))
"""
    bound = "NAME = @ul2_tasks.register()\nul2_tasks.register.vocabulary = %VOCABULARY"  # as ul2.gin has it
    assert printed_with_gin(config + bound, program, folder) == "mine_mix 759 True\n", "500 pieces, 256 sentinels and 3 modes"


def test_the_numbers_of_the_pages():
    for length, shown in ((512, "39 | 127"), (2048, "157 | 511"), (16384, "1,260 | 4,095")):
        lengths = {"inputs": length, "targets": length}
        needed = [max(chunk_length(d, lengths).spans for d in preset) for preset in (T5GEMMA2, UL2, UL2R)]
        assert [f"{spans:,}" for spans in needed] == [*shown.split(" | "), shown.split(" | ")[1]]
        assert f"| {length}/{length} | {shown} |" in WRITTEN["docs/guides/tokenizer.md"]
    assert "| 512 | 2,048 | 16,384 | |---|---|---|---| | sentinels | 39 | 157 | 1,260 |" in words_of("docs/help/troubleshooting.md")
    assert "| `UL2`, `UL2R` | 127 | 511 | 4,095 |" in words_of("docs/guides/lengths.md")
    assert "`UL2` and `UL2R` need 127, 511 and 4,095." in words_of("docs/help/troubleshooting.md")
    fill = {d.name: chunk_length(d, {"inputs": 512, "targets": 512}).targets / 512 for d in T5GEMMA2}
    assert (round(fill["r1"], 2), round(fill["x1"], 2)) == (0.22, 0.18)
    assert "R1 fills 22 % of its targets and X1 18 %" in words_of("docs/guides/lengths.md")
    r1 = chunk_length(T5GEMMA2[0], {"inputs": 512, "targets": 512})
    assert (
        f"L = {r1.length}: n = {r1.noise}, k = {r1.spans}, inputs of 1 + {r1.length - r1.noise} + {r1.spans} + 1 = {r1.inputs} and"
        f" targets of {r1.noise} + {r1.spans} + 1 = {r1.targets} tokens"
    ) in words_of("docs/explanation/objective.md")


def test_the_values_of_options_on_chat_pages_are_those_of_the_code():
    (table,) = re.findall(r"^\| option \| values, default first .*\n(?:\|.*\n)+", WRITTEN["docs/guides/chat.md"], re.MULTILINE)
    for option, choices in {"train_on": TRAIN_ON, "turns": TURNS, "truncation": TRUNCATION}.items():
        (row,) = re.findall(rf"^\| `{option}` \| (.*?) \|", table, re.MULTILINE)
        assert tuple(re.findall(r'`"(\w+)"`', row)) == choices
        used = {value for text in NOW.values() for value in re.findall(rf"""\b{option}=["'](\w+)["']""", text)}
        assert used <= {*choices}


def test_the_numbers_of_readme_are_those_of_the_pages():
    for page, number in (
        ("performance", "| model features | 512 | **14** |"),
        ("performance", "| 673 | 206 |"),
        ("performance", "| JSON Lines, SentencePiece | 0.99 | 1.50 (1.52)"),
        ("performance", "| MB written | | 10.6 |"),
        ("pack", "| 512/512 | 65.1 / 78.1 |"),
        ("pack", "**98.8 / 97.9**"),
    ):
        (text,) = (text for name, text in WRITTEN.items() if name.endswith(f"/{page}.md"))
        assert number in text
        assert all(digits in WRITTEN[README] for digits in re.findall(r"\d+\.\d+|\d{2,}", number.split("(")[0]) if digits != "512")


def test_the_version_that_is_cited_is_this_one():
    assert f"\nversion: {ul2_tasks.__version__}\n" in (REPOSITORY / "CITATION.cff").read_text()


def test_the_bars_of_readme_are_the_numbers_of_the_page():
    """`python docs/draw_bars.py` draws them again."""
    script = runpy.run_path(str(REPOSITORY / "docs" / "draw_bars.py"))
    assert script["FIGURE"].read_text() == script["draw"]()
    assert [f">{cost} ns<" in script["draw"]() for cost in (14, 206, 673)] == [True] * 3, "as README has them"


def test_the_lines_of_the_losses_are_the_numbers_of_the_page():
    """`python docs/draw_losses.py` draws them again."""
    script = runpy.run_path(str(REPOSITORY / "docs" / "draw_losses.py"))
    assert script["FIGURE"].read_text() == script["draw"]()


def test_the_figures_of_the_pages_are_up_to_date():
    """`python docs/draw_figures.py` draws them again."""
    for name, draw in runpy.run_path(str(REPOSITORY / "docs" / "draw_figures.py"))["FIGURES"].items():
        assert (REPOSITORY / "docs" / name).read_text() == draw(), name


@pytest.mark.parametrize("page", [README, "docs/explanation/objective.md"])
def test_the_table_of_denoisers_is_the_default_preset(page):
    rows = re.findall(
        r"^\| .* \| `ul2_(\w+)` \| `(\[\w\])` \| (\d+|the suffix) \| ([\d.]+) \| (\d) \|$", WRITTEN[page], re.MULTILINE
    )
    assert rows == [
        (d.name, d.mode, str(getattr(d, "mean_span_length", "the suffix")), f"{d.noise_density:.2f}", str(d.weight))
        for d in T5GEMMA2
    ]
