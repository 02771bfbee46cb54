"""Compressed files: what follows a stream is another stream, padding that the format has, or an error that names the file."""

import bz2
import gzip
import io
import itertools
import lzma
import random
import struct

import pytest
from backports import zstd

from tests.support import records_of
from ul2_tasks import open_source
from ul2_tasks.files.opening import CORRUPT, open_file
from ul2_tasks.image_rows.records import open_records
from ul2_tasks.sources.image_examples import parsed
from ul2_tasks.sources.image_text import open_image_text

COMPRESS = {
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": lambda content: zstd.compress(content, options={zstd.CompressionParameter.checksum_flag: 1}),
}
SKIPPABLE = struct.pack("<II", 0x184D2A50, 3) + b"abc"  # a frame of zstd that has no content
EMPTY = {suffix: compress(b"") for suffix, compress in COMPRESS.items()}
# What may stand after a stream, and before the next one; `gzip`, `xz` and `zstd` say so themselves.
BETWEEN = {".gz": b"\0" * 70_001, ".bz2": EMPTY[".bz2"], ".xz": b"\0" * 70_000, ".zst": SKIPPABLE * 50}
CONTENT = b"".join(b'{"text": "document %d"}\n' % number for number in range(20_000))


def written(tmp_path, suffix, content):
    path = tmp_path / f"a.jsonl{suffix}"
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("suffix", COMPRESS)
def test_all_streams_of_a_file_are_read_and_it_can_be_read_from_anywhere(tmp_path, suffix):
    draw = random.Random(suffix)
    for between in (b"", BETWEEN[suffix], EMPTY[suffix]):
        places = [0, *sorted(draw.sample(range(len(CONTENT)), 4)), len(CONTENT)]
        parts = [COMPRESS[suffix](CONTENT[start:stop]) for start, stop in itertools.pairwise(places)]
        path = written(tmp_path, suffix, between.join([*parts, b""]))
        with open_file(str(path)) as file:
            assert file.read() == CONTENT
            assert file.seek(0, io.SEEK_END) == len(CONTENT)
            for start in draw.choices(range(len(CONTENT)), k=3):
                assert file.seek(start) == file.tell() == start
                assert file.read(1000) == CONTENT[start : start + 1000]


WRONG = {
    "nothing at all": lambda good: b"",
    "zeros alone": lambda good: b"\0" * 8,
    "text behind it": lambda good: good + b"garbage",
    "the beginning of another one": lambda good: good + good[:3],
    "half of another one": lambda good: good + good[: len(good) // 2],
    "another one without its end": lambda good: good + good[:-2],
    "another one that is altered": lambda good: good + good[: len(good) // 2] + b"abcdefgh" + good[len(good) // 2 + 8 :],
    "text behind padding": lambda good: good + b"\0" * 100_000 + b"garbage",
    "padding before it": lambda good: b"\0" * 4 + good,
}


@pytest.mark.parametrize("suffix", COMPRESS)
@pytest.mark.parametrize("name", WRONG)
def test_what_is_no_stream_is_an_error_that_names_the_file(tmp_path, suffix, name):
    good = COMPRESS[suffix](b'{"text": "a", "texts": ["a"], "images": [null]}\n' * 50)
    path = written(tmp_path, suffix, WRONG[name](good))
    with pytest.raises((*CORRUPT, OSError)), open_file(str(path)) as file:
        file.read()
    if path.stat().st_size:  # a corpus of nothing at all is refused before it is read
        (found,) = (record.problem for record in records_of(open_source(path)) if record.problem)
        assert found.startswith(f"{path}: is corrupt")
        (found,) = (record for record in records_of(open_image_text(path)) if record.problem)
        assert found.problem.startswith("is corrupt, so all from here on is lost")
        assert parsed(found.text)[2].decode() == str(path)
    with pytest.raises(ValueError, match=str(path)):
        open_records(path)


@pytest.mark.parametrize("padding", [1, 3, 6, 65_537])
def test_padding_of_xz_is_a_multiple_of_four(tmp_path, padding):
    path = written(tmp_path, ".xz", lzma.compress(CONTENT) + b"\0" * padding)
    with pytest.raises(ValueError, match=f"multiple of 4 bytes, got {padding}"), open_file(str(path)) as file:
        file.read()


@pytest.mark.parametrize("window_log", [28, 31])
def test_zstd_has_windows_of_any_size(tmp_path, window_log):
    parameter = zstd.CompressionParameter
    options = {parameter.window_log: window_log, parameter.enable_long_distance_matching: 1, parameter.content_size_flag: 0}
    compressor = zstd.ZstdCompressor(options=options)
    path = written(tmp_path, ".zst", compressor.compress(CONTENT) + compressor.flush())
    with open_file(str(path)) as file:
        assert file.read() == CONTENT
