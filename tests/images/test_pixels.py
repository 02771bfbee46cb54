"""Images of all formats as pixels: upright, on white, and refused where they are damaged, too large or animated."""

import contextlib
import io
import struct
import zlib

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image, ImageFile, ImageOps

from ul2_tasks.images.pixels import pixels, resized, size_of

COLOURS = np.random.default_rng(0).integers(0, 256, (16, 3), np.uint8)


def smooth(mode="RGB", width=67, height=45):
    """An image with soft colours, which a JPEG keeps nearly."""
    down, across = np.mgrid[:height, :width]
    bands = np.stack([across * 3, down * 5, across + down, 255 - across], axis=2).astype(np.uint8)
    return Image.fromarray(bands).convert("RGBA").convert(mode) if mode != "CMYK" else Image.fromarray(bands, "CMYK")


def saved(image, format, **options):
    file = io.BytesIO()
    image.save(file, format, **options)
    return file.getvalue()


def png(values, bits, kind, **chunks):
    """A PNG of [height, width, channels] values of any depth, written by hand: Pillow writes few of them."""
    height, width, channels = values.shape
    planes = values.astype(">u2").tobytes() if bits == 16 else None
    lines = []
    for line in range(height):
        if planes:
            row = planes[line * width * channels * 2 :][: width * channels * 2]
        else:
            digits = "".join(f"{value:0{bits}b}" for value in values[line].ravel())
            digits += "0" * (-len(digits) % 8)
            row = int(digits, 2).to_bytes(len(digits) // 8, "big")
        lines.append(b"\0" + row)
    header = struct.pack(">IIBBBBB", width, height, bits, kind, 0, 0, 0)
    body = {"IHDR": header, **chunks, "IDAT": zlib.compress(b"".join(lines)), "IEND": b""}
    parts = [(name.encode() + data) for name, data in body.items()]
    return b"\x89PNG\r\n\x1a\n" + b"".join(map(chunk, parts))


def chunk(part):
    return struct.pack(">I", len(part) - 4) + part + struct.pack(">I", zlib.crc32(part))


def on_white(rgba):
    """Each colour mixed with white by its alpha, in exact numbers."""
    colour, alpha = rgba[..., :3].astype(int), rgba[..., 3:].astype(int)
    return np.round((colour * alpha + 255 * (255 - alpha)) / 255).astype(np.uint8)


def tensorflow_pixels(data):
    opaque = b"tRNS" not in data and data[25] not in (GREY_ALPHA, RGBA)  # where TensorFlow's alpha of less than 8 bits is not 255
    return tf.io.decode_png(data, channels=3).numpy() if opaque else on_white(tf.io.decode_png(data, channels=4).numpy())


GREY, RGB, PALETTE, GREY_ALPHA, RGBA = 0, 2, 3, 4, 6
COLOUR_TABLE = COLOURS.tobytes()


def values_of(bits, channels):
    return np.random.default_rng(bits).integers(0, 2**bits, (13, 17, channels))


PNGS = {
    **{f"grey {bits}": png(values_of(bits, 1), bits, GREY) for bits in (1, 2, 4, 8, 16)},
    **{f"palette {bits}": png(values_of(bits, 1), bits, PALETTE, PLTE=COLOUR_TABLE[: 3 * 2**bits]) for bits in (1, 2, 4)},
    **{
        f"palette {bits} with alpha": png(
            values_of(bits, 1), bits, PALETTE, PLTE=COLOUR_TABLE[: 3 * 2**bits], tRNS=bytes([0, 255, 77, 1][: 2**bits])
        )
        for bits in (1, 2, 4)
    },
    "rgb 8": png(values_of(8, 3), 8, RGB),
    "rgb 16": png(values_of(16, 3), 16, RGB),
    "rgb 8 with a transparent colour": png(values_of(8, 3), 8, RGB, tRNS=values_of(8, 3)[3, 4].astype(">u2").tobytes()),
    "grey and alpha 8": png(values_of(8, 2), 8, GREY_ALPHA),
    "grey and alpha 16": png(values_of(16, 2), 16, GREY_ALPHA),
    "rgba 8": png(values_of(8, 4), 8, RGBA),
    "rgba 16": png(values_of(16, 4), 16, RGBA),
}


@pytest.mark.parametrize("name", PNGS)
def test_a_png_of_any_depth_is_what_tensorflow_reads_on_white(name):
    found = pixels(PNGS[name])
    assert (found.dtype, found.shape) == (np.uint8, (13, 17, 3))
    np.testing.assert_array_equal(found, tensorflow_pixels(PNGS[name]))
    assert size_of(PNGS[name]) == (17, 13)


@pytest.mark.parametrize("bits", [8, 16])
def test_a_grey_that_a_png_calls_transparent_is_white(bits):
    values = values_of(bits, 1)
    for clear in {0, 1, int(values[3, 4, 0])}:
        known = np.where(values == clear, 255, values >> 8 if bits == 16 else values * 255 // (2**bits - 1))
        found = pixels(png(values, bits, GREY, tRNS=struct.pack(">H", clear)))
        np.testing.assert_array_equal(found, np.broadcast_to(known, found.shape))


JPEG, WEBP, GIF, BMP = (saved(smooth(), format) for format in ("JPEG", "WEBP", "GIF", "BMP"))
JPEGS = {
    "4:4:4": {"subsampling": 0},
    "4:2:0": {"subsampling": 2},
    "progressive": {"progressive": True},
    "grey": {"mode": "L"},
    "cmyk": {"mode": "CMYK"},
}


@pytest.mark.parametrize("name", JPEGS)
def test_a_jpeg_of_any_kind_is_what_tensorflow_reads(name):
    options = {"mode": "RGB", **JPEGS[name]}
    data = saved(smooth(options.pop("mode")), "JPEG", quality=90, **options)
    known = tf.io.decode_jpeg(data, channels=3, dct_method="INTEGER_ACCURATE").numpy()
    np.testing.assert_allclose(pixels(data).astype(int), known, atol=0 if name != "cmyk" else 1)  # two roundings of c * k / 255
    assert size_of(data) == (67, 45)


def test_gif_and_bmp_are_what_was_saved():
    few = smooth().quantize(16)
    np.testing.assert_array_equal(pixels(saved(few, "GIF")), np.asarray(few.convert("RGB")))
    np.testing.assert_array_equal(pixels(saved(smooth(), "BMP")), np.asarray(smooth()))
    index = int(np.asarray(few)[20, 30])
    seen = pixels(saved(few, "GIF", transparency=index))
    np.testing.assert_array_equal((seen == 255).all(axis=2), np.asarray(few) == index)


def with_orientation(orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    return exif


def xmp(orientation, form='tiff:Orientation="{}"'):
    return b'<x:xmpmeta xmlns:x="adobe:ns:meta/"><a ' + form.format(orientation).encode() + b"/></x:xmpmeta>"


def png_with(behind, *chunks):
    """A PNG with chunks before its pixels, or behind them."""
    data = saved(smooth(), "PNG")
    place = len(data) - 12 if behind else data.index(b"IDAT") - 4
    return data[:place] + b"".join(map(chunk, chunks)) + data[place:]


def text_of_xmp(orientation):
    return b"iTXtXML:com.adobe.xmp\0\0\0\0\0" + xmp(orientation)


def exif_chunk(orientation):
    return b"eXIf" + with_orientation(orientation).tobytes().removeprefix(b"Exif\0\0")


def profile_of_exif(orientation):
    content = with_orientation(orientation).tobytes()
    return b"tEXtRaw profile type exif\0\nexif\n" + f"{len(content):8}\n{content.hex()}\n".encode()


TURNED = {
    "JPEG": lambda n: saved(smooth(), "JPEG", exif=with_orientation(n)),
    "JPEG by XMP": lambda n: saved(smooth(), "JPEG", xmp=xmp(n)),
    "JPEG by an element of XMP": lambda n: saved(smooth(), "JPEG", xmp=xmp(n, "><tiff:Orientation>{}</tiff:Orientation")),
    "JPEG by EXIF and not XMP": lambda n: saved(smooth(), "JPEG", exif=with_orientation(n), xmp=xmp(3)),
    "grey JPEG by XMP": lambda n: saved(smooth("L"), "JPEG", xmp=xmp(n)),
    "MPO": lambda n: saved(smooth(), "MPO", save_all=True, append_images=[smooth()], exif=with_orientation(n)),
    "MPO by XMP": lambda n: saved(smooth(), "MPO", save_all=True, append_images=[smooth()], xmp=xmp(n)),
    "WEBP": lambda n: saved(smooth(), "WEBP", exif=with_orientation(n)),
    "WEBP by XMP": lambda n: saved(smooth(), "WEBP", xmp=xmp(n)),
    "PNG": lambda n: saved(smooth(), "PNG", exif=with_orientation(n)),
    "PNG by XMP": lambda n: png_with(False, text_of_xmp(n)),
    "PNG by a text": lambda n: png_with(False, profile_of_exif(n)),
    "PNG behind its pixels": lambda n: png_with(True, exif_chunk(n)),
    "PNG by XMP behind its pixels": lambda n: png_with(True, b"tEXta\0b", text_of_xmp(n)),
    "PNG by EXIF and not XMP behind its pixels": lambda n: png_with(True, exif_chunk(n), text_of_xmp(3)),
    "grey PNG of two bits": lambda n: png(np.arange(12).reshape(3, 4, 1) % 4, 2, 0, tRNS=b"\0\1", eXIf=exif_chunk(n)[4:]),
}


@pytest.mark.parametrize("name", TURNED)
@pytest.mark.parametrize("orientation", [0, *range(1, 10)])
def test_an_image_is_turned_upright_as_pillow_turns_it(name, orientation):
    data = TURNED[name](orientation)
    image = Image.open(io.BytesIO(data))
    known = np.asarray(ImageOps.exif_transpose(image).convert("RGB"))
    assert size_of(data) == known.shape[1::-1] == (image.size[::-1] if orientation in (5, 6, 7, 8) else image.size)
    if name != "grey PNG of two bits":  # whose transparent value is ours
        np.testing.assert_array_equal(pixels(data), known)
    assert pixels(data).shape == known.shape


@pytest.fixture
def no_decoder(monkeypatch):
    """Pillow, which may not decode."""

    def load(*arguments):
        raise AssertionError("decoded")

    monkeypatch.setattr(ImageFile.ImageFile, "load", load)


def test_a_drafted_jpeg_is_large_enough_and_nearly_the_same():
    data = saved(smooth(width=800, height=600), "JPEG", exif=with_orientation(6))
    found = pixels(data, draft=(150, 200))
    assert found.shape == (200, 150, 3)
    known = resized(pixels(data), 150, 200)
    assert np.abs(found.astype(int) - known).max() > 0
    assert np.abs(found.astype(int) - known).mean() < 3
    np.testing.assert_array_equal(pixels(data, draft=(301, 300)), pixels(data))
    np.testing.assert_array_equal(pixels(PNGS["rgb 8"], draft=(1, 1)), pixels(PNGS["rgb 8"]))


CUT = {"jpeg": JPEG, "rgb": PNGS["rgb 8"], "palette": PNGS["palette 4"], "webp": WEBP, "gif": GIF, "bmp": BMP}


@pytest.mark.parametrize("data", CUT.values(), ids=CUT.keys())
def test_an_image_that_is_cut_anywhere_is_refused_or_whole(data):
    """Whole it is where only check sums and the end mark are lost."""
    whole, refused = pixels(data), 0
    lengths = [*range(0, len(data) - 40, 37), *range(len(data) - 40, len(data))]
    for length in lengths:
        try:
            found = pixels(data[:length])
        except ValueError:
            refused += 1
        else:
            np.testing.assert_array_equal(found, whole)
    assert refused >= len(lengths) - 20


def test_bytes_that_are_changed_give_pixels_or_a_sentence():
    """Never an error of another type, whatever Pillow stumbles over."""
    draws = np.random.default_rng(0)
    for data in (JPEG, *PNGS.values(), WEBP, GIF, BMP):
        for _ in range(20):
            changed = np.frombuffer(data, np.uint8).copy()
            changed[draws.integers(0, len(changed), 3)] = draws.integers(0, 256, 3)
            with contextlib.suppress(ValueError):
                size = size_of(changed.tobytes(), max_pixels=2**16)
                assert pixels(changed.tobytes(), max_pixels=2**16).shape[1::-1] == size


def of_size(width, height):
    """A header, and no pixels."""
    header = struct.pack(">IIBBBBB", width, height, 8, GREY, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + b"".join(map(chunk, [b"IHDR" + header, b"IDAT" + zlib.compress(b"0"), b"IEND"]))


REFUSED = {
    **dict.fromkeys([b"", b"<html>404</html>", b"%!PS-Adobe-3.0 EPSF-3.0\n", None, "no/such/file.jpg", "/"], "the image must be"),
    **{
        saved(smooth(), format, save_all=True, append_images=[smooth("L").convert("RGB")]): "one frame"
        for format in ("GIF", "PNG", "WEBP")
    },
    **{of_size(*sides): "67108864 pixels" for sides in ((8193, 8192), (10_000, 10_000))},
    of_size(60_000, 60_000): "too many pixels",
}


@pytest.mark.parametrize("read", [size_of, pixels])
@pytest.mark.parametrize(("data", "said"), REFUSED.items(), ids=range(len(REFUSED)))
@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_what_is_no_image_is_refused_by_its_header(read, data, said, no_decoder):
    """Also one of several frames, or of too many pixels."""
    with pytest.raises(ValueError, match=said):
        read(data)


@pytest.mark.parametrize("data", [JPEG, PNGS["palette 4 with alpha"], WEBP, GIF, BMP], ids=["JPEG", "PNG", "WEBP", "GIF", "BMP"])
def test_a_size_is_read_without_decoding(data, no_decoder):
    assert min(size_of(data)) > 12
    with pytest.raises(ValueError, match="decoded"):
        pixels(data)
