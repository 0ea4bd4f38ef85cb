"""Image models: any network, numbers filled in from the task, losses, frozen and loaded weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional

from alchemy.context import Run
from alchemy.errors import AlchemyError
from alchemy.models import ImageClassifier, Segmenter
from alchemy.nn.pixel_loss import PixelLoss
from alchemy.plain_model import build_model
from tests.logs import warned

LABELS = ["a", "b", "c"]
CNN = {"type": "alchemy.nn.convnet.SmallCNN", "widths": [4, 8]}
GROUP = {**CNN, "norm": "group"}
UNET = {"type": "alchemy.nn.unet.UNet", "width": 4, "depth": 2, "norm": "group"}
VIT: dict[str, Any] = {
    "type": "transformers.ViTForImageClassification",
    "config": {
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 24,
        "image_size": 28,
        "patch_size": 7,
    },
}
CONVNEXT = {
    "type": "transformers.ConvNextForImageClassification",
    "config": {"hidden_sizes": [8, 16], "depths": [1, 1], "num_stages": 2, "patch_size": 2},
}
SEGFORMER = {
    "type": "transformers.SegformerForSemanticSegmentation",
    "config": {
        "num_encoder_blocks": 2,
        "hidden_sizes": [8, 16],
        "depths": [1, 1],
        "sr_ratios": [2, 1],
        "strides": [4, 2],
        "patch_sizes": [7, 3],
        "num_attention_heads": [1, 2],
        "mlp_ratios": [2, 2],
        "decoder_hidden_size": 16,
    },
}


class Users(nn.Module):
    """The network of a project, with torchvision's names, which returns a dict and flattens with `view`."""

    def __init__(self, num_classes: int = 10, in_channels: int = 3) -> None:
        super().__init__()
        self.conv, self.out = nn.Conv2d(in_channels, 4, 3), nn.Linear(4 * 26 * 26, num_classes)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return {"out": self.out(self.conv(x).view(len(x), -1))}


class Odd(Users):
    def forward(self, x: Tensor) -> Any:
        return (super().forward(x)["out"],)


@contextmanager
def running(model: Mapping[str, Any], *, channels: int = 1, criterion: Any = None, task: Any = ...) -> Iterator[Run]:
    name = "Segmenter" if "mask" in model else "ImageClassifier"
    table = {"type": f"alchemy.models.{name}", **{key: model[key] for key in model if key != "mask"}}
    with Run({"model": table, **({"criterion": criterion} if criterion else {})}) as run:
        run.task = SimpleNamespace(labels=LABELS, channels=channels) if task is ... else task
        torch.manual_seed(1)
        run.model = build_model(run)
        yield run


def batch_of(count: int = 6, channels: int = 1, size: int = 28) -> dict[str, Tensor]:
    draw = torch.Generator().manual_seed(3)
    mask = torch.randint(0, 3, (count, size, size), generator=draw)
    mask[0, :9] = 255
    return {
        "image": torch.randn(count, channels, size, size, generator=draw),
        "label_id": torch.arange(count) % 3,
        "mask": mask,
    }


def loss_in(run: Run, batch: Mapping[str, Tensor]) -> tuple[Tensor, Any]:
    found: tuple[Tensor, Any] = run.model.loss(run.model(batch), batch)
    return found


# -- networks
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("net", [CNN, VIT, CONVNEXT, {"type": f"{__name__}.Users"}], ids=lambda net: net["type"])
def test_any_network_is_sized_by_the_task_and_trains(net: dict[str, Any], channels: int) -> None:
    if net["type"].startswith("transformers"):
        pytest.importorskip("transformers", reason="the extra `text` is not installed")
    batch = batch_of(channels=channels)
    with running({"net": net}, channels=channels) as run:
        optim = torch.optim.AdamW(run.model.parameters(), lr=0.01)
        losses = []
        for _ in range(25):
            total, count = loss_in(run, batch)
            optim.zero_grad()
            (total / count).backward()
            optim.step()
            losses.append(total.item() / count)
        assert count == 6
        assert all(param.grad is not None and param.grad.isfinite().all() for param in run.model.parameters())
        assert losses[-1] < 0.7 * losses[0]


