"""A program for `test_extras.py`: where the packages of no extra are installed, what needs one names it, and all else works.

python extras.py FOLDER
"""

import importlib.machinery
import pathlib
import re
import sys

# The packages that an extra alone brings; those of `t5x` are of `seqio`, too.
PACKAGES = {
    "seqio": {"seqio", "t5", "tensorflow", "tensorflow_datasets", "tensorflow_text"},
    "torch": {"torch", "transformers", "accelerate", "torchdata"},
    "huggingface": {"datasets", "tokenizers", "jinja2"},
    "images": {"PIL", "av"},
    "chat": {"tiktoken", "tiktoken_ext", "openai_harmony"},
    "beam": {"apache_beam"},
    "grain": {"grain"},
}
# What needs an extra. In commands and calls `FOLDER` is a folder.
NAMES = {
    "seqio": "ChatFeatureConverter EncDecFeatureConverter PrefixLMFeatureConverter PromptCompletionFeatureConverter seqio_converter"
    " seqio_source seqio_vocabulary with_mode description_of prepend_mode mix register register_chat register_image_text",
    "t5x": "get_dataset_at_step get_dataset_of_stream",
    "torch": "ImageTextDataset ExamplesCollator UL2IterableDataset GroupLosses GroupLossMixin GroupLossTrainer"
    " accept_packed_sequences packed_attention_masks T5Gemma2Collator",
}
CALLS = {
    "seqio": ["ul2_tasks.open_source('tfds:c4/en:3.1.0')"],
    "torch": ["ul2_tasks.UL2DataCollator('default', {'inputs': 96, 'targets': 80}, return_tensors='pt')(['a b'])"],
    "huggingface": ["ul2_tasks.open_source('hf:FOLDER').splits", "ul2_tasks.open_vocabulary('FOLDER/tokenizer.json').eos_id"],
    "grain": ["importlib.import_module('ul2_tasks.grain')"],
}
IMAGES = "FOLDER/seen.py:seen --lengths 256,192"
COMMANDS = {
    "images": [f"show {IMAGES}", f"doctor {IMAGES}", f"stats {IMAGES}"],
    "beam": ["cache ul2 --workers 2 --output FOLDER/beam", "export ul2 --workers 2 --format parquet --output FOLDER/beam_export"],
}
WORK = [
    *("show --count 1", "show chat --count 1", "lengths chat", "doctor chat", "stats chat", "cache ul2 --output FOLDER/cache"),
    *("export ul2 --format tfrecord --output FOLDER/export", "report --examples 20 --output FOLDER/page.html"),
]
DESCRIBED = "import ul2_tasks\nseen = ul2_tasks.ImageText('seen', image_tokens=ul2_tasks.ImageTokens(4060, 4061, 4062, 4))\n"


class Without(importlib.machinery.PathFinder):
    """Finds what is installed, but for the packages of extras."""

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        is_left_out = any(name.partition(".")[0] in packages for packages in PACKAGES.values())
        return None if is_left_out else super().find_spec(name, path, target)


def errors(folder: pathlib.Path) -> dict[str, str]:
    """What the names, calls and commands say that do not work."""
    from click.testing import CliRunner

    import ul2_tasks
    import ul2_tasks.cli

    (folder / "seen.py").write_text(DESCRIBED)
    (folder / "tokenizer.json").write_text("{}")
    said = {}
    calls = {call: call.replace("FOLDER", str(folder)) for each in CALLS.values() for call in each}
    for name, code in {**{name: f"ul2_tasks.{name}" for name in ul2_tasks._FILES}, **calls}.items():
        try:
            eval(code, {"ul2_tasks": ul2_tasks, "importlib": importlib})
        except ImportError as error:
            said[name] = str(error)
    for command in (*WORK, *(command for each in COMMANDS.values() for command in each)):
        done = CliRunner().invoke(ul2_tasks.cli.main, command.replace("FOLDER", str(folder)).split())
        if done.exit_code not in (0, 1):  # the doctor may find packages that clash
            said[command] = done.stderr
    return said


if __name__ == "__main__":
    sys.meta_path[sys.meta_path.index(importlib.machinery.PathFinder)] = Without
    said = errors(pathlib.Path(sys.argv[1]))
    wanted = {name: extra for extra, names in NAMES.items() for name in names.split()}
    wanted |= {each: extra for table in (CALLS, COMMANDS) for extra, calls in table.items() for each in calls}
    named = {each: re.search(r"`pip install 'ul2_tasks\[(\w+)\]'`", error) for each, error in said.items()}
    assert {each: found and found[1] for each, found in named.items()} == wanted, said
