"""The contract of image transforms: the same result in any batch, masks that follow images, dtypes and sizes."""

import inspect
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from alchemy.errors import AlchemyError
from alchemy.images import transforms as module
from alchemy.images.draws import Draws
from alchemy.registry import construct
from tests.contracts.parts import listed

SIDE = 12
transforms: Any = module
ImageBatch = transforms.ImageBatch
# name: (options, height and width of the result for images of SIDE x SIDE, whether it moves pixels)
KINDS: dict[str, Any] = {
    "Resize": ({"size": 7}, (7, 7), True),
    "Resize larger": ({"size": [20, 17]}, (20, 17), True),
    "Resize keep": ({"size": [5, 9], "keep_ratio": True}, (9, 9), True),
    "CenterCrop": ({"size": [5, 8]}, (5, 8), True),
    "Pad": ({"size": [15, 12]}, (15, 12), True),
    "RandomCrop": ({"size": 6}, (6, 6), True),
    "RandomCrop pad": ({"pad": 2}, (12, 12), True),
    "RandomResizedCrop": ({"size": 8}, (8, 8), True),
    "RandomFlip": ({"horizontal": 0.5, "vertical": 0.5}, (12, 12), True),
    "RandomRotate": ({"degrees": 30}, (12, 12), True),
    "RandomAffine": ({"degrees": 9, "shift": 0.2, "scale": (0.7, 1.2), "shear": 8}, (12, 12), True),
    "ElasticDeform": ({"pixels": 3, "points": 4}, (12, 12), True),
    "ColorJitter": ({"brightness": 0.4, "contrast": 0.3, "saturation": 0.5}, (12, 12), False),
    "Autocontrast": ({"cut": 0.1}, (12, 12), False),
    "Gamma": ({"gamma": 0.5}, (12, 12), False),
    "RandomErase": ({"p": 0.7}, (12, 12), False),
}
each = pytest.mark.parametrize("kind", KINDS)
moving = pytest.mark.parametrize("kind", [kind for kind, row in KINDS.items() if row[2]])


def build(kind, **more):
    return construct(getattr(transforms, kind.split()[0]), {**KINDS[kind][0], **more})


def make_images(count, *shape, dtype=np.uint8, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (count, *shape)).astype(dtype)


def same(one, other):
    return one.dtype == other.dtype and np.array_equal(one, other)


def test_every_transform_is_tested():
    assert {part.name for part in listed() if "image transform" in part.kinds} == {kind.split()[0] for kind in KINDS}


@each
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**62), indices=st.permutations(range(5)), channels=st.sampled_from([1, 3, 4]))
def test_a_result_does_not_depend_on_the_batch_or_the_order(kind, seed, indices, channels):
    transform = build(kind)
    images, masks = make_images(5, SIDE, SIDE, channels), make_images(5, SIDE, SIDE)
    whole = transform(ImageBatch(images, masks), Draws(seed, range(5)))
    mixed = transform(ImageBatch(list(images[indices]), list(masks[indices])), Draws(seed, indices))
    for place, index in enumerate(indices):
        alone = transform(ImageBatch(images[index : index + 1], masks[index : index + 1]), Draws(seed, [index]))
        for results in (whole.images[index], alone.images[0]):
            assert same(mixed.images[place], results)
        for results in (whole.masks[index], alone.masks[0]):
            assert same(mixed.masks[place], results)


@moving
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**62))
def test_masks_follow_images_exactly(kind, seed):
    known = inspect.signature(getattr(transforms, kind.split()[0])).parameters
    options = {"interpolation": "nearest", "fill": 255}  # as for masks
    masks = make_images(4, SIDE, SIDE)
    transform = build(kind, **{key: value for key, value in options.items() if key in known})
    out = transform(ImageBatch(masks[..., None], masks), Draws(seed, range(4)))
    assert np.array_equal(out.images[..., 0], out.masks)


@each
def test_the_size_and_dtype_of_the_result_and_the_input_is_unchanged(kind):
    for dtype in (np.uint8, np.uint16, np.float32):
        images, masks = make_images(3, SIDE, SIDE, 3, dtype=dtype), make_images(3, SIDE, SIDE)
        before = images.copy(), masks.copy()
        out = build(kind)(ImageBatch(images, masks), Draws(1, [4, 5, 6]))
        assert out.images.shape == (3, *KINDS[kind][1], 3) and out.images.dtype == dtype
        assert out.masks.shape == (3, *KINDS[kind][1]) and out.masks.dtype == np.uint8
        assert same(images, before[0]) and same(masks, before[1])
        assert build(kind)(ImageBatch(images), Draws(1, [4, 5, 6])).masks is None


@each
def test_images_of_different_sizes_are_transformed_one_by_one(kind):
    images = [make_images(1, side, side + 1, 3)[0] for side in (SIDE, 16, 31)]
    out = build(kind)(ImageBatch(images), Draws(1, range(3)))
    fixed = kind in ("Resize", "Resize larger", "CenterCrop", "RandomCrop", "RandomResizedCrop")
    assert isinstance(out.images, np.ndarray) == fixed and len(out) == 3


@each
def test_a_random_transform_changes_with_the_epoch(kind):
    images = make_images(6, SIDE, SIDE, 3)
    first, second = (build(kind)(ImageBatch(images), Draws(seed, range(6))).images for seed in (1, 2))
    assert same(first, second) == (not kind.startswith(("Random", "Elastic", "Color")))


