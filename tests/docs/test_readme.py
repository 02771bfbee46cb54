"""README and the pages of docs/: their Python, gin and commands run or are there, and their links lead somewhere."""

import ast
import importlib
import importlib.util
import json
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import textwrap
import types

import click
import pytest
import sentencepiece
import seqio

import ul2_tasks
from tests import programs
from ul2_tasks import T5GEMMA2, ImageTokens, embedded_documents
from ul2_tasks.cli import main
from ul2_tasks.export.megatron import write_megatron
from ul2_tasks.export.write import write_examples
from ul2_tasks.sources.memory import embedded_conversations

pytestmark = pytest.mark.docs

REPOSITORY = pathlib.Path(__file__).parents[2]
README = "README.md"
NEEDED = {"megatron": "megatron", "pytorch": "torch"}  # of rooms and modules, packages that the extra test does not have
FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def generated_pages() -> types.ModuleType:
    """The module that makes pages when the site is built."""
    spec = importlib.util.spec_from_file_location("generated_pages", REPOSITORY / "docs" / "generated_pages.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


WRITTEN = {
    str(path.relative_to(REPOSITORY)): path.read_text()
    for path in (*sorted(REPOSITORY.glob("*.md")), *sorted((REPOSITORY / "docs").rglob("*.md")))
}
GENERATED = {f"docs/{path}": text for path, text in generated_pages().pages().items()}


def blocks(page: str, language: str) -> list[str]:
    return [text for name, text in FENCED.findall(WRITTEN[page]) if name == language]


def unfenced(text: str) -> str:
    return FENCED.sub("", text)


def indented_blocks(page: str) -> list[str]:
    """Commands and output that are indented and not fenced."""
    return [
        textwrap.dedent(block) for block in re.findall(r"(?:^ {4}.*\n|(?<=\n)\n(?= {4}))+", unfenced(WRITTEN[page]), re.MULTILINE)
    ]


def commands(*words: str) -> list[list[str]]:
    """The command lines of all pages that begin with these words, split as a shell would."""
    shown = "\n".join(block for page in WRITTEN for block in (*indented_blocks(page), *blocks(page, "shell")))
    lines = shown.replace("\\\n", " ").splitlines()
    return [shlex.split(line, comments=True) for line in lines if line.split()[: len(words)] == list(words)]


def test_all_python_stands_in_blocks_that_are_run():
    for page in WRITTEN:
        assert {language for language, _ in FENCED.findall(WRITTEN[page])} <= {"python", "shell", "text", "gin"}, page
        shown = [*indented_blocks(page), *(block for kind in ("shell", "text", "gin") for block in blocks(page, kind))]
        for block in shown:
            with pytest.raises(SyntaxError):
                ast.parse(block)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> pathlib.Path:
    """A folder with the corpus and the vocabulary that the pages speak of."""
    path, documents = tmp_path_factory.mktemp("pages"), embedded_documents()
    (path / "corpus").mkdir()
    (path / "talk").mkdir()
    (path / "talk" / "one.jsonl").write_text("\n".join(embedded_conversations()))
    (path / "corpus" / "one.txt").write_text("\n\n".join(documents))
    (path / "corpus" / "one.jsonl").write_text("\n".join(json.dumps({"text": text}) for text in documents))
    write_megatron(seqio.TaskRegistry.get("ul2_corpus").corpus, str(path / "megatron"))
    write_examples(ul2_tasks.Chat(), str(path / "build"), {"tokens": None}, format="megatron")
    if importlib.util.find_spec("PIL"):  # the extra images
        settings = {"modes": {"[R]": 259}, "sentinels": range(368, 264, -1), "image_tokens": ImageTokens(262, 263, 264, 4)}
        stories = ul2_tasks.ImageText("stories", "embedded", seqio.ByteVocabulary(extra_ids=110), T5GEMMA2[0], **settings)
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


@pytest.mark.parametrize("page", [page for page in WRITTEN if blocks(page, "python")])
def test_the_python_of_a_page_runs(page, folder, tmp_path):
    """As one script in its own folder. Comments below a print are what it prints; other blocks run with lengths of 128, not 512."""
    needed = {
        "torch": ("torch", "transformers", "accelerate"),
        "import datasets": ("datasets",),
        "megatron.core": ("megatron.core",),
    }
    for package in (name for words, names in needed.items() if words in "".join(blocks(page, "python")) for name in names):
        pytest.importorskip(package, reason=f"{package} is not installed")
    told = [re.findall(r"^print\(.*\n((?:# .*\n)+)", block, re.MULTILINE) for block in blocks(page, "python")]
    as_shown = ("Chunk(", "best_chunk_tokens(")  # whose numbers are those of 512
    shown = [block if any(name in block for name in as_shown) else block.replace("512", "128") for block in blocks(page, "python")]
    own = shutil.copytree(folder, tmp_path / "own")
    script = own / f"{pathlib.Path(page).stem}.py"
    script.write_text("\n".join(shown))
    environment = programs.environment(TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="")
    done = programs.run(script, cwd=own, env=environment, check=True)
    for text in (text for texts in told for text in texts):
        assert re.sub("^# ", "", text, flags=re.MULTILINE) in done.stdout


def test_each_command_has_the_options_that_are_shown():
    shown = commands("ul2")
    assert len(shown) > 12
    for _, name, *arguments in (each for each in shown if len(each) > 1):
        command = main.commands[name]
        if isinstance(command, click.Group):
            name, *arguments = arguments
            command = command.commands[name]
        command.make_context(name, arguments)


def test_each_script_and_extra_that_is_named_is_there():
    for _, script, *arguments in (line for line in commands(".venv-test/bin/python") if line[1] != "-m"):
        path = REPOSITORY / script
        text = (path / "__main__.py" if path.is_dir() else path).read_text()
        assert all(f'"{argument}"' in text for argument in arguments if argument.startswith("--")), arguments
    everything = "\n".join(WRITTEN.values())
    extras = {extra for names in re.findall(r"'\.\[(.*?)\]'", everything) for extra in names.split(",")}
    declared = (REPOSITORY / "pyproject.toml").read_text().partition("[project.optional-dependencies]")[2]
    assert all(f"\n{extra} = [" in declared for extra in extras)
    files = {*re.findall(r"--gin_file=(gin/\S+)", everything), *re.findall(r"^include '(gin/.*)'", everything, re.MULTILINE)}
    files |= {path.rstrip(".") for path in re.findall(r"(?<!/)\b(?:benchmarks|recipes)/[a-z]\w*(?:\.py)?", everything)}
    assert len(files) > 10
    assert [file for file in files if not (REPOSITORY / file).exists()] == []


def test_each_name_of_the_package_that_is_written_out_is_there():
    """Bindings of gin name arguments, and are tested where gin reads them."""
    reference = "".join(text for page, text in WRITTEN.items() if page.startswith("docs/reference/python"))
    documented = set(re.findall(r"^::: (\S+)", reference, re.MULTILINE))
    assert documented >= {f"ul2_tasks.{name}" for name in ul2_tasks.__all__}
    bindings = r"^```gin\n.*?^```$|`[^`\n]+ = [^`\n]+`|--gin\.\S+"
    pages = (text for page, text in WRITTEN.items() if page != "CHANGELOG.md")  # which has former names, too
    text = "\n".join(re.sub(bindings, "", text, flags=re.MULTILINE | re.DOTALL) for text in pages)
    for name in sorted(set(re.findall(r"\bul2_tasks(?:\.\w+)+", text))):
        module, _, attribute = name.rpartition(".")
        public, *of_class = name.split(".")[1:]
        if public in ul2_tasks.__all__:  # tests/package/test_when_imported.py imports each of them
            assert not of_class or hasattr(getattr(ul2_tasks, public), *of_class), name
            continue
        if module == "ul2_tasks" and attribute in dir(ul2_tasks):
            continue
        package = NEEDED.get(name.split(".")[1])
        if package and importlib.util.find_spec(package) is None:
            continue
        assert hasattr(importlib.import_module(module), attribute) or importlib.util.find_spec(name), name


def anchors(text: str) -> set[str]:
    """Those of the headings of a page, as the site and GitHub have them."""
    headings = re.findall(r"^#+ (.*)$", unfenced(text), re.MULTILINE)
    return {re.sub(r"\s+", "-", re.sub(r"[^\w\s-]", "", heading.lower()).strip()) for heading in headings}


def texts_of(path: pathlib.Path) -> list[str]:
    """The texts in a module, those of an f-string between its values."""
    constants = (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Constant))
    return [node.value for node in constants if isinstance(node.value, str)]


