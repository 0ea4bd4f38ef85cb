"""Explain the predictions of texts and images for `alchemy predict --explain`."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from alchemy.cli.predict_inputs import InputRow
    from alchemy.predictor import Predictor


def explain_inputs(
    predictor: Predictor, answers: Iterable[tuple[InputRow, dict[str, Any]]]
) -> Iterator[tuple[InputRow, dict[str, Any]]]:
    """Add the tokens of each text and their contributions to its prediction."""
    for entry, prediction in answers:
        (found,) = predictor.explain([entry.row if entry.item is None else entry.item])
        yield entry, prediction | found


def explain_images(predictor: Predictor, args: argparse.Namespace, files: list[Path]) -> Iterator[dict[str, Any]]:
    """Yield the predictions of images, and write each image with a heat map over it to the folder `--to`."""
    from alchemy.explain import draw_heat
    from alchemy.files import write_atomic
    from alchemy.images.pictures import draw_grid, to_rgb

    folder = Path(args.to or "explained")
    folder.mkdir(parents=True, exist_ok=True)
    for number, file in enumerate(files):
        (row,) = predictor.predict([str(file)])
        (found,) = predictor.explain([str(file)])
        heat = draw_heat(found["image"], found["attributions"])
        tiles = [(to_rgb(found["image"]), file.name), (heat, str(row["pred"]))]
        path = folder / f"{number:04}_{file.stem}.png"  # files in different folders may have the same name
        write_atomic(path, draw_grid(tiles, columns=2))
        yield row | {"explained": str(path)}
