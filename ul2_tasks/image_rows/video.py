"""Frames of a video, drawn by their numbers and read by PyAV."""

from __future__ import annotations

import bisect
import contextlib
import dataclasses
import functools
import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ul2_tasks.extras import needs
from ul2_tasks.images.draws import Draws
from ul2_tasks.images.pixels import MAX_PIXELS, Frame, file_of
from ul2_tasks.scalars import is_integer

if TYPE_CHECKING:
    from av.container import InputContainer

FORMATS = ("mov", "mp4", "matroska", "webm", "avi", "mpegts", "mpeg", "gif")  # others may name files that are then read
_OF_PACKETS = (188, 192, 204)  # bytes of a packet of a transport stream, of which it is whole ones


@dataclasses.dataclass(frozen=True)
class FrameSampler:
    """Chooses frames of videos: the `frames` of `schemas.vlm_sft`.

    The number of frames is chosen. The video is cut into that many equal parts, and one frame of each is chosen, so that every
    frame can be, also the last. A video with fewer frames gives each of them once.

    Attributes:
        min_frames, max_frames: how many frames of a video. The defaults are BAGEL's.

    >>> from ul2_tasks.images.schemas import vlm_sft
    >>> with_fewer_frames = functools.partial(vlm_sft, frames=FrameSampler(min_frames=4, max_frames=6))
    """

    min_frames: int = 8
    max_frames: int = 12

    def __post_init__(self):
        if not is_integer(self.min_frames, at_least=1) or not is_integer(self.max_frames, at_least=self.min_frames):
            raise ValueError(
                f"min_frames and max_frames must be integers in order, from 1, got {self.min_frames!r} and {self.max_frames!r}."
            )

    def __call__(self, video: object, draws: Draws) -> list[Frame]:
        """The frames of a video, in order. They are counted, and only the first is decoded; the others are when they are read.

        Args:
            video: its bytes, or the path of its file.
            draws: of the video; "frames" and "frame/NUMBER" are used.

        Raises:
            ValueError: it is not a video, has no frame, fewer than its header says, or too many pixels.
            ImportError: PyAV is not installed.
        """
        contents = _contents(video)
        numbers = self.numbers(len(contents.times), draws)
        width, height = contents.size
        clip = _Clip(video, contents, numbers)
        return [Frame(width, height, functools.partial(clip.read, place), number) for place, number in enumerate(numbers)]

    def numbers(self, count: int, draws: Draws) -> list[int]:
        """Which frames of that many are chosen, see above.

        >>> from ul2_tasks.images.draws import draws_of
        >>> FrameSampler().numbers(100, draws_of(0, 0, "r")), FrameSampler().numbers(5, draws_of(0, 0, "r"))
        ([4, 14, 26, 38, 61, 65, 76, 91], [0, 1, 2, 3, 4])
        """
        parts = min(count, self.min_frames + draws.number("frames", self.max_frames - self.min_frames + 1))
        ends = itertools.pairwise(part * count // parts for part in range(parts + 1))
        return [start + draws.number(f"frame/{part}", stop - start) for part, (start, stop) in enumerate(ends)]


class _Contents(NamedTuple):
    """What a video has: its size upright, and in order the times of its frames, and of those that are decoded without others."""

    size: tuple[int, int]
    times: Sequence[int]
    keys: Sequence[int]


class _Clip:
    """The frames that are drawn of a video. They are decoded together when one is read, and each is given away, not kept."""

    def __init__(self, video: object, contents: _Contents, numbers: Sequence[int]):
        self._video, self._contents, self._numbers = video, contents, numbers
        self._decoded: dict[int, np.ndarray] = {}

    def read(self, place: int) -> np.ndarray:
        if place not in self._decoded:
            self._decoded = dict(enumerate(_frames(self._video, self._contents, self._numbers)))
        return self._decoded.pop(place)


def _contents(video: object) -> _Contents:
    """Reads the packets of a video, and decodes the first frame, which alone tells how it has to be turned.

    A video that is cut off is refused: it has fewer frames, or ends earlier, than its container declares; or, where that declares
    nothing, its last frame cannot be decoded, or something stands behind it.
    """
    times: list[Any] = []
    keys: list[Any] = []
    first, tail = None, b""
    last: list[list[Any]] = [[], []]  # packets, each list from a key frame on
    with _opened(video) as (container, stream):
        told, declared, form = stream.frames, container.duration, container.format.name  # 0 or None where the header does not tell
        end, is_exact = 0.0, True
        for packet in container.demux():
            if packet.size:
                tail = bytes(packet) if not told else b""
            if packet.pts is not None:
                end, is_exact = max(end, float((packet.pts + (packet.duration or 0)) * packet.time_base)), bool(packet.duration)
            if packet.stream.index != stream.index:
                continue
            if first is None:
                first = next(iter(packet.decode()), None)
            if packet.is_corrupt:
                raise ValueError("a frame of the video must be whole, got a part: it is cut off.")
            if packet.size and not _is_unseen(packet, stream.codec_context.name):
                times.append(packet.pts)
                keys += [packet.pts] if packet.is_keyframe else []
            if not told:
                last = [last[-1], []] if packet.is_keyframe else last
                last[-1].append(packet)
        if first is not None and not told:
            _check_last(stream.codec_context, [*last[0], *last[1]])
    if len(times) < told and (found := _packets(video)) < told:
        raise ValueError(f"the video must have {told} frames, as its header says, got {found}: it is cut off.")
    if first is None or not times:
        raise ValueError("the video must have a frame that can be decoded, got none.")
    if None in times:
        raise ValueError("the frames of the video must have times, got some without.")
    if "matroska" in form and declared is not None:
        if end + (0.5 if is_exact else 1.5) * end / len(times) < declared / 1e6:  # a file may not say how long its last frame is
            raise ValueError(f"the video must have {declared / 1e6:.2f} seconds, as its header says, got {end:.2f}: it is cut off.")
    elif not told or form == "gif":  # of which the frames that are there are told
        _check_end(video, form, tail)
    height, width = _upright(first).shape[:2]
    return _Contents((width, height), sorted(times), sorted(keys))


def _check_last(codec: Any, packets: Sequence[Any]) -> None:
    """Refuses a video whose last frame is not whole.

    `packets` are the last ones, from the key frame before the last on, so that all that the last frame refers to is there.
    """
    codec.flush_buffers()
    frames = [frame for packet in packets for frame in packet.decode()]
    seen = [packet for packet in packets if packet.size]
    if not any(frame.pts == seen[-1].pts and not frame.is_corrupt for frame in frames):
        raise ValueError("the last frame of the video must be whole, got a part: it is cut off.")


def _check_end(video: object, form: str, tail: bytes) -> None:
    """Refuses a file that does not end with its last packet, or with what its format ends with; zeros behind it do not matter."""
    with file_of(video, "video") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - len(tail) - 4096))
        end = file.read().rstrip(b"\0")
    is_whole = {
        "gif": end.endswith(b";"),
        "mpegts": not all(size % packet for packet in _OF_PACKETS),
        "mpeg": True,  # of which the last frame says it
    }.get(form, end.endswith(tail.rstrip(b"\0")) or b"mfro" in end[-16:])
    if not is_whole:
        raise ValueError("the video must be whole, got something else behind its last frame: it is cut off.")


