"""Image files: modes, bit depths, rotation, and files that are damaged in every way."""

import io
import struct
import warnings
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageOps

from alchemy.errors import AlchemyError
from alchemy.images.read_image import EXIF_ORIENTATION, check_image, read_image, read_mask

COLORS = np.arange(5 * 4 * 3, dtype=np.uint8).reshape(5, 4, 3) * 4
RAMP = np.linspace(0, 65535, 20, dtype=np.uint16).reshape(5, 4)


def save(path, array, mode=None, **options):
    image = array if isinstance(array, Image.Image) else Image.fromarray(array)
    (image.convert(mode) if mode else image).save(path, **options)
    return path


def encode(format, size=(40, 30), **options):
    out = io.BytesIO()
    noise = np.random.default_rng(0).integers(0, 256, (*size, 3)).astype(np.uint8)
    Image.fromarray(noise).save(out, format, **options)
    return out.getvalue()


# the mode of a file, and the shape and dtype of its image with each mode of the config
MODES = {
    "RGB": {"RGB": (5, 4, 3), "L": (5, 4), "": (5, 4, 3)},
    "L": {"RGB": (5, 4, 3), "L": (5, 4), "": (5, 4)},
    "1": {"RGB": (5, 4, 3), "L": (5, 4), "": (5, 4)},
    "P": {"RGB": (5, 4, 3), "L": (5, 4), "": (5, 4)},
    "LA": {"RGB": (5, 4, 3), "L": (5, 4), "": (5, 4, 2)},
    "RGBA": {"RGB": (5, 4, 3), "L": (5, 4), "": (5, 4, 4)},
}


@pytest.mark.parametrize("saved", MODES)
def test_every_mode_is_converted(tmp_path, saved):
    file = save(tmp_path / "ä 图.png", COLORS, saved)
    for mode, shape in MODES[saved].items():
        image = read_image(file, mode=mode)
        assert image.shape == shape and image.dtype == (bool if saved == "1" and not mode else np.uint8)
    assert check_image(file) == (5, 4)
    assert read_image(str(file), mode="L", size=(3, 7)).shape == (3, 7)


def test_cmyk_and_animations_are_read(tmp_path):
    cmyk = save(tmp_path / "c.jpg", np.full((8, 8, 3), (200, 30, 60), np.uint8), "CMYK", quality=95)
    assert abs(read_image(cmyk).astype(int) - (200, 30, 60)).max() < 12
    frames = [Image.fromarray(np.full((5, 4), value, np.uint8)) for value in (10, 90)]
    frames[0].save(tmp_path / "a.gif", save_all=True, append_images=frames[1:])
    assert read_image(tmp_path / "a.gif", mode="L").tolist() == [[10] * 4] * 5


def test_deep_images_keep_their_values_or_are_mapped_to_bytes(tmp_path):
    for name in ("d.png", "d.tif"):
        file = save(tmp_path / name, RAMP)
        assert read_image(file, mode="").tolist() == RAMP.tolist()
        for mode in ("L", "RGB"):
            text = rf"{name}' has more than 8 bits per pixel, which mode = '{mode}' would clip: its values range from "
            with pytest.raises(AlchemyError, match=rf"{text}0 to 65535; set limits .* in \[task.data\]"):
                read_image(file, mode=mode)
        assert read_image(file, mode="L", limits=(0, 65535)).tolist() == np.rint(RAMP / 257).tolist()
        assert read_image(file, limits=(0, 1000)).max() == 255
    with pytest.raises(AlchemyError, match=r"limits = \[5, 5\]: the second value must be larger"):
        read_image(file, limits=(5, 5))
    # limits do not change images of 8 bits, so a folder may have both
    assert read_image(save(tmp_path / "e.png", COLORS), limits=(0, 1000)).tolist() == COLORS.tolist()


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("suffix", ["jpg", "png", "tif"])
def test_the_rotation_in_the_exif_data_is_applied(tmp_path, orientation, suffix):
    exif = Image.Exif()
    exif[EXIF_ORIENTATION] = orientation
    image = Image.fromarray(np.repeat(np.repeat(COLORS, 8, 0), 8, 1))
    file = save(tmp_path / f"x.{suffix}", image, exif=exif, **({"quality": 100} if suffix == "jpg" else {}))
    with Image.open(file) as opened:
        upright = np.array(ImageOps.exif_transpose(opened))
    assert read_image(file).tolist() == upright.tolist() and check_image(file) == upright.shape[:2]
    assert upright.shape[:2] == ((40, 32) if orientation < 5 else (32, 40))


