"""Images: idx files, folders, and what is damaged."""

import gzip
import struct
import sys

import numpy as np
import pytest

from alchemy.errors import AlchemyError
from alchemy.pipeline.processors import IdxImages, ImageFolder


def idx(*shape, code=8, body=None):
    numbers = bytes(range(np.prod(shape))) if body is None else body
    return struct.pack(f">BBBB{len(shape)}I", 0, 0, code, len(shape), *shape) + numbers


@pytest.fixture
def mnist(tmp_path):
    (tmp_path / "images").write_bytes(idx(2, 3, 2))
    (tmp_path / "labels.gz").write_bytes(gzip.compress(idx(2, body=b"\1\0")))
    return str(tmp_path / "images"), str(tmp_path / "labels.gz")


def test_idx_files_are_arrays(mnist):
    images, labels = mnist
    sample = IdxImages(images, label_path=labels)[0]
    assert sample["image"].tolist() == [[0, 1], [2, 3], [4, 5]] and sample["label_id"] == 1 and "label" not in sample
    named = IdxImages(images, label_path=labels, labels=["no", "yes"], scale=True)
    assert named[0]["label"] == "yes" and named.gives == {"image": "ndarray", "label": "str", "label_id": "int"}
    assert named[1]["image"].shape == (1, 3, 2) and named[1]["image"].dtype == np.float32
    assert named[1]["image"].max() == np.float32(11 / 255)
    assert list(IdxImages(images)[0]) == ["image"] and named.where(-1) == f"{images} item 1"


def test_wide_numbers_are_read_in_the_order_of_the_machine(tmp_path):
    (tmp_path / "wide").write_bytes(idx(1, 2, code=12, body=struct.pack(">ii", 1, -2)))
    image = IdxImages(str(tmp_path / "wide"))[0]["image"]
    assert image.tolist() == [1, -2] and image.dtype == np.int32 and image.dtype.isnative


@pytest.mark.parametrize(
    ("images", "labels", "options", "message"),
    [
        (b"PNG", None, {}, "is not an idx file"),
        (idx(2, 3, body=b"\0"), None, {}, r"1 bytes follow the head, expected 6 for \[2, 3\]"),
        (b"\0\0\x08\3\0\0\0\2", None, {}, "the head ends after 8 bytes, expected 16 for 3 axes; the file is cut"),
        (idx(2, 3)[:10], None, {}, "the head ends after 10 bytes, expected 12 for 2 axes"),
        (idx(0, 3), idx(0), {"labels": ["a"]}, "IdxImages finds no samples"),
        (idx(2, 3), idx(3), {}, r"2 images, but labels of the shape \[3\]"),
        (idx(2, 3), idx(2), {"labels": ["a"]}, "item 1 has the label 1, expected 0 to 0"),
    ],
)
def test_wrong_idx_files_are_named(tmp_path, images, labels, options, message):
    (tmp_path / "i").write_bytes(images)
    (tmp_path / "l").write_bytes(labels or b"")
    with pytest.raises(AlchemyError, match=message):
        IdxImages(str(tmp_path / "i"), label_path=str(tmp_path / "l") if labels else "", **options)


@pytest.fixture
def images(tmp_path):
    pillow = pytest.importorskip("PIL.Image", reason="images in folders need pillow")
    for number, name in enumerate(["cat/b.png", "cat/a.jpg", "dog/sub/c.PNG"]):
        path = tmp_path / "pets" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pillow.fromarray(np.full((4, 2), 100 * number, np.uint8)).save(path)
    (tmp_path / "pets" / "cat" / "notes.txt").write_text("no image")
    return tmp_path / "pets"


def test_folders_are_labels(images):
    pipe = ImageFolder(str(images))
    assert pipe.where(0) == pipe[0]["file"]
    assert [(sample["label"], sample["label_id"]) for sample in pipe] == [("cat", 0), ("cat", 0), ("dog", 1)]
    assert pipe[2]["image"].shape == (4, 2, 3) and pipe[2]["image"].max() == 200
    assert pipe[0]["file"].endswith("a.jpg") and set(pipe.gives) == {"image", "label", "label_id", "file"}
    grey = ImageFolder(str(images), mode="L", size=[2, 8], scale=True, labels=["dog", "cat"])
    assert grey[2]["image"].shape == (1, 2, 8) and grey[2]["label_id"] == 0


def test_a_damaged_image_is_an_error_or_counted(images, capture_log):
    (images / "dog" / "d.png").write_bytes(b"\x89PNG\r\n\x1a\n broken")
    pipe = ImageFolder(str(images))
    with pytest.raises(AlchemyError, match=r"d\.png' is not a readable image"):
        list(pipe)
    assert len(ImageFolder(str(images), bad="skip")) == 3
    assert "1 images were skipped, the first: " in capture_log.text


def test_folders_that_are_not_meant(images, tmp_path):
    with pytest.raises(AlchemyError, match=r"pets/cat' has the name of no label; did you mean 'cats'\?"):
        ImageFolder(str(images), labels=["cats", "dog"])
    with pytest.raises(AlchemyError, match="there is no folder 'nowhere'"):
        ImageFolder("nowhere")
    with pytest.raises(AlchemyError, match="has no folders in it"):
        ImageFolder(str(images / "cat"))
    with pytest.raises(AlchemyError, match="ImageFolder finds no samples"):
        ImageFolder(str(images), suffixes=[".gif"])


def test_folders_without_pillow_say_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(AlchemyError, match="needs the package pillow; pip install pillow"):
        ImageFolder(str(tmp_path))
