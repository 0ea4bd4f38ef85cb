"""Models of a small project: one in the old style, one with typed keywords."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import torch_is_never_imported_by_the_check  # noqa: F401
from torch import nn

from alchemy import AlchemyModel

Activation = Literal["relu", "gelu"]


class Tagger(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()


@AlchemyModel.register("Tagger")
class AlchemyTagger(AlchemyModel):
    """An old model: built without arguments, reads its own table."""

    def __init__(self) -> None:
        super().__init__()
        self.model = Tagger(self.model_cfg["hidden"])

    def optim_params(self, **kwargs: Any) -> Any:
        return [{"params": self.model.parameters(), "lr": kwargs["head_lr"]}]


@AlchemyModel.register()
class Mlp(AlchemyModel):
    """A new model: the signature is the schema."""

    def __init__(
        self,
        *,
        hidden: int,
        dropout: float = 0.1,
        act: Activation = "relu",
        sizes: list[int] | None = None,
        bias: bool = True,
        window: tuple[int, int] = (1, 1),
        names: dict[str, str] | None = None,
        model_path: Path | None = None,
        ratio: int = 0.5,  # type: ignore[assignment]
        encoder: Any = None,
    ) -> None:
        super().__init__()


class Wide(Mlp):
    """Inherits its constructor."""