@pytest.mark.parametrize("net", [UNET, SEGFORMER], ids=lambda net: net["type"])
def test_pixels_get_logits_in_the_size_of_the_image(net: dict[str, Any]) -> None:
    if net is SEGFORMER:
        pytest.importorskip("transformers", reason="the extra `text` is not installed")
    batch = batch_of(2, 3, 45)
    with running({"net": net, "mask": True}, channels=3) as run:
        assert run.model(batch)["logits"].shape == (2, 3, 45, 45)
        total, count = loss_in(run, batch)
        total.backward()
        assert count == int((batch["mask"] != 255).sum())


def test_the_default_networks() -> None:
    with running({}) as run:
        assert isinstance(run.model, ImageClassifier) and type(run.model.module).__name__ == "SmallCNN"
    with running({"mask": True}) as run:
        assert isinstance(run.model, Segmenter) and type(run.model.module).__name__ == "UNet"


@pytest.mark.parametrize(
    ("net", "text"),
    [
        ({**CNN, "classes": 4}, "classes = 4, but the task has 3 classes; remove classes"),
        ({**CNN, "channels": 3}, "channels = 3, but the task has 1 channels; remove channels"),
        ({"type": f"{__name__}.Users", "num_classes": 9}, "num_classes = 9, but the task has 3 classes"),
        ({**VIT, "config": {"num_labels": 5}}, r"\[model.net.config\] num_labels = 5, but the task has 3 classes"),
        ({**VIT, "config": {"hiden_size": 5}}, "ViTConfig has no option 'hiden_size'; did you mean 'hidden_size'"),
        ({**CNN, "width": [4]}, "SmallCNN has no option 'width'; did you mean 'widths'"),
        ({**CNN, "norm": "layer"}, "norm must be one of 'batch', 'group', 'none'"),
        ({"widths": [4]}, "a network needs a 'type'; for example net = "),
        ({"type": "builtins.dict"}, "builtins.dict returned a dict, expected an nn.Module"),
        ({"type": "alchemy.nn.convnet.SmalCNN"}, "has no 'SmalCNN'; did you mean 'SmallCNN'"),
    ],
)
def test_a_network_that_does_not_fit_is_one_clear_error(net: dict[str, Any], text: str) -> None:
    if str(net.get("type")).startswith("transformers"):
        pytest.importorskip("transformers", reason="the extra `text` is not installed")
    with pytest.raises(AlchemyError, match=text), running({"net": net}):
        pass


def test_without_a_task_the_config_has_the_numbers() -> None:
    with running({"net": {**CNN, "classes": 4, "channels": 2}}, task=None) as run:
        assert run.model(batch_of(2, 2))["logits"].shape == (2, 4)
    with pytest.raises(AlchemyError, match="SmallCNN needs 'classes'"), running({"net": CNN}, task=None):
        pass


def test_images_and_outputs_that_do_not_fit() -> None:
    with running({"net": CNN}) as run:
        with pytest.raises(AlchemyError, match=r"does not take images of 3 channels.* set its number of channels to 3"):
            run.model(batch_of(2, 3))
        with pytest.raises(AlchemyError, match=r"the model reads 'image', but the batch has no such tensor; .* pixels"):
            run.model({"pixels": torch.zeros(1)})
    text = "Odd returned a tuple, expected the logits; return a tensor"
    with running({"net": {"type": f"{__name__}.Odd"}}) as run, pytest.raises(AlchemyError, match=text):
        run.model(batch_of(2))


# -- losses
@pytest.mark.parametrize(
    "model", [{"net": GROUP}, {"net": UNET, "mask": True}, {"net": UNET, "mask": True, "dice": 0.7}]
)
@pytest.mark.parametrize("sizes", [[3, 3], [1, 5], [1, 2, 3]])
def test_the_loss_does_not_depend_on_how_a_batch_is_cut(model: dict[str, Any], sizes: list[int]) -> None:
    batch = batch_of()
    with running({**model, "label_smoothing": 0.1}) as run:
        run.model.to(torch.float64)
        batch["image"] = batch["image"].double()
        total, count = loss_in(run, batch)
        rows = zip(*(value.split(sizes) for value in batch.values()), strict=True)
        parts = [loss_in(run, dict(zip(batch, row, strict=True))) for row in rows]
        torch.testing.assert_close(sum(part[0] for part in parts), total, rtol=1e-6, atol=1e-6)
        assert sum(part[1] for part in parts) == count


