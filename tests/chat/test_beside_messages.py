"""What a record has beside its messages reaches the model, is named, or is an error: in files of all formats, and in memory."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tensorflow as tf
from datasets import Dataset

import ul2_tasks
from tests.chat.test_chat_templates import CALLS, TOOLS, WEATHER, oracle, write
from tests.commands.running import described, ul2
from tests.tokenizers.test_hugging_face_vocabulary import exclamation_first
from ul2_tasks import Chat, MemoryDataSource

TALK = [CALLS[1], {"role": "assistant", "content": None, "tool_calls": CALLS[2]["tool_calls"]}, *CALLS[3:5]]
RECORDS = [
    {"messages": TALK, "system": "Be brief.", "tools": [{"type": "function", "function": WEATHER}], "source": "web", "turns": 2},
    {"messages": CALLS[4:6] + CALLS[4:5], "system": None, "tools": None, "source": "", "turns": 1},
    {"messages": CALLS[:2] + CALLS[4:5], "system": "Be brief.", "tools": None, "source": "book", "turns": None},
]
FORMATS = ["jsonl", "text", "parquet", "arrow", "tfrecord", "object", "memory"]


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    tokenizer = exclamation_first()
    tokenizer.add_special_tokens(["<|im_start|>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"])
    tokenizer.add_tokens(["</think>"])
    return write(tmp_path_factory.mktemp("template"), TOOLS, tokenizer)


def source_of(format, folder, records=RECORDS):
    """The records as a source. In "text" the messages and the tools are JSON in texts, as many data sets have them."""
    path = folder / f"talk.{format}"
    table = pa.Table.from_pylist(records)
    as_text = [{key: json.dumps(each) if isinstance(each, list) else each for key, each in one.items()} for one in records]
    if format == "tfrecord":
        with tf.io.TFRecordWriter(str(path)) as file:
            for one in as_text:
                texts = {key: tf.train.BytesList(value=[each.encode()]) for key, each in one.items() if isinstance(each, str)}
                features = {key: tf.train.Feature(bytes_list=each) for key, each in texts.items()}
                file.write(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())
    elif format in ("jsonl", "text"):
        path = path.with_suffix(".jsonl")
        path.write_text("".join(json.dumps(one) + "\n" for one in (as_text if format == "text" else records)))
    elif format == "parquet":
        pq.write_table(table, path)
    elif format == "arrow":
        with pa.ipc.new_file(path, table.schema) as file:
            file.write_table(table)
    elif format == "object":
        return Dataset(table)
    else:
        return MemoryDataSource(lambda: [json.dumps(one) for one in records], validation=0)
    return str(path)


@pytest.mark.parametrize("format", FORMATS)
def test_tools_and_the_system_message_of_a_record_reach_the_model(format, template, tmp_path):
    chat = Chat("beside", source_of(format, tmp_path), f"template:{template}")
    found = ul2_tasks.examples(chat, {"tokens": 4096}, shuffle=False)
    tokens = sorted(example["tokens"].tolist()[:-1] for example in found)
    expected = []
    for record in RECORDS:
        has_system = record["system"] and record["messages"][0]["role"] != "system"
        messages = [{"role": "system", "content": record["system"]}] * bool(has_system) + record["messages"]
        expected.append(oracle(template).apply_chat_template(messages, tools=record["tools"], return_dict=True)["input_ids"])
    assert tokens == sorted(expected)


def test_the_split_of_a_conversation_is_the_same_in_all_formats(template, tmp_path):
    records = [{**record, "source": f"{number}"} for number, record in enumerate(RECORDS * 4)]
    for number, record in enumerate(records):
        record["messages"] = [*record["messages"][:-1], {"role": "assistant", "content": f"Yes {number}."}]
    found = {}
    for format in ("jsonl", "text", "parquet", "arrow", "object", "tfrecord"):
        chat = Chat("split", source_of(format, tmp_path, records), f"template:{template}", validation=0.4)
        examples = ul2_tasks.examples(chat, {"tokens": 4096}, shuffle=False)
        found[format] = sorted(example["tokens"].tolist() for example in examples)
    assert 0 < len(found["jsonl"]) < len(records)
    assert [format for format in found if found[format] != found["jsonl"]] == []


@pytest.mark.parametrize("format", ["jsonl", "parquet", "tfrecord"])
def test_the_doctor_names_the_fields_that_nothing_reads(format, template, tmp_path):
    source = source_of(format, tmp_path)
    name = described(tmp_path, f"Chat('named_{format}', {source!r}, 'template:{template}')")
    done = ul2("doctor", name, "--lengths", 4096)
    counted = {"jsonl": "source (2), turns (2)", "parquet": "source (3), turns (3)", "tfrecord": "source (2)"}[format]
    assert f"fields of records that nothing reads, and how many have them: {counted}" in done.stdout, done.output


def test_what_is_lost_is_counted_where_records_are_skipped(template, tmp_path):
    wrong = [{**RECORDS[1], "prompt": "Another question?"}, {**RECORDS[1], "images": ["a.png"]}]
    source = source_of("jsonl", tmp_path, [*RECORDS, *wrong])
    chat = Chat("lost", source, f"template:{template}", on_error="skip")
    assert len(ul2_tasks.examples(chat, {"tokens": 4096})) == 3
    assert chat.cache(tmp_path / "cache")["totals"]["skipped"] == 2
    with pytest.raises(ValueError, match=r"line 4: the conversation must not have \['prompt'\]"):
        ul2_tasks.examples(Chat("lost", source, f"template:{template}"), {"tokens": 4096})
