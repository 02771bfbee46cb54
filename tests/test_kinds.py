"""The seam of kinds: the kind of the data answers what a command asks, or an error names what to do; also with a fifth kind."""

import collections
import dataclasses
import json
from collections.abc import Mapping, Sequence

import pytest
import seqio
from test_command_line import ul2

import ul2_tasks
from ul2_command import kinds, main
from ul2_command.kinds.seam import LEAVE_OUT, LOOK, Kind
from ul2_tasks.looking.findings import Finding, examine_installation
from ul2_tasks.looking.printing import checks_sentence, checks_table, plain_table, print_json_lines
from ul2_tasks.looking.statistics import Check
from ul2_tasks.sources.memory import texts_in_memory

pytestmark = pytest.mark.usefixtures("quick_advice")

# A fifth kind: proteins, each residue of which has a state in a second track.

SEQUENCES = {"MKTAYIAKQR": "CHHHHHHHCC", "GSHMLEDPVD": "CCCCEEEECC", "WQERNNIRK": "HHHHHHHCC", "GGG": "CC"}


class ProteinTask(seqio.Task):
    """Proteins of a corpus, each with its track."""

    def __init__(self, name: str, texts: seqio.Task, tracks: Mapping[str, str]):
        super().__init__(name, texts.source, texts.output_features, preprocessors=[])
        self.corpus, self.tracks = texts.source.corpus, tracks


@dataclasses.dataclass(frozen=True)
class ProteinStatistics:
    mixture: str
    proteins: int
    states: Mapping[str, int]
    checks: Sequence[Check]

    @property
    def passed(self) -> bool:
        return all(check.passed for check in self.checks)


class Proteins(Kind):
    name = "proteins"
    cannot = {  # noqa: RUF012
        "find": LOOK,
        "audit": LOOK,
        "show --step": LEAVE_OUT,
        "show --denoiser": LEAVE_OUT,
        "lengths": f"They are never cut. {LOOK}",
        "report": LOOK,
    }

    def owns(self, task):
        return isinstance(task, ProteinTask)

    def lengths_of(self, data):
        return data.given.get("sequence_length", {"tokens": 1024})

    def samples(self, data, count, *, split="train", seed=0):
        most = self.lengths_of(data)["tokens"]
        for task in data.tasks:
            fitting = [(residues, track) for residues, track in task.tracks.items() if len(residues) <= most]
            yield from (Sample(task.name, *pair) for pair in fitting[:count])

    def show(self, data, as_json, *, count, **others):
        samples = list(self.samples(data, count))
        if as_json:
            print_json_lines(map(dataclasses.asdict, samples))
        else:
            print("\n".join(f"{sample.residues}\n{sample.track}\n" for sample in samples))

    def measure(self, data, *, examples, split, seed):
        samples = list(self.samples(data, examples))
        wrong = [sample.residues for sample in samples if len(sample.residues) != len(sample.track)]
        check = Check(
            "each residue has a state", not wrong, f"not in {len(wrong)}; {wrong[0]}" if wrong else f"in all {len(samples)}"
        )
        states = collections.Counter("".join(sample.track for sample in samples))
        return ProteinStatistics(data.mixture, len(samples), dict(states), [check])

    def print_statistics(self, statistics, console):
        table = plain_table("state", ["residues"])
        for state, residues in statistics.states.items():
            table.add_row(state, f"{residues:,}")
        console.print(table, checks_table(statistics.checks), checks_sentence(statistics.checks))

    def examine(self, data, split):
        check = self.measure(data, examples=100, split=split, seed=0).checks[0]
        return [*examine_installation(), Finding("ok" if check.passed else "problem", "corpus", f"{check.name}: {check.found}")]

    def export(self, data, output, *, written_as, use_cached, **options):
        if written_as != "parquet":
            raise ValueError(f"--format: got {written_as!r}, and proteins are written as parquet")
        with open(output, "w") as file:
            print_json_lines(map(dataclasses.asdict, self.samples(data, 10**6)), file)


@dataclasses.dataclass(frozen=True)
class Sample:
    task: str
    residues: str
    track: str


# The check.

COMMANDS = {
    "show": "--count 1",
    "find": "--document 0",
    "audit": "--until 3 --batch_size 4",
    "stats": "--examples 8",
    "report": "--examples 8 --count 1 --output OUT.html",
    "lengths": "",
    "doctor": "",
    "cache": "--output OUT --max_documents 4",
    "export": "--format FORMAT --output OUT",
}
ASKED = {  # of which options a kind has sentences, and what goes with them
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
    "interleaved image-text data": "kinds_codes",
    "image-text records": "images",
    "proteins": "kinds_proteins",
}
FORMATS = {"conversations": "megatron"}
RECORD = ["--record", "embedded set, vlm_sft, record 3"]  # of image rows, which have no documents
KINDS = {kind.name: kind for kind in (*kinds.KINDS, Proteins())}