def test_the_loss_of_a_classifier_is_smoothed_cross_entropy_or_the_criterion() -> None:
    batch = batch_of()
    with running({"net": GROUP, "label_smoothing": 0.2}) as run:
        logits = run.model(batch)["logits"]
        expected = functional.cross_entropy(logits, batch["label_id"], label_smoothing=0.2, reduction="sum")
        torch.testing.assert_close(loss_in(run, batch), (expected, 6))
    with running({"net": GROUP}, criterion={"type": "alchemy.nn.losses.Focal"}) as run:
        assert isinstance(run.model, ImageClassifier) and type(run.model.criterion).__name__ == "Focal"


@pytest.mark.parametrize("dice", [0.0, 1.0])
def test_ignored_pixels_do_not_count(dice: float) -> None:
    batch, loss = batch_of(2), PixelLoss(dice=dice)
    logits = torch.randn(2, 3, 28, 28, requires_grad=True)
    total, count = loss(logits, batch["mask"])
    total.backward()
    ignored = (batch["mask"] == 255)[:, None].expand_as(logits)
    assert count == 2 * 28 * 28 - 9 * 28
    assert logits.grad is not None and not logits.grad[ignored].any() and logits.grad[~ignored].all()
    changed = torch.where(ignored, 50.0, logits.detach())
    torch.testing.assert_close(loss(changed, batch["mask"]), (total.detach(), count))


def test_a_mask_of_ignored_pixels_adds_nothing() -> None:
    logits = torch.randn(2, 3, 4, 4, requires_grad=True)
    total, count = PixelLoss(dice=1.0)(logits, torch.full((2, 4, 4), 255))
    total.backward()
    assert (total.item(), count) == (0, 0)
    assert logits.grad is not None and not logits.grad.any()


def test_dice_is_that_of_the_masks() -> None:
    mask = torch.tensor([[[0, 0], [1, 1]], [[0, 0], [0, 255]]])
    sure = torch.full((2, 3, 2, 2), -50.0)
    sure[:, 0] = 50  # everything is class 0: Dice 2/3 and 0 in the first image, 1 in the second
    total, count = PixelLoss(dice=1.0)(sure, mask)
    entropy, _ = PixelLoss()(sure, mask)
    assert (total - entropy).item() == pytest.approx(4 * (1 - (2 / 3 + 0) / 2), rel=1e-5)
    assert count == 7


def test_a_mask_value_that_is_no_class_is_named() -> None:
    mask = torch.zeros(2, 4, 4, dtype=torch.long)
    mask[1, 2, 2] = 7
    with pytest.raises(AlchemyError, match="the target 7 is out of range: the model has 3 classes"):
        PixelLoss()(torch.randn(2, 3, 4, 4), mask)


# -- frozen and loaded weights
def test_frozen_layers_and_their_batch_norm_statistics_do_not_change() -> None:
    batch = batch_of()
    with running({"net": CNN, "freeze": "stages.0"}) as run:
        before = {name: value.clone() for name, value in run.model.state_dict().items()}
        optim = torch.optim.SGD([p for p in run.model.parameters() if p.requires_grad], lr=0.1)
        for _ in range(2):
            run.model.train()
            loss_in(run, batch)[0].backward()
            optim.step()
            run.model.eval()
        changed = {name for name, value in run.model.state_dict().items() if not torch.equal(value, before[name])}
        assert changed and not any(name.startswith("stages.0") for name in changed)
        assert {"stages.1.0.weight", "stages.1.1.running_mean", "out.bias"} <= changed
    with (
        pytest.raises(AlchemyError, match="no parameter matches 'stem'"),
        running({"net": CNN, "freeze": "stem"}),
    ):
        pass


