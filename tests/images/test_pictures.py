"""Pictures of all formats as pixels: upright, on white, and refused where they are damaged, too large or animated."""

import io
import struct
import zlib

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image, ImageFile, ImageOps

from ul2_tasks.images.pictures import Frame, pixels, resized, size_of
from ul2_tasks.images.sizes import VAE

COLOURS = np.random.default_rng(0).integers(0, 256, (13, 17, 4), np.uint8)
COLOURS[:3, :, 3], COLOURS[3:6, :, 3] = 0, 255


def smooth(mode="RGB", width=67, height=45):
    """A picture with soft colours, which a JPEG keeps nearly."""
    down, across = np.mgrid[:height, :width]
    bands = [across * 255 // width, down * 255 // height, (across + down) * 255 // (width + height), 255 - across]
    array = np.stack(bands, axis=2).astype(np.uint8)
    return Image.fromarray(array[:, :, 0]) if mode == "L" else Image.fromarray(array if mode == "CMYK" else array[:, :, :3], mode)


def saved(picture, format, **options):
    file = io.BytesIO()
    picture.save(file, format, **options)
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
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(part) - 4) + part + struct.pack(">I", zlib.crc32(part)) for part in parts
    )


def on_white(rgba):
    """Each colour mixed with white by its alpha, in exact numbers."""
    colour, alpha = rgba[..., :3].astype(int), rgba[..., 3:].astype(int)
    return np.round((colour * alpha + 255 * (255 - alpha)) / 255).astype(np.uint8)


def tensorflow_pixels(data):
    opaque = b"tRNS" not in data and data[25] not in (GREY_ALPHA, RGBA)  # where TensorFlow's alpha of less than 8 bits is not 255
    return tf.io.decode_png(data, channels=3).numpy() if opaque else on_white(tf.io.decode_png(data, channels=4).numpy())


GREY, RGB, PALETTE, GREY_ALPHA, RGBA = 0, 2, 3, 4, 6
COLOUR_TABLE = COLOURS[:, :, :3].tobytes()


def values_of(bits, channels):
    return np.random.default_rng(bits).integers(0, 2**bits, (13, 17, channels))


PNGS = {
    **{f"grey {bits}": png(values_of(bits, 1), bits, GREY) for bits in (1, 2, 4, 8, 16)},
    **{
        f"grey {bits} with a transparent value": png(values_of(bits, 1), bits, GREY, tRNS=struct.pack(">H", values_of(bits, 1).max()))
        for bits in (1, 2, 4, 8, 16)
    },
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
