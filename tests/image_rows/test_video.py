"""Frames of videos: drawn by the record's draws, each one reachable, decoded as if all were."""

import collections
import contextlib
import functools
import io
import itertools

import av
import numpy as np
import pytest
import scipy.stats

from ul2_tasks.image_rows.schemas import SCHEMAS
from ul2_tasks.image_rows.video import FrameSampler
from ul2_tasks.images.draws import draws_of
from ul2_tasks.images.pixels import pixels, size_of
from ul2_tasks.images.schemas import vlm_sft

WIDTH, HEIGHT = 64, 48


# Older ones read such videos as well.
writes_all = pytest.mark.skipif(
    not hasattr(av.video.stream.VideoStream, "set_display_rotation"), reason="this PyAV does not write such videos"
)


def shown(number):
    """A frame: its number as eight bright or dark squares above, and below them darkness."""
    frame = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
    for bit in range(8):
        frame[:24, bit * 8 : bit * 8 + 8] = 255 * (number >> bit & 1)
    return frame


def number_of(frame):
    return sum((frame[4:20, bit * 8 + 2 : bit * 8 + 6].mean() > 127) << bit for bit in range(8))


@functools.cache
def video(frames, codec="libx264", format="mp4", turned=0, muxer=(), pixels="yuv420p", **options):
    file = io.BytesIO()
    with av.open(file, "w", format=format, options=dict(muxer)) as container:
        stream = container.add_stream(codec, rate=25, options={"g": "10", **options})
        stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, pixels
        if turned:
            stream.set_display_rotation(turned)
        for number in range(frames):
            container.mux(stream.encode(av.VideoFrame.from_ndarray(shown(number)).reformat(format=pixels)))
        container.mux(stream.encode())
    return file.getvalue()


def drawn(sampler, data, record="r"):
    return [number_of(pixels(frame)) for frame in sampler(data, draws_of(0, 0, record))]


