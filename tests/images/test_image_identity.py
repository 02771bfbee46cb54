"""Records in memory are hashed once."""

from image_support import record_of

from ul2_tasks import open_image_text


def test_records_are_hashed_once(monkeypatch):
    """They may be gigabytes, and messages of each batch name them."""
    source = open_image_text([record_of(["a", b"image"])])
    said = repr(source)
    monkeypatch.setattr("hashlib.sha256", None)
    assert repr(source) == said
