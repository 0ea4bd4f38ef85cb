"""TransformImages: the same images in any batch and worker, functions by import path, and errors that name the file."""

import collections
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from alchemy.data.batch_sampler import EpochPosition
from alchemy.data.collate import Pad
from alchemy.data.loader import get_dataloader
from alchemy.data.stacked import StackedSamples
from alchemy.errors import AlchemyError
from alchemy.pipeline.cache import Cache
from alchemy.pipeline.image_transforms import TransformImages
from alchemy.pipeline.lst import HoldOut, Map, SequenceWrapper
from alchemy.pipeline.processors import IdxImages, ImageFolder
from alchemy.seeds import sample_rng, set_current_sample
from tests.idx_files import idx

ROOT = Path(__file__).parents[2]
TRANSFORMS = "alchemy.images.transforms."
CROP = {"type": f"{TRANSFORMS}RandomCrop", "pad": 2}
ROTATE = {"type": f"{TRANSFORMS}RandomRotate", "degrees": 20}
FLIP = {"type": f"{TRANSFORMS}RandomFlip"}
IMAGE = {"type": "alchemy.data.columns.Image", "mean": [0.5], "std": [0.25]}


def brighter(image, by=1):
    return image + np.uint8(by)


def noisy(image):
    return sample_rng().integers(0, 256, image.shape).astype(np.uint8)


def colored(image):
    return np.stack([image, image, image], axis=2)


def cropped(image):
    return image[1:]


class Doubled:
    def __init__(self, times: int = 2) -> None:
        self.times = times

    def __call__(self, image):
        return image * np.uint8(self.times)


@pytest.fixture
def digits(tmp_path):
    """Twenty images of 6 x 5, with labels."""
    numbers = np.random.default_rng(0).integers(0, 256, (20, 6, 5)).astype(np.uint8)
    (tmp_path / "images").write_bytes(idx(20, 6, 5, body=numbers.tobytes()))
    (tmp_path / "labels").write_bytes(idx(20, body=bytes(range(20))))
    return IdxImages(str(tmp_path / "images"), label_path=str(tmp_path / "labels"))


def pairs(count=7, sizes=(6,)):
    """Samples whose masks are their images."""
    shapes = [(sizes[place % len(sizes)], 8) for place in range(count)]
    images = [
        np.random.default_rng(place).integers(0, 200, shape).astype(np.uint8) for place, shape in enumerate(shapes)
    ]
    return SequenceWrapper([{"image": image, "mask": image, "id": place} for place, image in enumerate(images)])


def read(pipe, seed=1, **options):
    """Return the images of an epoch by label."""
    loader = get_dataloader(pipe, seed, collate_fn=Pad(fields={"image": IMAGE}), **options)
    return {int(label): image for batch in loader for label, image in zip(batch["label_id"], batch["image"])}


def equal(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[key], other[key]) for key in one)


@settings(max_examples=25, deadline=None)
@given(size=st.integers(1, 20), shuffle=st.booleans(), seed=st.integers(0, 2**50))
def test_an_image_depends_on_seed_and_index_alone(tmp_path_factory, size, shuffle, seed):
    folder = tmp_path_factory.getbasetemp()
    body = np.random.default_rng(0).integers(0, 256, 9 * 30).astype(np.uint8).tobytes()
    (folder / "i").write_bytes(idx(9, 6, 5, body=body))
    (folder / "l").write_bytes(idx(9, body=bytes(range(9))))
    pipe = TransformImages(IdxImages(f"{folder}/i", label_path=f"{folder}/l"), transforms=[CROP, FLIP, ROTATE])
    first = read(pipe, seed, batch_size=1)
    assert equal(first, read(pipe, seed, batch_size=size, shuffle=shuffle))
    assert not equal(first, read(pipe, seed + 1, batch_size=size, shuffle=shuffle))


@pytest.mark.parametrize("transforms", [[CROP, FLIP, ROTATE], [f"{__name__}.noisy"]])
def test_workers_change_nothing(digits, transforms):
    pipe = TransformImages(digits, transforms=transforms)
    first = read(pipe, batch_size=4)
    assert equal(first, read(pipe, batch_size=7, shuffle=True, num_workers=2))


