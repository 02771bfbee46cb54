"""Each kind of data answers a command, or ends with a sentence that says what to do instead, before anything is written.

`tests/golden` has what `show`, `stats`, `doctor` and `lengths` print of each kind.
"""

import shlex

import pytest
import seqio
from test_command_line import ul2

import ul2_tasks
from ul2_tasks.cli import kinds

COMMANDS = {  # what each needs beside the data
    "find": "--document 0",
    "audit": "--until 3 --batch_size 4",
    "report": "--output OUT.html",
    "cache": "--output OUT",
    "export": "--format parquet --output OUT",
}
OPTIONS = {  # what goes with an option
    "--schedule": "",
    "--step": "1",
    "--output": "OUT",
    "--cache": "OUT",
    "--denoiser": "r1",
    "--text": "words",
    "--file": __file__,
}
NAMES = {
    "text": "kinds_texts",
    "conversations": "chat",
    "interleaved image-text data": "kinds_images",
    "image-text records": "images",
}
OWN = {  # where a kind needs something else
    ("conversations", "export"): "--format megatron --output OUT",
    ("image-text records", "find"): "--record embedded\\ set,\\ vlm_sft,\\ record\\ 3",
}
CAN = [(kind.name, command) for kind in kinds.KINDS for command in COMMANDS if command not in kind.cannot]
CANNOT = [(kind.name, asked, instead) for kind in kinds.KINDS for asked, instead in kind.cannot.items()]


@pytest.fixture(scope="module", autouse=True)
def registered():
    ul2_tasks.register("kinds_texts", denoisers=ul2_tasks.T5GEMMA2[0])
    vocabulary, run = seqio.ByteVocabulary(extra_ids=300), ul2_tasks.ImageTokens(259, 260, 261, image_seq_length=2)
    settings = {"image_tokens": run, "sentinels": range(558, 300, -1), "modes": {"[R]": 270, "[S]": 271, "[X]": 272}}
    ul2_tasks.register_image_text("kinds_images", "embedded", vocabulary, **settings)


def run(kind, command, needed, folder):
    return ul2(command, NAMES[kind], *(word.replace("OUT", str(folder / "out")) for word in shlex.split(needed)))


@pytest.mark.parametrize(("kind", "command"), CAN, ids=str)
@pytest.mark.usefixtures("quick_advice")
def test_a_kind_answers(kind, command, tmp_path):
    done = run(kind, command, OWN.get((kind, command), COMMANDS[command]), tmp_path)
    assert done.exit_code < 2, done.output
    assert done.stdout or list(tmp_path.iterdir())


def refused(kind, command, more, folder):
    """What is said of a command that a kind does not support."""
    done = run(kind, command, f"{COMMANDS.get(command, '')} {more}", folder)
    assert done.exit_code == 2, done.output
    assert not list(folder.iterdir())
    return done.stderr


@pytest.mark.parametrize(("kind", "asked", "instead"), CANNOT, ids=str)
def test_what_a_kind_cannot_do_is_said_with_what_to_do_instead(kind, asked, instead, tmp_path):
    command, *option = asked.split()
    said = refused(kind, command, " ".join([*option, *(OPTIONS[name] for name in option)]), tmp_path)
    assert f"`ul2 {asked}` does not support {kind}" in said
    assert said.endswith(f"{instead}\n")


def test_a_kind_whose_options_are_few_refuses_all_others(tmp_path):
    assert "`ul2 stats --split` does not support" in refused("image-text records", "stats", "--split a", tmp_path)
    assert "--record" in refused("image-text records", "find", "--text words", tmp_path)


def test_beside_texts_other_kinds_are_left_out_by_name(tmp_path):
    chat = ul2_tasks.register_chat("kinds_talks", format="prompt_completion")
    text = ul2_tasks.register("kinds_beside", vocabulary=seqio.get_mixture_or_task(chat).output_features["targets"].vocabulary)
    mixed = ul2_tasks.mix("kinds_mixed", {text: 1, chat: 1})
    assert chat in ul2("show", mixed, "--count", 1, "--lengths", "128,128").stderr