KINDS = {
    "h264 mp4": {},
    "h264 mp4 with frames out of order": {"bf": "3"},
    "mpeg4 avi": {"codec": "mpeg4", "format": "avi"},
    "vp9 webm": {"codec": "libvpx-vp9", "format": "webm"},
    "h264 matroska": {"format": "matroska"},
    "mpeg2 transport stream": {"codec": "mpeg2video", "format": "mpegts"},
    "h264 transport stream with frames out of order": {"format": "mpegts", "bf": "3"},
    "h264 mp4 in fragments": {"muxer": (("movflags", "frag_keyframe+empty_moov"),)},
    "h264 matroska of unknown length": {"format": "matroska", "muxer": (("live", "1"),)},
    "mpeg2 program stream": {"codec": "mpeg2video", "format": "mpeg"},
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_frames_are_those_of_the_numbers_that_are_drawn(kind):
    data, sampler = video(75, **KINDS[kind]), FrameSampler(3, 6)
    for record in "abc":
        assert drawn(sampler, data, record) == sampler.numbers(75, draws_of(0, 0, record))


def test_a_frame_that_is_not_to_be_seen_is_not_counted():
    """VP8 has such frames for others to refer to. Here the 40th becomes one, by the bit that says so."""
    data = bytearray(video(75, codec="libvpx", format="webm"))
    with av.open(io.BytesIO(data)) as container:
        packet = next(itertools.islice(container.demux(video=0), 40, None))
        data[data.index(bytes(packet))] &= ~0x10
    seen = [number for number in range(75) if number != 40]
    sampler = FrameSampler(70, 70)
    assert drawn(sampler, bytes(data)) == [seen[number] for number in sampler.numbers(74, draws_of(0, 0, "r"))]


@writes_all
def test_a_video_that_an_editor_has_shortened_has_the_frames_that_are_left():
    """Such a file has all frames that it had, and says from which time on they are to be seen."""
    file = io.BytesIO()
    options = {"avoid_negative_ts": "disabled", "use_editlist": "1"}
    with av.open(io.BytesIO(video(75, bf="2"))) as whole, av.open(file, "w", format="mp4", options=options) as shortened:
        stream = shortened.add_stream_from_template(whole.streams.video[0])
        for packet in whole.demux(video=0):
            if packet.size:
                earlier = round(1 / (25 * packet.time_base)) * 25
                packet.pts, packet.dts, packet.stream = packet.pts - earlier, packet.dts - earlier, stream
                shortened.mux(packet)
    assert drawn(FrameSampler(50, 50), file.getvalue()) == list(range(25, 75))


def test_one_frame_of_each_part_and_each_frame_equally_likely():
    sampler, counts, parts = FrameSampler(2, 4), collections.Counter(), collections.Counter()
    for epoch in range(2000):
        numbers = sampler.numbers(12, draws_of(0, epoch, "r"))
        assert [number * len(numbers) // 12 for number in numbers] == list(range(len(numbers)))
        counts.update(numbers)
        parts[len(numbers)] += 1
    assert counts.keys() == set(range(12))
    assert parts.keys() == {2, 3, 4}
    assert scipy.stats.chisquare(list(counts.values())).pvalue > 0.001
    assert scipy.stats.chisquare(list(parts.values())).pvalue > 0.001


def test_a_short_video_gives_each_frame_once():
    for count in (1, 2, 7, 8):
        assert drawn(FrameSampler(8, 12), video(count)) == list(range(count))


@writes_all
@pytest.mark.parametrize(("turned", "size"), [(90, (48, 64)), (-90, (48, 64)), (180, (64, 48))])
def test_a_video_is_turned_upright(turned, size):
    """By so many degrees against the clock: its bright half is then at the left, at the right, or below."""
    (frame,) = FrameSampler(1, 1)(video(75, turned=turned), draws_of(0, 3, "r"))
    found = pixels(frame)
    assert size_of(frame) == size == found.shape[1::-1]
    assert np.rot90(found, -turned // 90)[30:].mean() < 3
    assert number_of(np.rot90(found, -turned // 90)) in FrameSampler(1, 1).numbers(75, draws_of(0, 3, "r"))


def test_a_conversation_has_the_frames_where_the_mark_stands():
    turns = [{"from": "human", "value": "first <video> last"}, {"from": "gpt", "value": "counted"}]
    record = {"video": video(5), "conversations": turns}
    layout = SCHEMAS["vlm_sft"](record, draws_of(0, 0, "r"))
    assert [element.kind for element in vlm_sft(record, draws_of(0, 0, "r"), frames=FrameSampler(1, 2))].count("vit") <= 2
    assert [element.kind for element in layout] == ["text", *["vit"] * 5, "text", "text"]
    assert [number_of(pixels(element.image)) for element in layout[1:6]] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("part", [0.02, 0.5, 0.8, 0.999])
def test_a_video_that_is_cut_off_is_refused_or_has_all_of_its_frames(kind, part):
    """What can be missing then is padding, or what stands behind the frames."""
    whole = video(75, **KINDS[kind])
    data, sampler = whole[: int(len(whole) * part)], FrameSampler()
    try:
        found = drawn(sampler, data)
    except ValueError:
        return
    assert found == sampler.numbers(75, draws_of(0, 0, "r"))


@pytest.mark.parametrize("kind", KINDS)
def test_bytes_that_are_changed_give_frames_or_a_sentence(kind):
    """Never an error of another type, whatever PyAV stumbles over."""
    changes = np.random.default_rng(0)
    for _ in range(4):
        data = np.frombuffer(video(8, **KINDS[kind]), np.uint8).copy()
        data[changes.integers(0, len(data), 5)] = changes.integers(0, 256, 5)
        with contextlib.suppress(ValueError):
            assert drawn(FrameSampler(), data.tobytes())


@pytest.mark.parametrize("data", [b"", b"not a video at all", 7, "no/such/file.mp4", "list.txt"])
def test_what_is_no_video_is_refused(tmp_path, monkeypatch, data):
    """Nor is a list of other files, which FFmpeg would open."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "video.mp4").write_bytes(video(75))
    (tmp_path / "list.txt").write_text("ffconcat version 1.0\nfile video.mp4\n")
    with pytest.raises(ValueError, match="the video must be "):
        drawn(FrameSampler(), data)


@pytest.mark.parametrize(("fewest", "most"), [(0, 3), (4, 3), (1.5, 3), (1, True)])
def test_numbers_of_frames_that_cannot_be_are_refused(fewest, most):
    with pytest.raises(ValueError, match="min_frames and max_frames"):
        FrameSampler(fewest, most)
