"""A GAN: the model with its two losses, and the task that alternates the updates of its two networks."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from alchemy import AlchemyModel, AlchemyTask
from alchemy.constraints import NonNegativeFloat, PositiveInt
from alchemy.errors import AlchemyError
from alchemy.loss_observer import Loss
from src.nets import Discriminator, Generator


@AlchemyModel.register()
class Gan(AlchemyModel):
    """A generator and a discriminator of images of `size` x `size` pixels.

    `noise` is the number of inputs of the generator and must be that of the `Noise` pipe. `width` is the number of
    channels of the large feature maps. The losses are the original, non-saturating ones. `penalty` weights the squared
    gradient of the discriminator at real images (R1, Mescheder et al. 2018), without which the training may diverge.
    """

    def __init__(
        self,
        *,
        size: PositiveInt = 28,
        channels: PositiveInt = 1,
        noise: PositiveInt = 64,
        width: PositiveInt = 64,
        penalty: NonNegativeFloat = 0.1,
    ) -> None:
        super().__init__()
        if size % 4 or width % 8:
            text = f"size = {size} and width = {width}, expected multiples of 4 and 8"
            raise AlchemyError(text, section="model", hint="add the transform Resize or Pad to the images")
        self.penalty = penalty
        self.model = nn.ModuleDict(
            {
                "generator": Generator(noise=noise, width=width, size=size, channels=channels),
                "discriminator": Discriminator(width=width, size=size, channels=channels),
            }
        )

    def forward(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        # the module without wrappers: with several processes, gradients are averaged once per optimizer
        return {"sample": self.module["generator"](batch["noise"])}

    def loss(
        self, outputs: Mapping[str, Any], batch: Mapping[str, Any], player: str = "discriminator"
    ) -> tuple[Tensor, int]:
        judge, fake, count = self.module["discriminator"], outputs["sample"], len(outputs["sample"])
        if player == "generator":
            return softplus(-judge(fake)).sum(), count
        real = batch["image"].detach().requires_grad_()
        real_B, fake_B = judge(real), judge(fake.detach())
        (slope,) = torch.autograd.grad(real_B.sum(), real, create_graph=True)
        loss = softplus(-real_B).sum() + softplus(fake_B).sum() + self.penalty / 2 * slope.square().sum()
        return loss, count


@AlchemyTask.register()
class Adversarial(AlchemyTask):
    """Update the discriminator in every step, and then the generator in every `n_critic`-th step."""

    def __init__(self, *, n_critic: PositiveInt = 1) -> None:
        super().__init__()
        self.n_critic = n_critic

    def train_step(self, batch: Any, updater: Any) -> Mapping[str, Any]:
        batch, model = self.to_device(batch), self.run.model
        outputs = model.forward(batch)
        judged = Loss(*model.loss(outputs, batch, "discriminator"), outputs)
        updater.accumulate(judged, optim="discriminator")
        if (self.run.train_sched.cur_step + 1) % self.n_critic == 0:
            # the discriminator is called again, because its weights have just changed
            updater.accumulate(Loss(*model.loss(outputs, batch, "generator")), optim="generator")
        return judged.merged()

    def run_model(self, batch: Any, needs_loss: bool) -> Mapping[str, Any]:
        """Return only samples: the loss of an averaged discriminator means little."""
        outputs: Mapping[str, Any] = self.run.model.forward(batch)
        return outputs