@pytest.mark.parametrize("kind", ["safetensors", "pt", "folder", "checkpoint dict"])
def test_matching_weights_of_a_file_are_loaded_and_reported(kind: str, tmp_path: Path) -> None:
    with running({"net": CNN}) as run:
        there = {name: torch.full_like(value, 2) for name, value in run.model.state_dict().items()}
    there |= {"out.weight": torch.zeros(9, 8), "old": torch.zeros(1)}
    path = tmp_path / ("model.safetensors" if kind in ("safetensors", "folder") else "net.pt")
    if path.suffix == ".pt":
        there = {f"module.{name}": value for name, value in there.items()}  # of DDP
        torch.save({"state_dict": there, "epoch": 3} if kind == "checkpoint dict" else there, path)
    else:
        save_file(there, path)
    with warned("INFO") as lines, running({"net": CNN, "load": str(tmp_path if kind == "folder" else path)}) as run:
        own = run.model.state_dict()
        assert {name for name, value in own.items() if not (value == 2).all()} == {"out.weight"}
    report = next(line for line in lines if "tensors loaded" in line)
    assert "1 unchanged, shapes differ: out.weight: saved [9, 8], here [3, 8]" in report
    assert "1 ignored, not in the model: old" in report


@pytest.mark.parametrize("net", [VIT, SEGFORMER, CONVNEXT], ids=lambda net: net["type"])
@pytest.mark.parametrize("kind", ["folder", "file", "record"])
def test_weights_saved_by_transformers_are_loaded(net: dict[str, Any], kind: str, tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason="the extra `text` is not installed")
    model = {"net": net, **({"mask": True} if net is SEGFORMER else {})}
    with running(model, channels=3) as run:
        write = run.model.save if kind == "record" else run.model.module.save_pretrained
        write(tmp_path)
        saved = run.model.state_dict()
    path = tmp_path / "model.safetensors" if kind == "file" else tmp_path
    more = SimpleNamespace(labels=[*LABELS, "d"], channels=3)
    with warned("INFO") as lines, running({**model, "load": str(path)}, task=more) as run:
        own = run.model.state_dict()
        other = {name for name in own if not torch.equal(own[name], saved[name])}
    assert len(other) == 2 and all("classifier" in name for name in other)
    report = next(line for line in lines if "tensors loaded" in line)
    assert f"{len(own) - 2} of {len(own)} tensors loaded\n2 unchanged, shapes differ: " in report
    assert "ignored" not in report


def test_a_backbone_saved_by_transformers_is_loaded(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="the extra `text` is not installed")
    backbone = transformers.ViTModel(transformers.ViTConfig(**VIT["config"], num_channels=1))
    backbone.save_pretrained(tmp_path)
    with warned("INFO") as lines, running({"net": VIT, "load": str(tmp_path)}) as run:
        inner = run.model.module.vit.state_dict()
        number = torch.rand(1)
    assert all(torch.equal(value, backbone.state_dict()[name]) for name, value in inner.items())
    with running({"net": VIT}):
        assert torch.equal(torch.rand(1), number)  # loading draws no random numbers
    assert any("2 unchanged, missing from the file: classifier.weight, classifier.bias" in line for line in lines)


def test_weights_of_the_checkpoint_replace_those_of_load(tmp_path: Path) -> None:
    with running({"net": CNN}) as run:
        run.model.save(tmp_path)
        saved = run.model.state_dict()
    with running({"net": CNN, "load": "gone.pt", "model_path": str(tmp_path)}) as run:
        assert all(torch.equal(value, saved[name]) for name, value in run.model.state_dict().items())


def test_files_that_cannot_be_loaded(tmp_path: Path) -> None:
    (tmp_path / "broken.safetensors").write_bytes(b"123")
    (tmp_path / "text.pt").write_text("hello")
    torch.save({"model": Users()}, tmp_path / "pickled.pt")
    torch.save({"other": torch.zeros(1)}, tmp_path / "other.pt")
    for name, text in [
        ("gone.pt", "file not found: .*gone.pt; set load to a .safetensors file"),
        ("broken.safetensors", "broken.safetensors is not a safetensors file"),
        ("text.pt", "text.pt is not a torch.save file"),
        ("pickled.pt", "contains Python objects, .* convert it with `alchemy checkpoint import`: .* --allow-pickle"),
        ("other.pt", "no weight in .*other.pt matches the model"),
    ]:
        with pytest.raises(AlchemyError, match=text), running({"net": CNN, "load": str(tmp_path / name)}):
            pass