def test_links_lead_somewhere():
    wrong, links = [], 0
    for page, text in {**WRITTEN, **GENERATED}.items():
        pages = {**WRITTEN, **GENERATED} if page.startswith("docs/") else WRITTEN  # GitHub, too, shows what is beside docs/
        for target in (target for target in re.findall(r"\]\(([^)\s]+)\)", unfenced(text)) if "://" not in target):
            links += 1
            path, _, anchor = target.partition("#")
            file = (REPOSITORY / page).parent.joinpath(path).resolve() if path else REPOSITORY / page
            name = str(file.relative_to(REPOSITORY))
            if not (name in pages or file.is_file()) or (anchor and anchor not in anchors(pages[name])):
                wrong.append(f"{page}: {target}")
    assert links > 60
    assert wrong == []


def test_pointers_of_messages_scripts_and_gin_files_lead_somewhere():
    texts = [text for path in REPOSITORY.glob("ul2_*/**/*.py") for text in texts_of(path)]
    files = (path for folder in ("gin", "recipes", "benchmarks", "docs") for path in (REPOSITORY / folder).rglob("*"))
    texts += [path.read_text() for path in files if path.suffix in (".gin", ".py")]
    pointers = set(re.findall(r"\b(docs/[\w/]+\.md)(?:#([\w-]+))?", "\n".join(texts)))
    assert len(pointers) > 20
    assert [each for each in pointers if each[0] not in WRITTEN or (each[1] and each[1] not in anchors(WRITTEN[each[0]]))] == []


