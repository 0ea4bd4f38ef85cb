"""Explain a prediction: how much each token or pixel of the input contributed to it, by integrated gradients."""

# B batch size (1), N embedded tokens or n-grams, T tokens, D features, C channels, H height, W width

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor, nn

from alchemy.context import Run
from alchemy.errors import AlchemyError
from alchemy.tasks.image_task import ImageTask
from alchemy.tasks.text_task import TextTask

FOR, AGAINST = (213.0, 94.0, 0.0), (0.0, 114.0, 178.0)  # colors of contributions


@runtime_checkable
class _SpreadsScores(Protocol):
    """An encoder that embeds other units than tokens, such as n-grams."""

    def spread_scores(self, scores_N: Tensor, tokens: int) -> Tensor: ...


def explain_batch(run: Run, batch: Mapping[str, Any], *, steps: int) -> dict[str, Any]:
    """Return the contributions to the predicted logit of a batch with one sample.

    For text, these are `tokens` and their `attributions`; for an image, `attributions` [H, W] and `image`, the pixels.
    They are integrated gradients (Sundararajan et al. 2017) from zero embeddings, or from an image of the mean color,
    and sum up to the difference of the logit to that of the baseline. With `steps = 1`, they are gradient times input.
    """
    task = run.task
    if isinstance(task, ImageTask):
        image_BCHW = batch["image"] if isinstance(batch["image"], Tensor) else batch["image"][0]
        scores = _integrate(lambda scale: _run_scaled(run, batch, image_BCHW, scale), steps)[0].sum(0)
        return {"attributions": scores.cpu().numpy(), "image": task.restore_image(image_BCHW[0])}
    if not isinstance(task, TextTask):
        hint = "only predictions for texts and images can"
        raise AlchemyError(f"predictions of {type(task).__name__} cannot be explained", hint=hint)
    scores_N = _integrate(lambda scale: _run_embedded(run, batch, scale), steps)[0].sum(-1)
    tokens = task.spell(batch)["source"]
    for encoder in filter(lambda part: isinstance(part, _SpreadsScores), run.model.module.modules()):
        scores_N = encoder.spread_scores(scores_N, len(tokens))
    if len(scores_N) != len(tokens):
        text = f"the model embeds {len(scores_N)} units, but the text has {len(tokens)} tokens"
        raise AlchemyError(text, hint="only encoders with one vector per token, and NGrams, can be explained")
    return {"tokens": tokens, "attributions": [round(score, 6) for score in scores_N.tolist()]}


def _integrate(forward: Callable[[float], tuple[Tensor, Tensor]], steps: int) -> Tensor:
    """Return the input times its mean gradient on the way from the baseline, at the midpoints of `steps` intervals.

    `forward` returns the logits for an input scaled by a factor, and the scaled input.
    """
    logits, whole = forward(1.0)
    if logits.dim() > 2 or logits.shape[0] != 1:
        hint = "the prediction must be one class, several classes or a number"
        raise AlchemyError(f"logits of shape {list(logits.shape)} cannot be explained", hint=hint)
    chosen = int(logits.flatten().argmax())
    total = torch.zeros_like(whole)
    for step in range(steps):
        # a single step is at the input itself: gradient times input
        logits, scaled = forward((step + 0.5) / steps if steps > 1 else 1.0)
        total += torch.autograd.grad(logits.flatten()[chosen], scaled)[0]
    return (whole * total / steps).detach()


def _run_scaled(run: Run, batch: Mapping[str, Any], image_BCHW: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    scaled = (image_BCHW * scale).detach().requires_grad_()
    outputs: Mapping[str, Any] = run.task.run_model({**batch, "image": scaled}, needs_loss=False)
    return _logits(outputs), scaled


def _run_embedded(run: Run, batch: Mapping[str, Any], scale: float) -> tuple[Tensor, Tensor]:
    with _scaled_embeddings(run.model.module, scale) as embedded:
        outputs: Mapping[str, Any] = run.task.run_model(batch, needs_loss=False)
    if not embedded:
        raise AlchemyError("the model has no nn.Embedding, so its predictions cannot be explained")
    return _logits(outputs), embedded[0]


@contextlib.contextmanager
def _scaled_embeddings(module: nn.Module, scale: float) -> Iterator[list[Tensor]]:
    """Inside this block, the first embedding that is called returns scaled vectors, which are added to the list."""
    embedded: list[Tensor] = []

    def replace(part: nn.Module, args: object, result: Tensor) -> Tensor | None:
        if embedded:
            return None
        embedded.append((result * scale).detach().requires_grad_())
        return embedded[0]

    with contextlib.ExitStack() as hooks:
        for part in module.modules():
            if isinstance(part, nn.Embedding):
                hooks.callback(part.register_forward_hook(replace).remove)
        yield embedded


def _logits(outputs: Mapping[str, Any]) -> Tensor:
    if not isinstance(outputs.get("logits"), Tensor):
        raise AlchemyError(
            "the prediction cannot be explained: the model returns no logits",
            hint=f"it returns {', '.join(map(str, outputs))}",
        )
    logits: Tensor = outputs["logits"]
    return logits


def draw_heat(image: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """Return a gray image with contributions drawn over it: red for the prediction, blue against it."""
    gray = image.astype(np.float32).reshape(*image.shape[:2], -1).mean(-1, keepdims=True).repeat(3, -1)
    strength = (scores / max(float(np.quantile(np.abs(scores), 0.99)), 1e-12)).clip(-1, 1)[..., None]
    color = np.where(strength > 0, np.array(FOR), np.array(AGAINST))
    return (gray * (1 - np.abs(strength)) + color * np.abs(strength)).round().astype(np.uint8)
