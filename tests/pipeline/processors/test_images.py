"""Images: idx files, folders, and damaged files."""

import gzip
import struct
import sys

import numpy as np
import pytest

from alchemy.errors import AlchemyError
from alchemy.pipeline.processors import IdxImages, ImageFolder
from tests.idx_files import idx


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
        (idx(2, 3, body=b"\0"), None, {}, r"1 bytes follow the header, expected 6 for \[2, 3\]"),
        (
            b"\0\0\x08\3\0\0\0\2",
            None,
            {},
            "the header ends after 8 bytes, expected 16 for 3 axes; the file is truncated",
        ),
        (idx(2, 3)[:10], None, {}, "the header ends after 10 bytes, expected 12 for 2 axes"),
        (idx(0, 3), idx(0), {"labels": ["a"]}, "IdxImages found no samples"),
        (idx(2, 3), idx(3), {}, r"2 images, but labels of shape \[3\]"),
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
    grey = ImageFolder(str(images), mode="L", size=(2, 8), scale=True, labels=["dog", "cat"])
    assert grey[2]["image"].shape == (1, 2, 8) and grey[2]["label_id"] == 0


def test_a_damaged_image_is_an_error_or_counted(images, capture_log):
    (images / "dog" / "d.png").write_bytes(b"\x89PNG\r\n\x1a\n broken")
    with pytest.raises(AlchemyError, match=r"d\.png' is not a readable image"):
        ImageFolder(str(images))
    with pytest.raises(AlchemyError, match=r"d\.png' is not a readable image"):
        list(ImageFolder(str(images), check="none"))
    assert len(ImageFolder(str(images), bad="skip")) == 3
    assert "skipped 1 images, the first: " in capture_log.text


def test_folders_that_are_not_meant(images, tmp_path):
    with pytest.raises(AlchemyError, match=r"pets/cat' is not named after a label; did you mean 'cats'\?"):
        ImageFolder(str(images), labels=["cats", "dog"])
    with pytest.raises(AlchemyError, match="folder not found: 'nowhere'"):
        ImageFolder("nowhere")
    with pytest.raises(AlchemyError, match="has no subfolders"):
        ImageFolder(str(images / "cat"))
    with pytest.raises(AlchemyError, match="ImageFolder found no samples"):
        ImageFolder(str(images), suffixes=[".gif"])


def test_folders_without_pillow_say_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(AlchemyError, match=r"ImageFolder needs the package pillow; pip install 'alchemy\[image\]'"):
        ImageFolder(str(tmp_path))


def test_scaling_is_by_the_range_of_the_numbers(tmp_path, images):
    pillow = pytest.importorskip("PIL.Image", reason="images in folders need pillow")
    deep = tmp_path / "deep" / "a"
    deep.mkdir(parents=True)
    pillow.fromarray(np.array([[0, 65535], [13107, 1]], np.uint16)).save(deep / "x.png")
    assert ImageFolder(str(tmp_path / "deep"), mode="", scale=True)[0]["image"][0, :, 0].tolist() == [
        0,
        np.float32(0.2),
    ]
    assert ImageFolder(str(images), mode="1", scale=True)[2]["image"].max() == 1
    for mode in ("L", "RGB"):
        with pytest.raises(
            AlchemyError, match=rf"x\.png' has more than 8 bits per pixel, which mode = '{mode}' would clip"
        ):
            ImageFolder(str(tmp_path / "deep"), mode=mode)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (idx(1, 1, 2, code=13, body=struct.pack(">ff", 0.5, 1)), r"got float32 of shape \(1, 2\)"),
        (idx(1, 1, 1, code=12, body=struct.pack(">i", -7)), r"got int32 of shape \(1, 1\)"),
        (idx(3), r"got uint8 of shape \(\); other values have no fixed range"),
    ],
)
def test_numbers_without_a_range_are_not_scaled(tmp_path, content, told):
    (tmp_path / "i").write_bytes(content)
    with pytest.raises(AlchemyError, match=f"scale = true needs unsigned integers .*{told}"):
        IdxImages(str(tmp_path / "i"), scale=True)


def test_hidden_images_are_left_out_and_links_followed(images):
    for name in ("cat/.thumbs/a.png", "cat/.b.png", "dog/sub/.x/c.png"):
        (images / name).parent.mkdir(exist_ok=True)
        (images / name).write_bytes(b"")
    (images / "dog" / "more").symlink_to(images / "cat", target_is_directory=True)
    (images / "cat" / "round").symlink_to(images / "cat", target_is_directory=True)
    names = [sample["file"].removeprefix(f"{images}/") for sample in ImageFolder(str(images)).samples]
    assert names == ["cat/a.jpg", "cat/b.png", "dog/more/a.jpg", "dog/more/b.png", "dog/sub/c.PNG"]


@pytest.mark.parametrize("size", [[3], [0, 3], [3.0, 3], []])
def test_a_size_is_a_height_and_a_width(images, size):
    with pytest.raises(AlchemyError, match=r"size(\.0)? must be .*a list of 2 values|size must be a list of 2 values"):
        ImageFolder(str(images), size=size)
