"""Whether a video is there up to its end, by what its container says of itself. The images are not looked at.

    MP4, fragmented     boxes, each with its size
    Matroska, WebM      elements, each with its size, which of the outermost may be unknown
    transport stream    packets of one size
    program stream      packets, each with its size
    GIF                 its last byte

What ends between two boxes, elements or packets, and does not say how long it is in all, cannot be told from what is whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

_BOXES = {b"ftyp", b"styp", b"moov", b"moof", b"mdat", b"mfra", b"sidx", b"free", b"skip", b"emsg", b"prft", b"uuid", b"meta"}
_SEGMENT, _CLUSTER = 0x18538067, 0x1F43B675  # elements that may be of unknown size
_PACK = 0xBA  # what a pack of a program stream begins with
_SYNC = 0x47  # a packet of a transport stream begins with it, or has it behind a time of 4 bytes


class _Part(NamedTuple):
    name: str
    start: int
    end: int


def check_end(file: BinaryIO, container: str) -> None:
    """Refuses a video that is cut off.

    The file is read from its beginning, and left anywhere. FFmpeg calls its format `container`.
    """
    size = file.seek(0, 2)
    for name in _CONTAINERS.keys() & set(container.split(",")):
        for part in _CONTAINERS[name](file, size):
            if part.end > size:
                raise ValueError(
                    f"the video must have {part.end} bytes, the end of its {part.name} at byte {part.start}, got {size}: it is cut"
                    " off."
                )


def _boxes(file: BinaryIO, size: int) -> Iterator[_Part]:
    start = 0
    while start + 8 <= size:
        head = _read(file, start, 16)
        length, name = int.from_bytes(head[:4], "big"), head[4:8]
        length = int.from_bytes(head[8:], "big") if length == 1 else length
        if name not in _BOXES or length < 8:  # something that stands behind the video; or a last box, which says 0
            return
        yield _Part(f"box {name.decode()!r}", start, start + length)
        start += length


def _elements(file: BinaryIO, size: int) -> Iterator[_Part]:
    start = 0
    while start < size:
        head = _read(file, start, 12)
        id_length = 9 - head[0].bit_length()
        if id_length > 4 or head[id_length : id_length + 1] == b"\0":  # something that stands behind the video
            return
        id, rest = int.from_bytes(head[:id_length], "big"), head[id_length:]
        length = 9 - rest[0].bit_length() if rest else 1
        body = start + id_length + length
        content = int.from_bytes(rest[:length], "big") & (1 << 7 * length) - 1
        if id in (_SEGMENT, _CLUSTER) and content == (1 << 7 * length) - 1:  # unknown: what is in it comes next
            start = body
            continue
        yield _Part(f"element {id:X}", start, body + content)
        start = body + content


def _packets(file: BinaryIO, size: int) -> Iterator[_Part]:
    head = _read(file, 0, 512)
    length = next((length for first, length in ((0, 188), (4, 192), (0, 204)) if head[first::length].count(_SYNC) > 1), 0)
    if length and size % length:
        yield _Part("packet", size - size % length, size - size % length + length)


def _packs(file: BinaryIO, size: int) -> Iterator[_Part]:
    start = 0
    while (head := _read(file, start, 14))[:3] == b"\0\0\1" and len(head) > 5:
        length = 6 + int.from_bytes(head[4:6], "big")
        if head[3] == _PACK:
            length = 14 + (head[-1] & 7) if head[4] >> 6 == 1 else 12  # of MPEG-2, with so many bytes of nothing; of MPEG-1
        elif head[3] < _PACK:  # something that stands behind the video
            return
        yield _Part("packet", start, start + length)
        start += length


def _trailer(file: BinaryIO, size: int) -> Iterator[_Part]:
    start = max(0, size - 4096)
    if not _read(file, start, 4096).rstrip(b"\0").endswith(b";"):
        yield _Part("list of images", 0, size + 1)


def _read(file: BinaryIO, start: int, count: int) -> bytes:
    file.seek(start)
    return file.read(count)


_CONTAINERS = {"mp4": _boxes, "matroska": _elements, "mpegts": _packets, "mpeg": _packs, "gif": _trailer}