def bomb():
    """A png file of 30,000 x 30,000 pixels in 100 bytes."""
    head = struct.pack(">IIBBBBB", 30000, 30000, 8, 0, 0, 0, 0)
    chunks = [(b"IHDR", head), (b"IDAT", zlib.compress(b"")), (b"IEND", b"")]
    pieces = [struct.pack(">I", len(d)) + n + d + struct.pack(">I", zlib.crc32(n + d)) for n, d in chunks]
    return b"\x89PNG\r\n\x1a\n" + b"".join(pieces)


BROKEN = {
    "empty.png": (b"", "is not a readable image: the file is empty; replace or remove the file"),
    "text.jpg": (b"<html>not found</html>", r"no image format that Pillow knows.*begins with b'<html>no'"),
    "head.png": (b"\x89PNG\r\n\x1a\n broken", "is not a readable image"),
    "cut.png": (encode("PNG")[:-200], "is not a readable image: .*truncated"),
    "cut.jpg": (encode("JPEG")[:-400], "is not a readable image: .*truncated"),
    "cut.gif": (encode("GIF")[:300], "is not a readable image"),
    "bomb.png": (bomb(), r"has too many pixels: the limit is 89,478,485; shrink the image"),
}


@pytest.mark.parametrize("name", BROKEN)
@pytest.mark.parametrize("read", [read_image, read_mask, check_image])
def test_a_damaged_file_is_named_with_the_reason(tmp_path, name, read):
    content, message = BROKEN[name]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(AlchemyError, match=message) as caught:
        read(tmp_path / name)
    assert name in str(caught.value) and caught.value.problem.hint


def test_damage_behind_the_header_is_found_with_the_pixels(tmp_path):
    content = bytearray(encode("PNG"))
    content[len(content) // 2] ^= 255
    (tmp_path / "x.png").write_bytes(content)
    assert check_image(tmp_path / "x.png") == (40, 30)
    with pytest.raises(AlchemyError, match=r"x.png' is not a readable image"):
        check_image(tmp_path / "x.png", pixels=True)


@pytest.mark.parametrize("read", [read_image, read_mask, check_image])
def test_missing_files_and_folders_are_named(tmp_path, read):
    (tmp_path / "cat.png").write_bytes(encode("PNG"))
    with pytest.raises(AlchemyError, match=r"file not found: .*cut.png'; did you mean 'cat.png'\?"):
        read(tmp_path / "cut.png")
    with pytest.raises(AlchemyError, match=r"expected a file, but .* is a folder"):
        read(tmp_path)


def error_of(read, file):
    try:
        read(file)
    except AlchemyError as error:
        return error


@pytest.mark.parametrize("format", ["PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP"])
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_any_damage_is_an_error_with_a_hint_or_an_image(format, data, tmp_path_factory):
    content = bytearray(encode(format, (9, 7)))
    for _ in range(data.draw(st.integers(0, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(content)))
    file = tmp_path_factory.getbasetemp() / f"damaged.{format.lower()}"
    file.write_bytes(content[:cut] if data.draw(st.booleans()) else content)
    for read in (read_image, read_mask, check_image):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            if (error := error_of(read, file)) is not None:
                assert file.name in str(error) and error.problem.hint


def test_masks_are_the_values_of_the_file(tmp_path):
    ids = np.arange(20, dtype=np.uint8).reshape(5, 4)
    palette = Image.fromarray(ids).convert("P")
    palette.putpalette([(7 * value) % 256 for value in range(768)])
    assert read_mask(save(tmp_path / "p.png", palette)).tolist() == ids.tolist()
    assert read_mask(save(tmp_path / "l.png", ids)).tolist() == ids.tolist()
    assert read_mask(save(tmp_path / "w.png", RAMP)).tolist() == RAMP.tolist()
    assert read_mask(save(tmp_path / "b.png", ids > 9)).tolist() == (ids > 9).astype(int).tolist()
    assert read_mask(save(tmp_path / "c.png", COLORS)).tolist() == COLORS.tolist()
    large = read_mask(tmp_path / "l.png", size=(11, 9))
    assert large.shape == (11, 9) and set(np.unique(large)) <= set(range(20))