def test_a_resumed_epoch_and_several_processes_read_the_same_images(digits):
    pipe = TransformImages(digits, transforms=[CROP, FLIP, ROTATE, {"type": f"{__name__}.noisy"}])
    options = {"batch_size": 6, "shuffle": True}
    whole = read(pipe, **options)
    later = read(pipe, place=EpochPosition(start=2), num_workers=2, **options)
    assert len(later) == 8 and equal(later, {key: whole[key] for key in later})
    ranks = [read(pipe, place=EpochPosition(rank=rank, ranks=2), **options) for rank in range(2)]
    assert len(ranks[0]) == len(ranks[1]) == 10 and equal(ranks[0] | ranks[1], whole)


def test_a_sample_alone_is_that_of_its_batch(digits):
    pipe = TransformImages(digits, transforms=[CROP, {"type": f"{__name__}.noisy"}, ROTATE])
    for index in (3, 0):
        set_current_sample(7, index)
        alone = pipe[index]
        loader = get_dataloader(pipe, 7, batch_size=20, collate_fn=list)
        assert np.array_equal(next(iter(loader))[index]["image"], alone["image"])
    assert alone["label_id"] == 0 and np.array_equal(pipe[-20]["image"], pipe[0]["image"])


def test_pipes_of_a_chain_and_functions_of_a_pipe_draw_different_numbers(digits):
    once = TransformImages(digits, transforms=[{"type": f"{__name__}.noisy"}])
    twice = TransformImages(once, transforms=[{"type": f"{__name__}.noisy"}])
    both = TransformImages(digits, transforms=[{"type": f"{__name__}.noisy"}] * 2)
    assert len({pipe[0]["image"].tobytes() for pipe in (once, twice, both)}) == 3


def test_a_batch_is_stacked_once(digits):
    pipe = TransformImages(digits, transforms=[FLIP])
    batch = pipe.__getitems__([3, 1])
    assert isinstance(batch, StackedSamples) and batch[1]["label_id"] == 1
    assert all(np.shares_memory(sample["image"], batch.stacked["image"]) for sample in batch)
    # the image column gives the same as for separate samples
    collate = Pad(fields={"image": IMAGE})
    assert torch.equal(collate(batch)["image"], collate([dict(sample) for sample in batch])["image"])
    assert torch.equal(collate(digits.__getitems__([3, 1]))["image"], collate([digits[3], digits[1]])["image"])


@pytest.mark.parametrize("sizes", [(6,), (6, 9, 7)])
def test_masks_follow_images_also_if_sizes_differ(sizes):
    nearest = {**ROTATE, "interpolation": "nearest", "fill": 255}
    pipe = TransformImages(pairs(sizes=sizes), transforms=[FLIP, nearest, {**CROP, "size": 5, "fill": 255}])
    samples = pipe.__getitems__(list(range(7)))
    assert all(sample["image"].shape == (5, 5) for sample in samples)
    assert all(np.array_equal(sample["image"], sample["mask"]) for sample in samples)
    fields = {"image": {"type": "alchemy.data.columns.Image"}, "mask": {"type": "alchemy.data.columns.Mask"}}
    batch = Pad(fields=fields)(samples)
    assert batch["mask"].dtype == torch.int64 and batch["mask"].shape == (7, 5, 5)
    assert batch["image"].shape == (7, 1, 5, 5) and batch["id"].tolist() == list(range(7))


def test_functions_and_classes_by_import_path(digits):
    here = f"{__name__}."
    tables: Any = [{"type": f"{here}brighter", "by": 3}, f"{here}Doubled", {"type": f"{here}Doubled", "times": 1}]
    pipe = TransformImages(digits, transforms=tables)
    assert np.array_equal(pipe[2]["image"], (digits[2]["image"] + np.uint8(3)) * np.uint8(2))
    assert TransformImages(digits, transforms=[{"type": f"{here}colored"}, CROP])[0]["image"].shape == (6, 5, 3)


@pytest.mark.parametrize(
    ("transforms", "message"),
    [
        ([{"type": f"{TRANSFORMS}RandomCrp"}], "transforms.0: .*RandomCrp"),
        ([CROP, {"type": f"{TRANSFORMS}RandomFlip", "horizontl": 1}], r"RandomFlip has no option 'horizontl'; did you"),
        ([{"type": f"{__name__}.brighter", "bye": 3}], "transforms.0: brighter: .*bye"),
        ([{"size": 3}], "transforms.0 needs a 'type'"),
        ([3], "transforms: 3 is not callable; use a transform from"),
    ],
)
def test_wrong_transforms_are_refused_when_the_pipe_is_built(digits, transforms, message):
    with pytest.raises(AlchemyError, match=message):
        TransformImages(digits, transforms=transforms)


