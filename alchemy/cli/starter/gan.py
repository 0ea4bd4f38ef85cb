"""The files of a GAN project, for sample images or for a folder of images."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

from alchemy.cli.starter.image_lists import idx_shape
from alchemy.config.references import ESCAPED, MARK
from alchemy.config.toml_writer import format_inline
from alchemy.data.sniff.finding import relative_path
from alchemy.errors import AlchemyError

TEMPLATE = Path(__file__).parents[1] / "template_gan"
RENAMED = {"gitignore": ".gitignore"}  # some packagers leave out files whose names start with a dot
FOR_SHAPES = ("README.md", "classifier.toml", "src/shapes.py")
HINT = "pass a folder with one folder of images per class, or an idx file of images"
SIDE = 32  # pixels to which image files are resized
DATA = """[task.datasets.train]
batch_size = 32
shuffle = true
drop_last = true
collate_fn = {{ type = "alchemy.data.collate_images.StackImages", mode = "{mode}" }}  # values from -1 to 1
pipes = [
    {reader},
    {{ type = "HoldOut", share = 0.1 }},
    {{ type = "src.data.Noise", size = "${{model.noise}}" }},
]

# same as the training data except for these keys
[task.datasets.dev]
like = "train"
batch_size = 256
pipes.HoldOut.held = true

"""


class Images(NamedTuple):
    """The pipe that reads images, and the size and mode of the images that it returns."""

    reader: dict[str, Any]
    side: int
    mode: str


def gan_project(folder: Path, data: list[str]) -> dict[str, str]:
    """Return the files of the project by path; `data` names the images, by default sample images drawn by code."""
    files = {}
    for path in sorted(path for path in TEMPLATE.rglob("*") if path.is_file() and "__pycache__" not in path.parts):
        place = path.relative_to(TEMPLATE)
        if not data or place.as_posix() not in FOR_SHAPES:
            files[place.with_name(RENAMED.get(place.name, place.name)).as_posix()] = path.read_text("utf-8")
    name = folder.resolve().name or "gan"
    # a JSON string is also a TOML string
    config = files["train.toml"].replace('"{{name}}"', json.dumps(name, ensure_ascii=False).replace(MARK, ESCAPED))
    if data:
        config = _use_images(config, detect_images(data, folder))
    else:
        files["README.md"] = files["README.md"].replace("{{name}}", name)
    return files | {"train.toml": config}


def _use_images(config: str, images: Images) -> str:
    """Replace the sample images in the config with the user's images."""
    begin, end = config.index("[task.datasets.train]"), config.index("[model]")
    reader = format_inline(images.reader).replace(MARK, ESCAPED)
    config = config[:begin] + DATA.format(reader=reader, mode=images.mode) + config[end:]
    config = config.replace("#   alchemy test latest                 score the best weights on the test split\n", "")
    for key, value in (("size", images.side), ("channels", 1 if images.mode == "L" else 3), ("noise", 64)):
        config = re.sub(rf"(?m)^{key} = \d+", f"{key} = {value}", config)
    return re.sub(r"(?m)^num_training_steps = \d+", "num_training_steps = 5000", config)


def detect_images(data: list[str], folder: Path) -> Images:
    """Return how to read the images below a path, relative to the project."""
    if len(data) > 1:
        raise AlchemyError(f"--data has {len(data)} paths, but a GAN reads one", hint=HINT)
    path = Path(data[0])
    if not path.exists():
        raise AlchemyError(f"{path} does not exist", hint=HINT)
    found = sorted(path.glob("train*images*idx3*")) if path.is_dir() else [path]
    if found:
        return Images({"type": "IdxImages", "path": relative_path(found[0], folder)}, _idx_side(found[0]), "L")
    path = path / "train" if (path / "train").is_dir() else path
    if not any(child.is_dir() and not child.name.startswith(".") for child in path.iterdir()):
        raise AlchemyError(f"{path} has no folders with images", hint=HINT)
    size = [SIDE, SIDE]
    reader = {"type": "ImageFolder", "path": relative_path(path, folder), "mode": "RGB", "size": size}
    return Images(reader, SIDE, "RGB")


def _idx_side(path: Path) -> int:
    """Return the height of the images in an idx file, which must be that of the generator."""
    _, height, width = idx_shape(path, HINT)
    if height != width or height % 4:
        hint = "resize them: their height and width must be equal and a multiple of 4"
        raise AlchemyError(f"the images in {path} have {height} x {width} pixels", hint=hint)
    return height
