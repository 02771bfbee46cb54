"""Files of conversations: ids that no split asks for, and manifests beside them."""

import json

import pyarrow as pa
import pyarrow.parquet as pq

from tests.support import records_of
from ul2_tasks.mixtures.chat import open_conversations

TALK = [{"role": "user", "content": "2 plus 2?"}, {"role": "assistant", "channel": "final", "content": "4."}]


def test_ids_are_checked_where_no_split_needs_them(tmp_path):
    """As with a split: by file and row. A corpus without ids needs none."""
    messages = [json.dumps(TALK)] * 4
    metadata = ["{}", "{}", '{"synth_id": "z"}', '{"synth_id": "d"}']
    table = {"messages_json": messages, "synth_id": ["a", None, "c", "d"], "metadata_json": metadata}
    pq.write_table(pa.table(table), tmp_path / "ids.parquet")
    source = open_conversations(str(tmp_path / "ids.parquet"), "messages_json")
    found = [(record.id, record.problem) for record in records_of(source)]
    assert [id for id, _ in found] == [b"a", b"", b"", b"d"]
    assert found[0][1] == found[3][1] == ""
    assert "row 1: 'synth_id'" in found[1][1]
    assert "row 2" in found[2][1]
    pq.write_table(pa.table({"messages_json": messages}), tmp_path / "none.parquet")
    source = open_conversations(str(tmp_path / "none.parquet"), "messages_json")
    assert not any(record.problem for record in records_of(source))


def test_a_folder_may_have_the_manifest_of_its_files(tmp_path):
    (tmp_path / "part.jsonl").write_text(json.dumps({"messages": TALK}) + "\n")
    (tmp_path / "manifest.json").write_text(json.dumps({"files": ["part.jsonl"]}, indent=1))
    for spec in (str(tmp_path), str(tmp_path / "*.json*")):
        source = open_conversations(spec)
        assert source.files("train") == [str(tmp_path / "part.jsonl")]
    named = open_conversations(str(tmp_path / "manifest.json"))
    assert named.files("train") == [str(tmp_path / "manifest.json")]
