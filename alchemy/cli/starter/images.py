"""Detect the layout of image data, and render the config of an image project."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from alchemy.cli.starter.image_lists import find_idx, idx_shape, read_idx_splits, read_tables
from alchemy.config.references import ESCAPED, MARK
from alchemy.config.toml_writer import format_inline
from alchemy.data.messages import in_short
from alchemy.data.sniff.finding import format_labels, relative_path
from alchemy.data.sniff.names import split_of
from alchemy.errors import AlchemyError
from alchemy.images.read_image import IGNORED_PIXEL, SUFFIXES, check_image, read_image, read_mask

IMAGES = ("images", "image", "imgs", "img")
MASKS = ("masks", "mask", "labels", "label", "annotations", "segmentation")
SAMPLED = 200  # files that are opened to detect sizes and values
LARGEST = {"image": 128, "segmentation": 256}  # the side of images if sizes differ
FEW = 1000  # with fewer images, small batches give enough updates
SPLITS = ("train", "dev", "test")
LAYOUTS = {
    "image": "one folder of images for each label, directly or in train, dev and test folders; "
    "idx files named like those of MNIST; or a table with the path and label of each image",
    "segmentation": "a folder `images` and a folder `masks`, directly or in train, dev and test folders",
}


@dataclass
class ImageData:
    """What was detected in image data: the keys of `[task]` and `[task.data]`, and lines to print."""

    task: dict[str, Any] = field(default_factory=dict)
    data: dict[str, Any] = field(default_factory=dict)
    shown: list[str] = field(default_factory=list)
    example: str = ""  # an image to predict


def guess_kind(paths: Sequence[str]) -> str:
    """Return the kind of project for a folder of images; "" if it is not one."""
    folder = Path(paths[0])
    if len(paths) != 1 or not folder.is_dir():
        return ""
    if find_idx(folder):
        return "image"
    base = _split_folders(folder).get("train", folder)
    if _pick(base, IMAGES) is not None and _pick(base, MASKS) is not None:
        return "segmentation"
    return "image" if any(any(_images_in(label)) for label in _folders(base)) else ""


def inspect_images(kind: str, paths: Sequence[str], folder: Path, label: str = "") -> ImageData:
    """Detect the splits, labels and sizes of the images; paths become relative to the project `folder`.

    `label` is the column of the labels in a table.
    """
    root, found = Path(paths[0]), ImageData()
    if kind == "image" and (pairs := find_idx(root)):
        _use_idx(found, pairs, folder)
    elif kind == "image" and (len(paths) > 1 or root.is_file()):
        found.data, files, line = read_tables(paths, label, folder)
        found.data["processor"] = "ImageTable"
        found.shown.append(line)
        _use_files(found, kind, files, {}, folder)
    elif len(paths) == 1 and root.is_dir():
        named = _split_folders(root) or {"train": root}
        files = (_find_labels if kind == "image" else _find_masks)(found, named, folder)
        _use_files(found, kind, files, named, folder)
    else:
        missing = [path for path in paths if not Path(path).exists()]
        text = f"{missing[0]} does not exist" if missing else f"--data must be one folder for --kind {kind}"
        raise AlchemyError(text, hint=f"expected {LAYOUTS[kind]}")
    held = [split for split in ("dev", "test") if split not in found.data]
    found.data |= dict.fromkeys(held if "dev" in held else [], 0.1)
    found.data = {key: found.data[key] for key in sorted(found.data, key=_place)}
    return found


def render_image_config(kind: str, found: ImageData) -> str:
    """Render the config of an image project."""
    title = "Image classification" if kind == "image" else "Segmentation"
    net = {"type": "SmallCNN"} if kind == "image" else {"type": "UNet", "width": 16, "depth": 3}
    model: dict[str, Any] = {"type": "ImageClassifier" if kind == "image" else "Segmenter", "net": net}
    tables = {
        "task": {"type": "ImageClassification" if kind == "image" else "Segmentation", **found.task},
        "task.data": found.data,
        "model": model | ({} if kind == "image" else {"dice": 1.0}),
        "optim": {"type": "AdamW", "lr": 0.002},
        "sched": {"type": "LineWarmup", "epochs": 12, "num_warmup_steps": 0.1},
    }
    lines = [f"# {title}. Run `alchemy check train.toml`, then `alchemy run train.toml`."]
    for name, table in tables.items():
        lines += [f"[{name}]", *_lines(table), ""]
    return "\n".join(lines)


def next_commands(found: ImageData) -> list[str]:
    """Return the commands that check, train and use the model."""
    tested = "test" in found.data
    return [
        "alchemy check train.toml",
        f"alchemy run train.toml{' --test' if tested else ''}",
        f"alchemy predict latest {f'--file {shlex.quote(found.example)}' if found.example else '--split dev'}",
    ]


# -- detection
def _use_idx(found: ImageData, files: dict[str, tuple[Path, Path]], folder: Path) -> None:
    count, height, width = idx_shape(files["train"][0], f"expected {LAYOUTS['image']}")
    found.shown.append(f"{files['train'][0]}: {count:,} images of {height} x {width} pixels")
    found.task |= {"mode": "L", "augment": [{"type": "RandomCrop", "pad": 2}]}  # a mirrored digit is not a digit
    found.data |= {"processor": "IdxImages", **read_idx_splits(files, folder)}


def _use_files(found: ImageData, kind: str, files: list[Path], named: dict[str, Path], folder: Path) -> None:
    if kind == "image" and len(files) < FEW:
        found.data["batch_size"] = 16
    _find_sizes(found, kind, files)
    found.example = relative_path(_example(files, named), folder)


def _find_labels(found: ImageData, named: dict[str, Path], folder: Path) -> list[Path]:
    base = named["train"]
    labels = Counter(label.name for label in _folders(base) for _ in _images_in(label))
    if len(labels) < 2:
        there = in_short(labels) or "no folder with images"
        raise AlchemyError(f"{base} has {there}, expected at least two labels", hint=f"expected {LAYOUTS['image']}")
    found.shown.append(f"{base}: {labels.total():,} images, {format_labels(labels)}")
    found.data |= {split: relative_path(path, folder) for split, path in named.items()}
    return [file for label in labels for file in _images_in(base / label)]


def _find_masks(found: ImageData, named: dict[str, Path], folder: Path) -> list[Path]:
    files: list[Path] = []
    values: set[Any] = set()
    for split, base in named.items():
        images, masks = _pick(base, IMAGES), _pick(base, MASKS)
        if images is None or masks is None:
            hint = f"expected {LAYOUTS['segmentation']}"
            raise AlchemyError(f"{base} has no folder of {'masks' if images else 'images'}", hint=hint)
        table = {"path": relative_path(images, folder), "mask_path": relative_path(masks, folder)}
        lists = {split_of(file.name): file for file in sorted(base.glob("*.txt")) if split_of(file.name)}
        if split == "train" and len(named) == 1 and "train" in lists:
            found.data |= {name: {**table, "ids": relative_path(file, folder)} for name, file in lists.items()}
        else:
            found.data[split] = table
        if split == "train":
            files, values = list(_images_in(images)), _mask_values(masks)
            found.shown.append(f"{images}: {len(files):,} images, mask values {in_short(sorted(map(str, values)), 8)}")
    _name_classes(found, values)
    return files


def _mask_values(folder: Path) -> set[Any]:
    """Return the values or colors that occur in masks."""
    found: set[Any] = set()
    for file in _sample(list(_images_in(folder))):
        mask = read_mask(file)
        pixels = mask.reshape(-1, mask.shape[-1]) if mask.ndim == 3 else mask.reshape(-1, 1)
        found |= {tuple(row) if len(row) > 1 else row[0] for row in {tuple(row) for row in pixels.tolist()}}
        if len(found) > IGNORED_PIXEL:
            hint = "save masks as PNG files with one value or color for each class"
            raise AlchemyError(f"{file}: the masks have more than {IGNORED_PIXEL} values", hint=hint)
    return found


def _name_classes(found: ImageData, values: set[Any]) -> None:
    """Name the classes of masks; values that are not 0, 1, 2, .. are listed in the config."""
    ordered = sorted(values, key=lambda value: value if isinstance(value, tuple) else (value,))
    if ordered and set(ordered) <= {*range(len(ordered)), IGNORED_PIXEL} and ordered != [0, IGNORED_PIXEL]:
        ordered = [value for value in ordered if value != IGNORED_PIXEL]
    else:
        found.data["values"] = [list(value) if isinstance(value, tuple) else value for value in ordered]
    found.task["labels"] = ["background", *(f"class_{number}" for number in range(1, max(2, len(ordered))))]


def _find_sizes(found: ImageData, kind: str, files: list[Path]) -> None:
    """Set the mode, the limits of 16-bit values and the transforms; if sizes differ, choose one size for training."""
    sampled = _sample(files)
    sizes = {tuple(check_image(file, pixels=False)) for file in sampled}
    kinds = {(image.ndim, image.dtype.name) for image in (read_image(file, mode="") for file in sampled[:20])}
    if {axes for axes, _ in kinds} == {2}:
        found.task["mode"] = "L"
    if any(name not in ("uint8", "bool") for _, name in kinds):  # more than 8 bits per pixel
        found.data["limits"] = [0, 65535]
    augment: list[dict[str, Any]] = [{"type": "RandomFlip"}]
    if len(sizes) == 1:
        height, width = next(iter(sizes))
        found.shown.append(f"  all of {height} x {width} pixels")
    elif kind == "image":
        found.shown.append(f"  {len(sizes)} different sizes, so images are resized")
        found.task["size"] = [LARGEST[kind]] * 2
    else:
        found.shown.append(f"  {len(sizes)} different sizes, so images are cropped")
        augment.insert(0, {"type": "RandomCrop", "size": min(LARGEST[kind], *(min(size) for size in sizes))})
    found.task["augment"] = augment


def _place(key: str) -> int:
    """Return the place of a key in `[task.data]`: first the splits."""
    return SPLITS.index(key) if key in SPLITS else len(SPLITS)


# -- files
def _split_folders(root: Path) -> dict[str, Path]:
    """Return the folders named after splits; empty if there is none for training."""
    found = {split: path for path in _folders(root) if (split := split_of(path.name))}
    return {split: found[split] for split in SPLITS if split in found} if "train" in found else {}


def _folders(path: Path) -> list[Path]:
    return sorted(entry for entry in path.iterdir() if entry.is_dir() and not entry.name.startswith("."))


def _pick(base: Path, names: Sequence[str]) -> Path | None:
    return next((base / name for name in names if (base / name).is_dir()), None)


def _images_in(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if path.suffix.lower() in SUFFIXES and path.is_file())


def _sample(files: list[Path]) -> list[Path]:
    return files[:: max(1, len(files) // SAMPLED)]


def _example(files: list[Path], named: dict[str, Path]) -> Path:
    last = named.get("test", named.get("dev"))
    return next((file for file in _images_in(last)), files[0]) if last is not None else files[0]


def _lines(table: dict[str, Any]) -> list[str]:
    lines = []
    for key, value in table.items():
        text = format_inline(value).replace(MARK, ESCAPED)
        comment = "  # only for training" if key == "augment" else ""
        if key in ("dev", "test") and isinstance(value, float):
            comment = "  # fraction of the training data to hold out"
        lines.append(f"{key} = {text}{comment}")
    return lines
