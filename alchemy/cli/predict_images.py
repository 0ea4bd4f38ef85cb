"""Predict image files and folders of images for `alchemy predict`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from alchemy.errors import AlchemyError, printable
from alchemy.files import is_same

if TYPE_CHECKING:
    from alchemy.config.tree import Document
    from alchemy.predictor import Predictor


def reads_images(document: Document) -> bool:
    """Return whether the task of a config predicts images."""
    from alchemy.task import AlchemyTask
    from alchemy.tasks.image_task import ImageTask

    kind = AlchemyTask.resolve_registered_module(str(document.table("task").get("type")))
    return issubclass(kind, ImageTask)


def find_images(paths: list[str]) -> list[Path]:
    """Return the given files, and the images in the given folders at any depth, sorted by name."""
    from alchemy.data.files import check_file
    from alchemy.images.read_image import SUFFIXES

    found: list[Path] = []
    for path in map(Path, paths):
        if not path.is_dir():
            found.append(check_file(path))
            continue
        names = sorted(file for file in path.rglob("*") if file.suffix.lower() in SUFFIXES and file.is_file())
        inside = [file for file in names if not any(part.startswith(".") for part in file.relative_to(path).parts)]
        if not inside:
            hint = f"expected files that end in {', '.join(SUFFIXES)}"
            raise AlchemyError(f"the folder {str(path)!r} has no images", hint=hint)
        found += inside
    return found


def predict_images(predictor: Predictor, args: argparse.Namespace, files: list[Path]) -> Iterator[dict[str, Any]]:
    """Yield the predictions of image files; a file that cannot be read is reported and skipped.

    Masks are written to the folder `--to`. At the end, raises an error if files were skipped.
    """
    folder = Path(args.to or "masks")
    if any(is_same(file.with_name(f"{file.stem}.png"), folder / f"{file.stem}.png") for file in files):
        hint = "pass another folder with --to"
        raise AlchemyError(f"masks in {str(folder)!r} would overwrite the images", hint=hint)
    write, broken, start = predictor.run.task.row_writer(folder), 0, 0
    while start < len(files):
        inputs = [(str(file), str(file)) for file in files[start:]]
        try:
            # only one batch of images at a time is kept in memory
            for row in predictor.predict_located(inputs, window=args.batch_size):
                start += 1
                yield write([row])[0]
        except AlchemyError as error:
            print(printable(f"error: {error.problem.message}"), file=sys.stderr)
            broken, start = broken + 1, start + 1
    if broken:
        raise AlchemyError(f"{broken} of {len(files)} images could not be predicted", hint="see the errors above")
