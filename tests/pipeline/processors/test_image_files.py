"""Images in tables and in pairs with masks: samples, and errors that name the file before training."""

import numpy as np
import pytest
from PIL import Image

from alchemy.errors import AlchemyError
from alchemy.pipeline import build_datapipes
from alchemy.pipeline.processors import ImageMasks, ImageTable

NAMES = ["a.png", "b/ä 图.jpg", "c.PNG"]


def save(path, *shape, value=7):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.full(shape or (5, 4, 3), value, np.uint8)).save(path)


@pytest.fixture
def table(tmp_path):
    """A table of three images; returns a function that writes it with more rows."""
    for name in NAMES:
        save(tmp_path / "photos" / name)

    def write(*rows, name="photos.csv", header="file,label"):
        lines = [header, *(f"{file},{label}" for file, label in zip(NAMES, ("cat", "dog", "cat"))), *rows]
        (tmp_path / "photos" / name).write_text("\n".join(lines) + "\n", "utf-8")
        return str(tmp_path / "photos" / name)

    return write


def test_rows_are_images_with_labels(table):
    pipe = ImageTable(table(), labels=["dog", "cat"], mode="L", size=(2, 3))
    assert [sample["label_id"] for sample in pipe] == [1, 0, 1] and pipe[1]["image"].shape == (2, 3)
    assert pipe[1]["file"].endswith("photos/b/ä 图.jpg") and pipe.where(1).endswith("photos.csv:3")
    assert pipe.gives == {"image": "ndarray", "file": "str", "label": "str", "label_id": "int"}
    assert pipe[0].keys() == pipe.gives.keys()


def test_columns_folders_and_numbers(table, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.tsv").write_text("3.5\ta.png\n-1\tc.PNG\n")
    pipe = ImageTable("t.tsv", file=1, label=0, kind="regression", folder="photos", scale=True)
    assert [sample["label"] for sample in pipe] == [3.5, -1.0] and pipe[0]["image"].shape == (3, 5, 4)
    (tmp_path / "photos" / "u.jsonl").write_text('{"name": "a.png"}\n')
    assert set(ImageTable("photos/u.jsonl", file="name")[0]) == {"image", "file"}


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("d.png,cat", r"photos\.csv:5 the file .*d\.png' does not exist: paths are relative to .*photos'; set folder"),
        ("empty.png,cat", r"photos\.csv:5 .*empty\.png' is not a readable image: the file is empty"),
        ("a.png,cta", r"photos\.csv:5 unknown label 'cta', expected cat, dog; did you mean 'cat'\?"),
        (",cat", "the file is '', expected a non-empty string"),
    ],
)
def test_a_bad_row_is_an_error_before_training_or_counted(table, tmp_path, capture_log, row, message):
    (tmp_path / "photos" / "empty.png").write_bytes(b"")
    with pytest.raises(AlchemyError, match=rf'{message}.*; fix the row, or set bad = "skip"'):
        ImageTable(table(row), labels=["cat", "dog"])
    assert len(ImageTable(table(row), labels=["cat", "dog"], bad="skip")) == 3
    assert "skipped 1 bad rows, the first at line 5" in capture_log.text


@pytest.fixture
def pairs(tmp_path):
    for place, name in enumerate(["a", "b", "sub/c"]):
        save(tmp_path / "image" / f"{name}.jpg")
        save(tmp_path / "label" / f"{name}_m.png", 5, 4, value=place % 2)
    save(tmp_path / "label" / "a_m.png", 5, 4, value=255)
    (tmp_path / "label" / "notes.txt").write_text("no mask")
    return tmp_path


def masks(folder, **options):
    known = {"mask_path": f"{folder}/label", "labels": ["no", "yes"], "mask_suffix": "_m"}
    return ImageMasks(f"{folder}/image", **{**known, **options})


def test_images_have_their_masks(pairs):
    pipe = masks(pairs)
    assert [int(sample["mask"][0, 0]) for sample in pipe] == [255, 1, 0] and pipe.labels == ["no", "yes"]
    assert pipe[1]["image"].shape == (5, 4, 3) and pipe[1]["mask"].shape == (5, 4) and pipe[1]["mask"].dtype == np.uint8
    assert pipe.where(2) == pipe[2]["file"] == f"{pairs}/image/sub/c.jpg"
    small = masks(pairs, size=(3, 2), mode="L", scale=True)[0]
    assert small["image"].shape == (1, 3, 2) and small["mask"].shape == (3, 2)


