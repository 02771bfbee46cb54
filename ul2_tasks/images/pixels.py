"""Images as pixels, read by Pillow: upright, in full, and in one way whatever their format is.

    EXIF, XMP             the image is turned upright
    transparency          stands on white
    CMYK, grey, palette   become RGB
    16 bits               the upper 8 of them

A ValueError of one sentence rejects an image that has several frames, too many pixels, or is cut off or damaged so that
its decoder notices it. None of Pillow's process-wide settings is changed; where other code sets LOAD_TRUNCATED_IMAGES,
Pillow reads images that are cut off, here too.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import io
import os
import stat
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

import numpy as np

from ul2_tasks.extras import needs
from ul2_tasks.files.opening import is_unreachable
from ul2_tasks.files.retries import named
from ul2_tasks.files.systems import open_to_read, read
from ul2_tasks.images.paths import Address, is_address

if TYPE_CHECKING:
    from PIL.ImageFile import ImageFile

FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP")
MAX_PIXELS = 2**26  # 8192 x 8192: 192 MiB of bytes
_NO_FILE = {errno.ENOENT, errno.EISDIR, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP}
_ORIENTATION = 0x0112  # the EXIF tag, which Pillow fills from XMP, too


@dataclasses.dataclass(frozen=True, eq=False)
class Frame:
    """A frame of a video. It is decoded when its pixels are asked for.

    Attributes:
        width, height: as it is seen upright.
        read: gives its pixels, [height, width, 3] uint8.
        number: its number in the video, from 0.
    """

    width: int
    height: int
    read: Callable[[], np.ndarray] = dataclasses.field(repr=False)
    number: int = 0


def size_of(image: object, max_pixels: int = MAX_PIXELS) -> tuple[int, int]:
    """Returns the width and height of an upright image, from its header alone.

    Args:
        image: the bytes of an image, the path of its file, or a `Frame`.
        max_pixels: an image with more is an error.

    Raises:
        ValueError: it is not an image, has several frames, or too many pixels.
        ImportError: Pillow is not installed.

    >>> size_of(Frame(640, 360, lambda: np.zeros((360, 640, 3), np.uint8)))
    (640, 360)
    """
    if isinstance(image, Frame):
        return image.width, image.height
    with _opened(image, max_pixels) as opened:
        width, height = opened.size
        return (height, width) if _orientation(opened) >= 5 else (width, height)


def pixels(image: object, max_pixels: int = MAX_PIXELS, draft: tuple[int, int] | None = None) -> np.ndarray:
    """Returns the pixels of an image, upright and on white.

    Args:
        image: see `size_of`.
        max_pixels: see `size_of`.
        draft: the width and the height that are enough. A JPEG is then decoded at a half, a quarter or an eighth of its sides where
            that has as many pixels, in a fraction of the time. Resized pixels are then not quite those of the whole image.

    Returns:
        [height, width, 3] uint8, of memory that is not to be written to.

    Raises:
        ValueError: as `size_of`; or the image is cut off or damaged.
        ImportError: Pillow is not installed.

    >>> pixels(Frame(2, 1, lambda: np.full((1, 2, 3), 7, np.uint8))).tolist()
    [[[7, 7, 7], [7, 7, 7]]]
    """
    if isinstance(image, Frame):
        return image.read()
    with _opened(image, max_pixels) as opened:
        from PIL import ImageOps

        orientation = _orientation(opened)
        with _told():
            if draft is not None:
                opened.draft(None, draft[::-1] if orientation >= 5 else draft)
            opened.load()
            seen = _on_white(opened)
        if orientation > 1:
            seen.info.clear()  # of all EXIF, which would be written anew, the orientation alone is needed
            seen.getexif()[_ORIENTATION] = orientation
            ImageOps.exif_transpose(seen, in_place=True)
        return np.asarray(seen)


def resized(pixels: np.ndarray, width: int, height: int, filter: Literal["bicubic", "bilinear"] = "bicubic") -> np.ndarray:
    """Resizes pixels with Pillow's antialiased filters.

    Args:
        pixels: [height, width, 3] uint8.
        width, height: what they become.
        filter: bicubic as in BAGEL, or bilinear as in T5Gemma 2.

    Returns:
        [height, width, 3] uint8, of memory that is not to be written to.

    Raises:
        ImportError: Pillow is not installed.

    >>> resized(np.full((6, 6, 3), 7, np.uint8), width=2, height=1).tolist()
    [[[7, 7, 7], [7, 7, 7]]]
    """
    pil = pillow()
    return np.asarray(pil.fromarray(pixels).resize((width, height), getattr(pil.Resampling, filter.upper())))


@contextlib.contextmanager
def file_of(image: object, what: str) -> Iterator[BinaryIO]:
    """The bytes, or the file at the path, to read from.

    `what` is a name for it. What is neither, and a file that is not there or may not be read, raises a ValueError.

    >>> with file_of(b"abc", "image") as file:
    ...     file.read()
    b'abc'
    """
    if isinstance(image, bytes):
        yield io.BytesIO(image)
    elif isinstance(image, str | os.PathLike):
        with _file_at(os.fspath(image), what) as file:
            yield file
    else:
        raise ValueError(f"the {what} must be bytes or a path, got {kind_of(image)}.")


def kind_of(value: object) -> str:
    """Of which type a value is that is no encoded image; and what to do where it is a decoded one.

    >>> kind_of(7)
    'a value of type int'
    """
    kind = f"a value of type {type(value).__name__}"
    if type(value).__module__.split(".")[0] in ("PIL", "torchcodec") or getattr(value, "ndim", 0) > 1:
        kind += (
            ", which is decoded. Read its file instead: dataset.cast_column(NAME, datasets.Image(decode=False)), or"
            " datasets.Video(decode=False)"
        )
    return kind


def _file_at(path: str, what: str) -> BinaryIO:
    if isinstance(path, Address):
        try:
            return io.BytesIO(read(path))
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError) as error:
            raise ValueError(f"the {what} must be a file that can be read, got {str(path)!r}: {error}.") from error
    if is_address(path):
        raise ValueError(
            f"the {what} on another file system must be below folder, got {path!r}. Pass folder=, the address that the files are"
            " below, or download them."
        )
    try:
        mode = os.stat(path).st_mode
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
            raise ValueError(
                f"the {what} must be a file, got {path!r}, a device or a pipe."
            )  # which could be waited for without end
        return open_to_read(path)
    except OSError as error:
        if error.errno in _NO_FILE:
            raise ValueError(f"the {what} must be a file that can be read, got {path!r}: {error.strerror}.") from error
        failure = named(error, path)
    raise failure


@contextlib.contextmanager
def _opened(image: object, max_pixels: int) -> Iterator[ImageFile]:
    """The image, of which the header is read and found right."""
    pil = pillow()
    with file_of(image, "image") as file:
        try:
            with _told():
                opened = pil.open(file, formats=FORMATS)
                still = opened.format == "MPO" or not getattr(opened, "is_animated", False)  # MPO: a JPEG with others behind it
        except pil.UnidentifiedImageError as error:
            file.seek(0)
            raise ValueError(
                f"the image must be one of {', '.join(FORMATS)}, got a file that begins with {file.read(12)!r}."
            ) from error
        width, height = opened.size
        if width * height > max_pixels:
            raise ValueError(f"the image must have at most {max_pixels} pixels, got {width} x {height}.")
        if not still:
            raise ValueError(f"the image must have one frame, got a {opened.format} of several.")
        yield opened


@contextlib.contextmanager
def _told() -> Iterator[None]:
    """Tells in one sentence what Pillow stumbles over, which can be an error of any type; but not those of memory and files."""
    pil = pillow()
    try:
        yield
    except (MemoryError, pil.UnidentifiedImageError):
        raise
    except (pil.DecompressionBombError, pil.DecompressionBombWarning) as error:
        raise ValueError(f"the image has too many pixels: {error}") from error
    except Exception as error:
        if is_unreachable(error):
            raise
        raise ValueError(f"the image is damaged: {error}") from error


def _orientation(opened: ImageFile) -> int:
    """The orientation, 1 to 8, by EXIF, or where that has none by XMP, as `ImageOps.exif_transpose` has it."""
    content = None
    if _is_told_behind_pixels(opened):
        with _from_beginning(opened) as file:
            content = io.BytesIO(file.read())
    pil = pillow()
    try:  # a PNG's own `getexif` decodes it, to find what is behind its pixels
        exif = pil.Image.getexif(opened) if content is None else pil.open(content, formats=FORMATS).getexif()
        found = exif.get(_ORIENTATION)
    except Exception:  # damaged EXIF says nothing; the image is as it is
        return 1
    return found if found in range(1, 9) else 1


def _is_told_behind_pixels(opened: ImageFile) -> bool:
    """Whether a PNG has EXIF or texts, of which XMP is one, behind its pixels."""
    if opened.format != "PNG":
        return False
    with _from_beginning(opened) as file:
        file.seek(8)
        behind = False
        while len(head := file.read(8)) == 8 and head[4:] != b"IEND":
            behind |= head[4:] == b"IDAT"
            if behind and head[4:] in (b"eXIf", b"iTXt", b"tEXt", b"zTXt"):
                return True
            file.seek(int.from_bytes(head[:4], "big") + 4, io.SEEK_CUR)
    return False


@contextlib.contextmanager
def _from_beginning(opened: ImageFile) -> Iterator[Any]:
    """The file of an image from its beginning; afterwards it is where it was."""
    file = opened.fp
    assert file is not None, "it is open"
    place = file.tell()
    file.seek(0)
    try:
        yield file
    finally:
        file.seek(place)


def _on_white(opened: ImageFile) -> Any:
    """The image in RGB, its transparent places white."""
    pil = pillow()
    if opened.mode == "I;16":  # grey; Pillow would make white of all that is above 255
        values = np.asarray(opened)
        white = values == opened.info.get("transparency", -1)
        return pil.fromarray(np.where(white, 255, values >> 8).astype(np.uint8)).convert("RGB")
    if not opened.has_transparency_data:
        return opened.convert("RGB")
    image = opened.convert("RGBA")
    white = pil.new("RGB", image.size, "white")
    white.paste(image, mask=image.getchannel("A"))
    return white


def pillow() -> Any:
    """Pillow's module PIL.Image, which is not imported before it is needed. Raises an ImportError if Pillow is not there."""
    with needs("an image", "images"):
        from PIL import Image
    return Image
