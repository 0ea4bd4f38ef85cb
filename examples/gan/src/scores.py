"""Scores and pictures of generated images: does a classifier recognize them, are they varied, and how do they look?"""

# B batch, N images, F features, K classes

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import adaptive_avg_pool2d

import alchemy
from alchemy.constraints import PositiveInt
from alchemy.errors import AlchemyError
from alchemy.pipeline import EvalPipeline, OutputPipeline
from alchemy.records.folder import newest

SURE = 0.9  # a classifier recognizes an image if the probability of a class is higher


class Classifier:
    """The classifier of a record: the features before its last linear layer, and its probabilities."""

    def __init__(self, record: str) -> None:
        folder = Path(record) if (Path(record) / "cfg.toml").is_file() else newest((record,), "finished", "state")
        with alchemy.load(folder) as predictor:
            self.net = predictor.module
        last = [module for module in self.net.modules() if isinstance(module, nn.Linear)][-1:]
        if not last:
            raise AlchemyError(f"the network of {folder} has no linear layer", hint="score with another classifier")
        self._features = torch.empty(0)
        last[0].register_forward_pre_hook(self._keep)

    def _keep(self, layer: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        self._features = inputs[0]

    @torch.no_grad()
    def __call__(self, image_BCHW: Tensor) -> tuple[Tensor, Tensor]:
        probs_BK = self.net(image_BCHW).softmax(-1)
        return self._features, probs_BK


@OutputPipeline.register()
class Recognize(OutputPipeline):
    """Describes every sample and every real image by features and, with a classifier, by the probabilities of classes.

    `classifier` is the record of an image classifier with the same `mean` and `std`, or a folder with such records, of
    which the newest finished one is used. Without it, the features are the pixels of the image, reduced to 7 x 7.
    """

    def __init__(self, *, classifier: str = "") -> None:
        super().__init__()
        self.classify = Classifier(classifier) if classifier else None

    def __call__(self, outputs: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
        columns = {"sample": outputs["sample"]}
        for name, image_BCHW in (("sample", outputs["sample"]), ("real", inputs["image"])):
            if self.classify is None:
                columns[f"{name}_features"] = adaptive_avg_pool2d(image_BCHW, 7).flatten(1)
            else:
                columns[f"{name}_features"], columns[f"{name}_probs"] = self.classify(image_BCHW.cpu())
        return columns


@EvalPipeline.register()
class SampleScores(EvalPipeline):
    """Scores the rows that `Collect` has collected as `varname`; later pipes receive them as `samples`.

    `frechet` compares the features of the samples with those of the real images; lower is better. With a classifier,
    `recognized` is the share of samples with a class that is more probable than 0.9, and `smallest_class` and
    `largest_class` are the shares of the rarest and the most frequent class among all samples. `real_recognized` and
    the others are the same scores of the real images.
    """

    produces = ("frechet",)

    def __init__(self, *, varname: str = "samples") -> None:
        super().__init__()
        self.varname = varname

    def begin_eval(self, split: str, **kwargs: Any) -> None:
        self.run.symbols.try_pop_global(self.varname)  # a failed evaluation may have left its rows behind

    def __call__(self, split: str, **kwargs: Any) -> dict[str, Any]:
        rows = self.run.symbols.pop_global(self.varname)
        features = [np.stack([row[f"{name}_features"] for row in rows]) for name in ("sample", "real")]
        scores = {"frechet": frechet_distance(*features)}
        if "sample_probs" in rows[0]:
            scores |= class_scores(np.stack([row["sample_probs"] for row in rows]))
            real = class_scores(np.stack([row["real_probs"] for row in rows]))
            scores |= {f"real_{name}": value for name, value in real.items()}
        return {**kwargs, "samples": rows, **scores}


@EvalPipeline.register()
class SampleGrid(EvalPipeline):
    """Logs the first samples of an evaluation as a grid of images."""

    produces = ()

    def __init__(self, *, rows: PositiveInt = 8, columns: PositiveInt = 8) -> None:
        super().__init__()
        self.rows, self.columns = rows, columns

    def __call__(self, split: str, **kwargs: Any) -> dict[str, Any]:
        samples = [(row["sample"] + 1) / 2 for row in kwargs["samples"][: self.rows * self.columns]]
        self.run.log_images(f"{split}/samples", samples, columns=self.columns)
        return kwargs


def class_scores(probs_NK: np.ndarray) -> dict[str, float]:
    """Return the share of recognized images, and how evenly the images are spread over the classes.

    >>> class_scores(np.array([[1.0, 0.0], [0.95, 0.05], [0.4, 0.6], [1.0, 0.0]]))
    {'recognized': 0.75, 'smallest_class': 0.25, 'largest_class': 0.75}
    """
    shares_K = np.bincount(probs_NK.argmax(1), minlength=probs_NK.shape[1]) / len(probs_NK)
    sure = float((probs_NK.max(1) > SURE).mean())
    return {"recognized": sure, "smallest_class": float(shares_K.min()), "largest_class": float(shares_K.max())}


def frechet_distance(one_NF: np.ndarray, two_NF: np.ndarray) -> float:
    """Return the squared Frechet distance between two sets of features, each taken as normally distributed.

    >>> points = np.array([[0.0, 0.0], [2.0, 0.0], [0.0, 2.0], [2.0, 2.0]])
    >>> round(frechet_distance(points, points + [3.0, 4.0]), 6)
    25.0
    """
    one_NF, two_NF = one_NF.astype(np.float64), two_NF.astype(np.float64)
    first_FF, second_FF = (np.cov(features, rowvar=False) for features in (one_NF, two_NF))
    values_F, vectors_FF = np.linalg.eigh(first_FF)
    root_FF = vectors_FF * np.sqrt(values_F.clip(min=0)) @ vectors_FF.T
    # the root of the product of both covariances has the same trace as that of this symmetric matrix
    overlap = np.sqrt(np.linalg.eigvalsh(root_FF @ second_FF @ root_FF).clip(min=0)).sum()
    shift = np.square(one_NF.mean(0) - two_NF.mean(0)).sum()
    # rounding may make the distance of equal sets negative
    return max(0.0, float(shift + np.trace(first_FF) + np.trace(second_FF) - 2 * overlap))