@pytest.mark.parametrize("kind", ["RandomAffine", "RandomRotate", "ElasticDeform"])
def test_no_movement_is_the_identity(kind):
    still: Any = {"RandomAffine": {}, "RandomRotate": {"degrees": 0}, "ElasticDeform": {"pixels": 1e-9}}[kind]
    images, masks = make_images(2, 9, 14, 3), make_images(2, 9, 14)
    out = construct(getattr(transforms, kind), still)(ImageBatch(images, masks), Draws(1, [0, 1]))
    assert np.array_equal(out.images, images) and np.array_equal(out.masks, masks)


def test_a_quarter_turn_is_exact():
    class Quarter(Draws):
        def uniform(self, low=0.0, high=1.0, shape=()):
            return np.full((len(self), *shape), 1.0)  # the largest angle

    images = make_images(2, 8, 8, 1)
    out = transforms.RandomRotate(90)(ImageBatch(images, images[..., 0]), Quarter(1, [0, 1]))
    assert any(np.array_equal(out.images, np.rot90(images, turns, (1, 2))) for turns in (1, 3))
    assert np.array_equal(out.images[..., 0], out.masks)


def test_what_comes_from_outside_is_the_fill_and_ignored_in_masks():
    images = np.full((1, 4, 4, 1), 9, np.uint8)
    padded = transforms.Pad([6, 5], fill=3)(ImageBatch(images, images[..., 0]), Draws(1, [0]))
    assert padded.images[0, :, :, 0].tolist() == [[3] * 5, *[[9, 9, 9, 9, 3]] * 4, [3] * 5]
    assert padded.masks[0].tolist() == [[255] * 5, *[[9, 9, 9, 9, 255]] * 4, [255] * 5]
    far = transforms.RandomAffine(shift=1.0, fill=3)(ImageBatch(images, images[..., 0]), Draws(3, [0]))
    assert (far.images == 3).any() and set(np.unique(far.masks)) <= {9, 255}


def test_brightness_contrast_and_saturation_have_their_meaning():
    images = make_images(64, 6, 6, 3) // 3 + 60  # no value is clipped
    mean = images.reshape(64, -1).mean(1)

    def spread(**options):
        out = transforms.ColorJitter(**options)(ImageBatch(images), Draws(1, range(64))).images
        return out.reshape(64, -1).mean(1) / mean, out.std((1, 2)).mean(1) / images.std((1, 2)).mean(1), out.std(3)

    bright, _, _ = spread(brightness=0.3)
    assert 0.7 < bright.min() < 0.75 and 1.25 < bright.max() < 1.31
    level, contrast, _ = spread(contrast=0.3)
    assert abs(level - 1).max() < 0.01 and contrast.min() < 0.75 and contrast.max() > 1.25
    gray = np.repeat(images[..., :1], 3, axis=3)
    assert same(transforms.ColorJitter(saturation=1.0)(ImageBatch(gray), Draws(1, range(64))).images, gray)


def test_autocontrast_scales_each_image_to_the_whole_range():
    images = make_images(3, 20, 20, 3)
    dim = images // np.array([4, 8, 16], np.uint8)[:, None, None, None] + 7
    dim[0, 0, 0], images[2] = 255, 9  # a bright spot, and an image of one value
    dim[2] = 9
    out = transforms.Autocontrast(cut=0.01)(ImageBatch(dim), Draws(1, range(3))).images
    assert abs(out[:2].astype(int) - images[:2])[:, 1:].max() < 20 and same(out[2], dim[2])
    assert out[:2].min() == 0 and out[:2].max() == 255
    ratios = transforms.Autocontrast()(ImageBatch(dim.astype(np.float32)), Draws(1, range(3))).images
    assert ratios.dtype == np.float32 and ratios[:2].min() == 0 and ratios[:2].max() == 1


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**40), st.integers(1, 40), st.integers(1, 40))
def test_boxes_are_inside_the_image_and_not_empty(seed, height, width):
    images = np.zeros((3, height, width, 1), np.uint8)
    erased = transforms.RandomErase(p=1.0, fill=1)(ImageBatch(images), Draws(seed, range(3))).images
    assert (erased.reshape(3, -1).sum(1) > 0).all()
    assert transforms.RandomResizedCrop(4)(ImageBatch(images), Draws(seed, range(3))).images.shape == (3, 4, 4, 1)


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("RandomCrop", {}, "changes nothing without size and pad; set size, pad or both"),
        ("RandomResizedCrop", {"size": 4, "area": (0.5, 0.2)}, r"area = \[0.5, 0.2\]: the first value must not be"),
        ("RandomFlip", {"horizontal": 1.5}, "horizontal must be at most 1"),
        ("Resize", {"size": 0}, "size must be"),
        ("ElasticDeform", {"pixels": 1, "points": 2}, "points must be at least 3"),
    ],
)
def test_wrong_options_are_refused(kind, options, message):
    with pytest.raises(AlchemyError, match=message):
        construct(getattr(transforms, kind), options)


def test_an_image_that_is_too_small_is_refused():
    small = ImageBatch([np.zeros((9, 9, 1), np.uint8), np.zeros((4, 9, 1), np.uint8)])
    with pytest.raises(AlchemyError, match=r"CenterCrop: an image of 4 x 9 is smaller than 5 x 5; put .*Pad or Resize"):
        transforms.CenterCrop(5)(small, Draws(1, [0, 1]))