def _packets(video: object) -> int:
    """How many packets of images there are, those that an editor has cut off included, which are not all read else."""
    with _opened(video, ignore_editlist="1") as (container, stream):
        return sum(packet.size > 0 for packet in container.demux(stream))


def _is_unseen(packet: Any, codec: str) -> bool:
    """Whether it is only there for others to be decoded: cut off by an editor, or a reference of VP8, whose first byte says so."""
    return packet.is_discard or (codec == "vp8" and not bytes(packet)[0] & 0x10)


def _frames(video: object, contents: _Contents, numbers: Sequence[int]) -> list[np.ndarray]:
    """The pixels of the frames with these numbers, which are in order. Raises a ValueError if they differ in size."""
    times = [contents.times[number] for number in numbers]
    for keys in (contents.keys, ()):  # some formats have no table of where key frames stand: then all is decoded
        found = list(_walk(video, times, keys))
        if len(found) == len(times):
            break
    else:
        raise ValueError(f"the video must have {len(times)} frames that can be decoded, got {len(found)}: it is damaged.")
    if any(frame.shape[1::-1] != contents.size for frame in found):
        raise ValueError("the frames of the video must have one size, got several.")
    return found


def _walk(video: object, times: Sequence[int], keys: Sequence[int]) -> Iterator[np.ndarray]:
    """The frames at these times, up to the first that is not found. It goes on at a key frame where one lies between two times."""
    with _opened(video) as (container, stream):
        here, decoded = 0, container.decode(stream)
        for time in times:
            key = bisect.bisect(keys, time) - 1
            if key > here:
                container.seek(keys[key], stream=stream)
                here, decoded = key, container.decode(stream)
            frame = next((frame for frame in decoded if frame.pts == time), None)
            if frame is None:
                return
            yield _upright(frame)


def _upright(frame: Any) -> np.ndarray:
    """Its pixels, turned as phones tell it. The rotation is in degrees, against the clock."""
    return np.ascontiguousarray(np.rot90(frame.to_ndarray(format="rgb24"), round(frame.rotation / 90)))


@contextlib.contextmanager
def _opened(video: object, **options: str) -> Iterator[tuple[InputContainer, Any]]:
    """The video and its stream of images. What PyAV stumbles over is told in one sentence."""
    with needs("a video", "images"):
        import av
    with file_of(video, "video") as file:
        if not file.read(1):
            raise ValueError(f"the video must be one of {', '.join(FORMATS)}, got an empty file.")
        file.seek(0)
        try:
            # Texts beside the images, such as a title in Latin-1, do not matter.
            with av.open(file, metadata_errors="replace", options={"format_whitelist": ",".join(FORMATS), **options}) as container:
                stream = next(iter(container.streams.video), None)
                if stream is None or stream.codec_context is None:
                    raise ValueError("the file must have a video stream that can be decoded, got none.")
                if stream.width * stream.height > MAX_PIXELS:
                    raise ValueError(f"the video must have at most {MAX_PIXELS} pixels, got {stream.width} x {stream.height}.")
                stream.codec_context.thread_count = 1
                yield container, stream
        except av.FFmpegError as error:
            raise ValueError(
                f"the video must be one of {', '.join(FORMATS)}, got a file that is damaged or another: {error.strerror}."
            ) from error