def test_ids_select_pairs_in_their_order(pairs):
    (pairs / "ids.txt").write_text("sub/c\n\na.jpg\n")
    for ids in (str(pairs / "ids.txt"), ["sub/c", "a"]):
        assert [sample["file"][-5:] for sample in masks(pairs, ids=ids)] == ["c.jpg", "a.jpg"]
    (pairs / "ids.txt").write_text("a\nbb\n")
    with pytest.raises(AlchemyError, match=r"ids\.txt:2 .*image' has no image 'bb'; did you mean 'b'\?"):
        masks(pairs, ids=str(pairs / "ids.txt"))
    with pytest.raises(AlchemyError, match="duplicate image 'a', first on line 1"):
        masks(pairs, ids=["a", "a"])
    with pytest.raises(AlchemyError, match="ids selects no images"):
        masks(pairs, ids=[""])


def test_pairs_that_do_not_match_are_errors_before_training(pairs, capture_log):
    save(pairs / "image" / "d.png")
    with pytest.raises(AlchemyError, match=r"d\.png 1 of 4 images have no mask in .*label': d; .*or select images"):
        masks(pairs)
    save(pairs / "label" / "d_m.png", 4, 5, value=1)
    with pytest.raises(AlchemyError, match=r"d\.png' has 5 x 4 pixels, but its mask .*d_m\.png' 4 x 5; save both with"):
        masks(pairs)
    with pytest.raises(AlchemyError, match=r"d\.png' has 5 x 4 pixels, but its mask .*d_m\.png' 4 x 5"):
        list(masks(pairs, check="none"))
    save(pairs / "image" / "d.jpg")
    with pytest.raises(AlchemyError, match=r"d\.jpg' and .*d\.png' have the same name; rename or remove one"):
        masks(pairs)
    (pairs / "image" / "d.jpg").unlink()
    (pairs / "image" / "d.png").unlink()
    masks(pairs)
    assert "label: 1 masks have no image" in capture_log.text


def test_masks_with_other_values_are_errors_before_training(pairs, capture_log):
    save(pairs / "label" / "b_m.png", 5, 4, value=2)
    with pytest.raises(
        AlchemyError, match=r"b_m\.png' has 20 pixels that belong to no class: 2, the first in row 0, column 0"
    ):
        masks(pairs)
    save(pairs / "label" / "b_m.png", 5, 4, value=0)
    assert len(masks(pairs)) == 3 and "only the values 0 and 255" in capture_log.text
    for place in range(9):
        save(pairs / "image" / f"{place}.png")
        save(pairs / "label" / f"{place}_m.png", 5, 4, value=0)
    with pytest.raises(AlchemyError, match=r"only the values 0 and 255, and 255 is ignored; set values = \[0, 255\]"):
        masks(pairs)
    assert max(sample["mask"].max() for sample in masks(pairs, values=[0, 255])) == 1


def test_damaged_pairs_are_errors_or_counted(pairs, capture_log):
    (pairs / "label" / "b_m.png").write_bytes(b"")
    with pytest.raises(AlchemyError, match=r"b_m\.png' is not a readable image: the file is empty"):
        masks(pairs)
    with pytest.raises(AlchemyError, match=r"b_m\.png' is not a readable image: the file is empty"):
        list(masks(pairs, check="none"))
    assert len(masks(pairs, bad="skip")) == 2 and "skipped 1 images, the first: " in capture_log.text


def test_wrong_settings_are_refused(pairs):
    with pytest.raises(AlchemyError, match="folder not found: 'nowhere'"):
        masks(pairs, mask_path="nowhere")
    with pytest.raises(AlchemyError, match="mode = 'rgb' is not a mode of Pillow; use \"RGB\""):
        masks(pairs, mode="rgb")
    with pytest.raises(AlchemyError, match="ImageMasks found no samples"):
        masks(pairs, suffixes=["bmp"])
    table = {"type": "alchemy.pipeline.processors.ImageMasks", "path": f"{pairs}/image"}
    with pytest.raises(AlchemyError, match="ImageMasks needs 'mask_path', 'labels'"):
        build_datapipes([table])