@pytest.fixture(scope="module", autouse=True)
def registered():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kinds, "KINDS", tuple(KINDS.values()))
        ul2_tasks.register("kinds_texts", denoisers=ul2_tasks.T5GEMMA2[0])
        vocabulary, run = (
            seqio.ByteVocabulary(extra_ids=300),
            ul2_tasks.ImageCodes(boi_id=259, eoi_id=260, first_code_id=261, num_codes=8),
        )
        settings = {"image_tokens": run, "sentinels": range(558, 300, -1), "modes": {"[R]": 270, "[S]": 271, "[X]": 272}}
        ul2_tasks.register_image_text(
            "kinds_codes", [{"texts": ["Twice one:"], "images": [[1, 1]]}] * 9, vocabulary, random_access=True, **settings
        )
        ul2_tasks.register("kinds_residues", texts_in_memory(list(SEQUENCES)), "bytes", ul2_tasks.T5GEMMA2[-1])
        task = ProteinTask("kinds_proteins", seqio.TaskRegistry.get("kinds_residues_s"), SEQUENCES)
        seqio.TaskRegistry.add_provider(task.name, task)
        seqio.MixtureRegistry.add("kinds_proteins_mix", [(task.name, 1)])
        seqio.MixtureRegistry.add("kinds_residues_and_proteins", [("kinds_residues_s", 1), (task.name, 1)])
        yield


def run(kind: str, command: str, more: str, folder):
    if (kind, command, more) == ("image-text records", "find", COMMANDS["find"]):
        return ul2(command, NAMES[kind], *RECORD)
    words = [command, NAMES[kind], *more.replace("FORMAT", FORMATS.get(kind, "parquet")).split()]
    return ul2(*(word.replace("OUT", str(folder / "out")) for word in words))


def test_these_are_all_commands_and_all_kinds():
    of_data = {name for name, command in main.commands.items() if any(one.name == "name" for one in command.params)}
    assert COMMANDS.keys() == of_data
    assert NAMES.keys() == KINDS.keys()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_kind_answers_or_names_what_to_do(kind, command, tmp_path):
    done = run(kind, command, COMMANDS[command], tmp_path)
    if command in KINDS[kind].cannot:
        assert (done.exit_code, f"`ul2 {command}` does not support {kind} (" in done.stderr) == (2, True), done.output
        assert done.stderr.endswith(f"). {KINDS[kind].cannot[command]}\n")
        assert not list(tmp_path.iterdir())
    else:
        assert done.exit_code < 2, done.output


@pytest.mark.parametrize(
    ("kind", "asked"), [(kind.name, asked) for kind in KINDS.values() for asked in kind.cannot if " --" in asked], ids=str
)
def test_an_option_that_a_kind_does_not_support_is_named(kind, asked, tmp_path):
    command, option = asked.split()
    more = f"{COMMANDS[command]} {option} {ASKED[option]}"
    done = run(kind, command, more, tmp_path)
    assert (done.exit_code, f"`ul2 {asked}` does not support {kind} (" in done.stderr) == (2, True), done.output
    assert done.stderr.endswith(f"). {KINDS[kind].cannot[asked]}\n")
    assert not list(tmp_path.iterdir())


def test_a_kind_whose_options_are_few_refuses_all_others(tmp_path):
    done = run("image-text records", "stats", "--split a", tmp_path)
    assert "`ul2 stats --split` does not support image-text records (images). Leave it out." in done.stderr
    done = ul2("find", "images", "--text", "words")
    expected = "`ul2 find --text` does not support image-text records (images). Pass --record with the name of a record."
    assert (done.exit_code, expected in done.stderr) == (2, True)


# The fifth kind.


def test_proteins_are_shown_and_measured(tmp_path):
    lines = run("proteins", "show", "--count 2 --json --lengths 9", tmp_path).stdout.splitlines()
    assert [json.loads(line)["residues"] for line in lines] == ["WQERNNIRK", "GGG"]
    done = run("proteins", "stats", "--json", tmp_path)
    assert done.exit_code == 1, "a track is too short"
    assert json.loads(done.stdout)["states"] == {"C": 13, "H": 14, "E": 4}
    assert "1 of 1 checks fail" in run("proteins", "stats", "", tmp_path).stdout


def test_proteins_are_examined_cached_and_exported(tmp_path):
    examined = json.loads(run("proteins", "doctor", "--json", tmp_path).stdout)
    assert examined["sequence_length"] == {"tokens": 1024}
    assert [finding["what"] for finding in examined["findings"] if finding["kind"] == "problem"][-1].endswith("not in 1; GGG")
    assert run("proteins", "cache", "--output OUT", tmp_path).exit_code == 0
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["kinds_residues_corpus"]
    assert "proteins are written as parquet" in run("proteins", "export", "--format tfrecord --output OUT2", tmp_path).stderr


def test_beside_texts_proteins_are_left_out_and_their_corpus_is_cached(tmp_path):
    assert "left out, because they are not text: kinds_proteins. Name the" in ul2("show", "kinds_residues_and_proteins").stderr
    done = ul2("cache", "kinds_residues_and_proteins", "--output", tmp_path)
    assert (done.exit_code, "left out" in done.stderr) == (0, False), done.output
