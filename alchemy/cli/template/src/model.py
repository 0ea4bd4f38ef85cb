"""The network."""

from torch import Tensor, nn


class PointClassifier(nn.Module):
    """A network with two hidden layers that maps a point to class scores."""

    def __init__(self, hidden: int = 64, num_classes: int = 3, num_inputs: int = 2) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(num_inputs, hidden),
            nn.GELU(),
            nn.Linear(hidden, hidden),
            nn.GELU(),
            nn.Linear(hidden, num_classes),
        )

    def forward(self, point: Tensor) -> Tensor:
        return self.layers(point)