def read_with_error(folder: str, workers: int) -> str:
    """Return the error of reading images, of which the last one is too small or damaged."""
    crop = {"type": f"{TRANSFORMS}CenterCrop", "size": 5}
    pipe = TransformImages(ImageFolder(folder, mode="L", check="none"), transforms=[crop])
    with pytest.raises(AlchemyError, match=r"\.png") as caught:
        list(get_dataloader(pipe, batch_size=3, num_workers=workers, collate_fn=list))
    return str(caught.value)


@pytest.mark.parametrize("workers", [0, 2])
def test_an_error_names_the_file_also_from_a_worker(tmp_path, workers):
    for place, size in enumerate([9, 9, 4]):
        file = tmp_path / "pets" / "cat" / f"é{place}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.zeros((size, 9), np.uint8)).save(file)
    for content, message in (
        (file.read_bytes(), r"cat/é2\.png CenterCrop: an image of 4 x 9 is smaller than 5 x 5; put"),
        (b"", r"é2\.png' is not a readable image: the file is empty; replace or remove"),
    ):
        file.write_bytes(content)
        read = _read_in_child if workers else read_with_error
        assert re.search(message, read(str(tmp_path / "pets"), workers))


def _read_in_child(folder: str, workers: int) -> str:
    """Read in a process of its own: a queue of workers that are ended by an error may fail while it is closed."""
    code = f"from {__name__} import read_with_error; print(read_with_error({folder!r}, {workers}))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("sample", "transforms", "message"),
    [
        ({"text": "x"}, [FLIP], "a sample has no field 'image'; it has text"),
        ({"image": "x"}, [FLIP], "the field 'image' is 'x'; expected arrays"),
        ({"image": np.zeros(3)}, [FLIP], "the field 'image' is .*; expected arrays"),
        (
            {"image": np.zeros((2, 2, 3)), "mask": np.zeros((2, 2, 3))},
            [FLIP],
            "'mask' has the shape .* masks have no cha",
        ),
        (
            {"image": np.zeros((4, 4)), "mask": np.zeros((4, 4))},
            [f"{__name__}.cropped"],
            "cropped returned the shape .*Im",
        ),
        ({"image": np.zeros((4, 4)), "mask": np.zeros((4, 3))}, [FLIP], "an image of 4 x 4 has a mask of 4 x 3"),
    ],
)
def test_samples_that_are_no_images_are_refused(sample, transforms, message):
    pipe = TransformImages(SequenceWrapper([sample, sample]), transforms=transforms)
    with pytest.raises(AlchemyError, match=message):
        pipe.__getitems__([0, 1])


def test_other_pipes_may_come_before_and_after(digits):
    held = TransformImages(HoldOut(digits, share=0.5), transforms=[CROP])
    assert len(read(held, batch_size=3)) == 10
    after = Map(TransformImages(digits, transforms=[CROP]), fn=f"{__name__}.brighter", field="image")
    one, other = (read(after, batch_size=size) for size in (3, 7))
    assert equal(one, other)


def test_a_cache_of_random_images_warns(digits, capture_log, tmp_path, monkeypatch):
    monkeypatch.setenv("ALCHEMY_CACHE", str(tmp_path / "cache"))
    list(
        Cache(
            TransformImages(
                digits, transforms=[{"type": f"{TRANSFORMS}Pad", "size": 9}, {"type": f"{__name__}.brighter"}]
            )
        )
    )
    assert "random numbers" not in capture_log.text
    list(Cache(TransformImages(digits, transforms=[CROP])))
    assert "draws random numbers, which are cached" in capture_log.text


def test_the_offsets_of_crops_are_uniform(digits):
    pipe = TransformImages(
        SequenceWrapper([{"image": np.arange(25, dtype=np.uint8).reshape(5, 5)}] * 3000),
        transforms=[{**CROP, "pad": 1}],
    )
    counts = collections.Counter(sample["image"].tobytes() for sample in pipe.__getitems__(list(range(3000))))
    assert len(counts) == 9 and min(counts.values()) > 250
