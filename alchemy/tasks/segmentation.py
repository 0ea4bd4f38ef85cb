"""Segmentation: one class per pixel."""

# B batch, C channels, H height, W width, K classes

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from alchemy.constraints import NonNegativeInt, PositiveInt
from alchemy.data.messages import in_short
from alchemy.errors import AlchemyError, did_you_mean
from alchemy.images.pictures import overlay, resize_mask, shrink, side_by_side, to_rgb, write_mask
from alchemy.images.read_image import IGNORED_PIXEL
from alchemy.images.tiles import cut_tiles
from alchemy.loop import log_loss
from alchemy.metrics.segmentation import MaskScores, count_pixels
from alchemy.task import AlchemyTask, loss_of
from alchemy.tasks.data_checks import check_logits
from alchemy.tasks.image_task import ImageTask, Mode

TILES = 4  # tiles that the network reads at once


@AlchemyTask.register()
class Segmentation(ImageTask):
    """Predicts the class of each pixel for samples with an `image` and a `mask` of class ids; 255 is ignored.

    `labels` names the classes in the order of their ids: a list, or a file with one name per line. `background` is a
    class that the mean scores leave out; by default, the class named "background", if there is one. Images with a side
    longer than `tile` (0: no limit) are evaluated and predicted in tiles that share `overlap` pixels, where their
    logits are averaged. Images of different sizes can be evaluated, but training needs images of one size, for example
    from a RandomCrop in `augment`. The other options are those of all image tasks.
    """

    target: ClassVar[str] = "mask"
    processor: ClassVar[str] = "alchemy.pipeline.processors.ImageMasks"
    batches: ClassVar[dict[str, int]] = {"batch_size": 8}
    packages = ("PIL",)
    main_score = "iou"
    produces = ("loss", "iou", "pooled_iou", "dice", "pixel_accuracy", "iou_{labels}")
    any_size: ClassVar[bool] = True

    def __init__(
        self,
        *,
        labels: list[str] | str,
        background: str | None = None,
        mode: Mode = "RGB",
        size: tuple[PositiveInt, PositiveInt] | None = None,
        transforms: list[dict[str, Any]] = [],
        augment: list[dict[str, Any]] = [],
        mean: list[float] = [0.5],
        std: list[float] = [0.5],
        tile: NonNegativeInt = 1024,
        overlap: NonNegativeInt = 64,
        hardest: NonNegativeInt = 12,
    ) -> None:
        super().__init__(
            mode=mode, size=size, transforms=transforms, augment=augment, mean=mean, std=std, hardest=hardest
        )
        self.labels: list[str] = self._find_labels(labels)
        self.background = _find_background(background, self.labels)
        if tile and overlap >= tile:
            hint = f"set overlap to less than tile = {tile}"
            raise AlchemyError(f"overlap = {overlap}: tiles would not advance", section="task", hint=hint)
        self.tile, self.overlap = tile, overlap
        self._restores_size = size is not None and not transforms

    # -- data
    def is_labeled(self, sample: Mapping[str, Any]) -> bool:
        return "mask" in sample or "counts" in sample

    def names(self, sample: Mapping[str, Any]) -> tuple[str, ...]:
        return ()

    def check_sample(self, sample: Mapping[str, Any]) -> None:
        if "mask" not in sample:
            return
        check_mask(sample["mask"], self.labels)
        if sample["mask"].shape != sample["image"].shape[:2]:
            one, two = (" x ".join(map(str, sample[name].shape[:2])) for name in ("image", "mask"))
            raise AlchemyError(
                f"the image has {one} pixels, but its mask {two}", hint="is it the mask of another image?"
            )

    def question(self, item: object) -> dict[str, Any]:
        sample = super().question(item)
        return {**sample, "full_size": np.array(sample["image"].shape[:2])}

    # -- steps
    def check_outputs(self, outputs: Any) -> None:
        check_logits(self, outputs, axis=1)

    def kept(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [_without_arrays(row) for row in rows]

    def run_model(self, batch: Any, needs_loss: bool) -> Mapping[str, Any]:
        if not self.tile or max(batch["image"].shape[-2:]) <= self.tile:
            return super().run_model(batch, needs_loss)
        outputs: Mapping[str, Any] = {"logits": torch.stack([self._blend(image_CHW) for image_CHW in batch["image"]])}
        if needs_loss:
            outputs = loss_of(self.run.model, outputs, batch).merged()
            log_loss(self.run, outputs)
        return outputs

    def _blend(self, image_CHW: Tensor) -> Tensor:
        """Return the logits of an image, averaged where tiles overlap."""
        height, width = image_CHW.shape[1:]
        blended_KHW = image_CHW.new_zeros(len(self.labels), height, width)
        every = list(cut_tiles(height, width, self.tile, self.overlap))
        for tiles in (every[start : start + TILES] for start in range(0, len(every), TILES)):
            cut_BCHW = torch.stack([image_CHW[:, tile.rows, tile.columns] for tile in tiles])
            logits_BKHW = self.run.model.forward({"image": cut_BCHW})["logits"].float()
            for tile, logits_KHW in zip(tiles, logits_BKHW):
                weights_HW = torch.from_numpy(tile.weights).to(logits_KHW.device)
                blended_KHW[:, tile.rows, tile.columns] += logits_KHW * weights_HW
        return blended_KHW

    def answers(self, outputs: Mapping[str, Any], batch: Mapping[str, Any]) -> list[dict[str, Any]]:
        masks_BHW = outputs["logits"].argmax(1).to(torch.uint8).cpu().numpy()
        golds = batch["mask"].cpu().numpy() if "mask" in batch else None
        rows: list[dict[str, Any]] = []
        for place, mask in enumerate(masks_BHW):
            row: dict[str, Any] = {"file": batch["file"][place]} if "file" in batch else {}
            if "full_size" in batch and self._restores_size:
                mask = resize_mask(mask, batch["full_size"][place].tolist())
            row |= {"pred": mask, "shares": self._shares(mask)}
            if golds is not None:
                row |= self._compare(golds[place], mask)
            rows.append(row)
        self._keep_hardest(rows, batch)
        return rows

    def _compare(self, gold: np.ndarray, mask: np.ndarray) -> dict[str, Any]:
        counts = count_pixels(gold, mask, len(self.labels), IGNORED_PIXEL)
        found = MaskScores([counts], self.labels, self.background)
        scores = {"iou": float(found.image_iou[0]), "dice": float(found.image_dice[0])}
        return {"mask": gold, "gold_shares": self._shares(gold), **scores, "counts": counts.tolist()}

    def _shares(self, mask: np.ndarray) -> dict[str, float]:
        """Return the share of each class among the pixels that are not ignored."""
        pixels = np.bincount(mask.ravel(), minlength=len(self.labels))[: len(self.labels)]
        return {name: round(count / max(1, int(pixels.sum())), 6) for name, count in zip(self.labels, pixels.tolist())}

    def scores(self, answers: list[dict[str, Any]]) -> dict[str, Any]:
        return MaskScores([row["counts"] for row in answers], self.labels, self.background).scores()

    def report_options(self) -> dict[str, str]:
        return {"kind": "masks", "pred": "shares", "label": "gold_shares"}

    # -- pictures and files
    def _keep_hardest(self, rows: list[dict[str, Any]], batch: Mapping[str, Any]) -> None:
        for place, row in enumerate(rows):
            if "iou" in row and self._hardest.fits(1 - row["iou"]):
                image = to_rgb(self.restore_image(batch["image"][place]))
                parts = [image, overlay(image, row["mask"]), overlay(image, row["pred"])]
                picture = side_by_side([shrink(part, 256) for part in parts])
                caption = f"{Path(row.get('file', '')).name} IoU {row['iou']:.3f}: image, mask, prediction"
                self._hardest.add(1 - row["iou"], self.sample_index(place), picture, caption)

    def row_writer(self, folder: Path) -> Callable[[Any], Any]:
        """Return a function that writes the masks of prediction rows to PNG files and adds their paths."""
        used: set[str] = set()

        def write(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
            return [self._write_row(row, folder, used) for row in rows]

        return write

    def _write_row(self, row: dict[str, Any], folder: Path, used: set[str]) -> dict[str, Any]:
        stem = Path(row.get("file", "mask")).stem
        names = (f"{stem}{'' if number == 1 else f'_{number}'}.png" for number in range(1, len(used) + 2))
        name = next(name for name in names if name not in used)
        used.add(name)
        folder.mkdir(parents=True, exist_ok=True)
        write_mask(folder / name, row["pred"])
        kept = {key: value for key, value in _without_arrays(row).items() if key != "counts"}
        return {**kept, "pred": str(folder / name)}


def check_mask(mask: np.ndarray, classes: list[str]) -> None:
    """Raise if a mask has values that are neither the id of a class nor ignored."""
    strange = np.unique(mask[(mask >= len(classes)) & (mask != IGNORED_PIXEL)]).tolist()
    if strange:
        text = f"the mask has the values {in_short(map(str, strange))}, which are the id of no class"
        ids = f"0 to {len(classes) - 1} for {in_short(classes)}, and 255 is ignored"
        hint = f"the ids are {ids}; map other values to ids with `values` of the processor"
        raise AlchemyError(text, hint=hint)


def _find_background(name: str | None, labels: list[str]) -> int | None:
    if name and name not in labels:
        hint = did_you_mean(name, labels) or 'set background = "" if there is none'
        raise AlchemyError(f"background = {name!r} is not one of the labels", section="task", hint=hint)
    name = "background" if name is None else name
    return labels.index(name) if name in labels else None


def _without_arrays(row: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key not in ("pred", "mask")}
