"""Models that classify images or their pixels, with any network."""

# B batch, C channels, H height, W width, K classes

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Protocol, runtime_checkable

import torch.nn.functional as F
from torch import Tensor

from alchemy.constraints import Fraction, NonNegativeFloat
from alchemy.errors import AlchemyError
from alchemy.images.read_image import IGNORED_PIXEL
from alchemy.model import AlchemyModel, tensor_field
from alchemy.nn.build_net import build_net
from alchemy.nn.losses import CrossEntropy, Loss, build_loss
from alchemy.nn.pixel_loss import PixelLoss

OUTPUTS = ("logits", "out")  # in transformers, and in the segmentation models of torchvision


@runtime_checkable
class _HasLabels(Protocol):
    """A task with a list of labels, one for each class."""

    labels: Sequence[str]


@runtime_checkable
class _HasChannels(Protocol):
    """A task that knows the number of channels of its images."""

    channels: int


class ImageModel(AlchemyModel):
    """Base class for models with a network that maps `[B, C, H, W]` images to logits.

    The network is a module, or a function that returns a module, by dotted path. Its number of classes and channels
    comes from the task. It may return a tensor, or a dict with `logits` or `out`.
    """

    target: ClassVar[str]  # the field of a batch that the loss needs

    def __init__(
        self,
        *,
        net: Mapping[str, Any],
        freeze: str | Sequence[str],
        load: str | Path,
        image: str,
        model_path: str,
        usual_loss: Loss,
    ) -> None:
        super().__init__()
        task = self.run.task
        self.image, self.reads = image, (image, self.target)
        self.classes = len(task.labels) if isinstance(task, _HasLabels) else 0
        channels = task.channels if isinstance(task, _HasChannels) else 0
        self.model = build_net(net, classes=self.classes, channels=channels)
        self.criterion = build_loss(self.criterion_cfg) if self.criterion_cfg else usual_loss
        self.freeze(freeze)
        if model_path:
            self.load(model_path)
        elif load:
            self.load_matching(load)

    def forward(self, batch: Mapping[str, Any]) -> Mapping[str, Any]:
        image_BCHW = tensor_field(batch, self.image)
        try:
            result = self.model(image_BCHW)
        except RuntimeError as error:
            self._explain_channels(error, image_BCHW)
            raise
        return {"logits": self._logits(result)}

    def loss(self, outputs: Mapping[str, Any], batch: Mapping[str, Any]) -> tuple[Tensor, float | Tensor]:
        found: tuple[Tensor, float | Tensor] = self.criterion(outputs["logits"], tensor_field(batch, self.target))
        return found

    def _logits(self, result: Any) -> Tensor:
        if isinstance(result, Tensor):
            return result
        name = next((name for name in OUTPUTS if isinstance(result, Mapping) and name in result), "")
        if not name:
            text = f"{type(self.module).__name__} returned a {type(result).__name__}, expected the logits"
            raise AlchemyError(
                text, section="model.net", hint=f"return a tensor, or a dict with {' or '.join(OUTPUTS)}"
            )
        logits: Tensor = result[name]
        return logits

    def _explain_channels(self, error: RuntimeError, image_BCHW: Tensor) -> None:
        if "channels" in str(error) and image_BCHW.dim() == 4:
            text = f"the network does not take images of {image_BCHW.shape[1]} channels: {error}"
            hint = f"set its number of channels to {image_BCHW.shape[1]}, or convert the images"
            raise AlchemyError(text, section="model.net", hint=hint) from error


@AlchemyModel.register()
class ImageClassifier(ImageModel):
    """A network that returns one logit per class for every image.

    `freeze` names parameters that are not trained, and `load` is a local file or folder from which to load matching
    weights. The loss is cross entropy with `label_smoothing`, unless the config has a `[criterion]` table.
    """

    target = "label_id"

    def __init__(
        self,
        *,
        net: dict[str, Any] = {"type": "alchemy.nn.convnet.SmallCNN"},
        freeze: str | Sequence[str] = (),
        load: str | Path = "",
        label_smoothing: Fraction = 0.0,
        image: str = "image",
        model_path: str = "",
    ) -> None:
        loss = CrossEntropy(label_smoothing=label_smoothing)
        super().__init__(net=net, freeze=freeze, load=load, image=image, model_path=model_path, usual_loss=loss)


@AlchemyModel.register()
class Segmenter(ImageModel):
    """A network that returns one logit per class for every pixel; smaller outputs are enlarged to the image.

    The loss is cross entropy plus `dice` times the Dice loss, over all pixels whose mask is not 255, unless the config
    has a `[criterion]` table. `freeze` and `load` are those of `ImageClassifier`.
    """

    target = "mask"

    def __init__(
        self,
        *,
        net: dict[str, Any] = {"type": "alchemy.nn.unet.UNet"},
        freeze: str | Sequence[str] = (),
        load: str | Path = "",
        label_smoothing: Fraction = 0.0,
        dice: NonNegativeFloat = 0.0,
        image: str = "image",
        model_path: str = "",
    ) -> None:
        loss = PixelLoss(dice=dice, label_smoothing=label_smoothing, ignore_index=IGNORED_PIXEL)
        super().__init__(net=net, freeze=freeze, load=load, image=image, model_path=model_path, usual_loss=loss)

    def forward(self, batch: Mapping[str, Any]) -> Mapping[str, Any]:
        logits_BKHW = super().forward(batch)["logits"]
        size = batch[self.image].shape[-2:]
        if logits_BKHW.shape[-2:] != size:
            logits_BKHW = F.interpolate(logits_BKHW, size=size, mode="bilinear", align_corners=False)
        return {"logits": logits_BKHW}
