"""Moving a batch of nested tensors to a device."""

import collections
import dataclasses

import pytest
import torch

from alchemy.data.device import batch_to_device

Pair = collections.namedtuple("Pair", "left right")


@dataclasses.dataclass(frozen=True)
class Sample:
    ids: torch.Tensor
    text: str


class Movable:
    def __init__(self):
        self.device = "cpu"

    def to(self, device):
        self.device = str(device)


def meta(value):
    return batch_to_device(value, "meta")


@pytest.mark.parametrize(
    ("batch", "tensor"),
    [
        (torch.ones(2), lambda b: b),
        ({"x": torch.ones(2), "text": "a"}, lambda b: b["x"]),
        ([torch.ones(2), None], lambda b: b[0]),
        ((1, (torch.ones(2),)), lambda b: b[1][0]),
        (Pair(torch.ones(2), 2.5), lambda b: b.left),
        (Sample(torch.ones(2), "a"), lambda b: b.ids),
        (collections.OrderedDict(x=torch.ones(2)), lambda b: b["x"]),
        (collections.defaultdict(lambda: torch.ones(0), x=torch.ones(2)), lambda b: b["x"]),
        ({"deep": [{"x": torch.ones(2)}]}, lambda b: b["deep"][0]["x"]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_every_tensor_moves_and_the_structure_stays(batch, tensor):
    moved = meta(batch)
    assert tensor(moved).device.type == "meta"
    assert tensor(batch).device.type == "cpu"
    assert type(moved) is type(batch)


def test_objects_with_a_to_of_their_own_are_asked():
    batch = Movable()
    assert meta({"m": batch})["m"] is batch
    assert batch.device == "meta"


def test_what_is_no_tensor_is_the_same_object():
    odd = object()
    assert meta([odd, b"x", True]) == [odd, b"x", True]


def test_a_packed_sequence_moves():
    packed = torch.nn.utils.rnn.pack_sequence([torch.ones(3), torch.ones(2)])
    assert meta(packed).data.device.type == "meta"