def test_every_page_is_in_the_navigation():
    navigation = (REPOSITORY / "mkdocs.yml").read_text().split("\nnav:\n")[1].split("\nvalidation:")[0]
    pages = {name.removeprefix("docs/") for name in {**WRITTEN, **GENERATED} if name.startswith("docs/")}
    assert sorted(re.findall(r"(\S+\.md)$", navigation, re.MULTILINE)) == sorted(pages)


def test_the_site_builds(tmp_path):
    pytest.importorskip("mkdocstrings", reason="the extra docs is not installed")
    pytest.importorskip("material", reason="the extra docs is not installed")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", tmp_path]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    python = "".join(page.read_text() for page in (tmp_path / "reference").glob("python*.html"))
    assert all(f'id="ul2_tasks.{name}"' in python for name in ul2_tasks.__all__)
    listed = re.findall(r"^- \[.+\]\((\S+)\): \S", (tmp_path / "llms.txt").read_text(), re.MULTILINE)
    assert {str(page.relative_to(tmp_path)) for page in tmp_path.rglob("*.html")} - {"404.html"} == {*listed}


OF_MIXTURE = 'mixture = seqio.get_mixture_or_task(gin.query_parameter("%MIXTURE_OR_TASK_NAME").scoped_configurable_fn())'
GIN = {  # by page, what is asked of its configuration and what a program then prints
    "docs/guides/mix.md": (
        f"{OF_MIXTURE}.description.planned\nprint([stage.first_step for stage in mixture.stages], mixture.steps)",
        "[0, 10000] 50000\n",
    ),
    README: ('print(gin.query_parameter("%NAME").scoped_configurable_fn())', "mine_mix\n"),
}


@pytest.mark.parametrize("page", GIN)
def test_the_gin_of_a_page_registers_what_it_says(page, folder):
    """In a process of its own, for which the bindings are; t5x's part is tested with t5x."""
    (lines,) = blocks(page, "gin")
    lines = re.sub(r"^(include|from|import) .*\n", "", lines, flags=re.MULTILINE)
    if page == README:  # as ul2.gin has it
        lines += "NAME = @ul2_tasks.register()\nul2_tasks.register.vocabulary = %VOCABULARY"
    config = f"from __gin__ import dynamic_registration\nimport ul2_tasks\n{lines}"
    program, printed = GIN[page]
    done = programs.run("-c", f"import gin, seqio\ngin.parse_config({config!r})\n{program}", cwd=folder, check=True)
    assert done.stdout == printed


def test_the_version_that_is_cited_is_this_one():
    assert f"\nversion: {ul2_tasks.__version__}\n" in (REPOSITORY / "CITATION.cff").read_text()
