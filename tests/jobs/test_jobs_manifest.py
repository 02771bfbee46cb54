"""Files that are no JSON; all else of manifests is tested by the jobs that write caches and exports."""

import pytest

from ul2_tasks.jobs import manifest as jobs_manifest


@pytest.mark.parametrize("content", [b"{", b"\xff\xfe", b"[" * 100_000, b"9" * 5000], ids=["cut", "no text", "deep", "long"])
def test_what_is_no_json_is_told_with_its_file(content, tmp_path):
    (tmp_path / "manifest.json").write_bytes(content)
    with pytest.raises(ValueError, match="must be JSON, but is not:"):
        jobs_manifest.load(str(tmp_path / "manifest.json"))
