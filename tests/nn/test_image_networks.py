"""The convolutional networks take images of any size, and train, save and load like any module."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from alchemy.nn.conv_blocks import make_norm
from alchemy.nn.convnet import SmallCNN
from alchemy.nn.convnext import ConvNeXt, ConvNeXtBlock
from alchemy.nn.resnet import ResNet
from alchemy.nn.unet import UNet

CLASSES = 5
Make = Callable[..., nn.Module]
NETS: dict[str, Make] = {
    "cnn": lambda **o: SmallCNN(classes=CLASSES, widths=[4, 8, 8], dropout=0.1, **o),
    "cnn-group": lambda **o: SmallCNN(classes=CLASSES, widths=[8, 12], convs=1, norm="group", **o),
    "cnn-none": lambda **o: SmallCNN(classes=CLASSES, widths=[4], norm="none", **o),
    "resnet": lambda **o: ResNet(classes=CLASSES, widths=[4, 8, 8], blocks=[1, 2, 1], **o),
    "resnet-small": lambda **o: ResNet(
        classes=CLASSES, widths=[4, 8], blocks=[1, 1], stem="small", norm="group", bottleneck=True, **o
    ),
    "convnext": lambda **o: ConvNeXt(classes=CLASSES, widths=[4, 8, 8], blocks=[1, 2, 1], drop_path=0.5, **o),
    "convnext-small": lambda **o: ConvNeXt(classes=CLASSES, widths=[4, 8], blocks=[1, 1], patch=1, scale=0, **o),
    "unet": lambda **o: UNet(classes=CLASSES, width=4, depth=3, dropout=0.1, **o),
    "unet-transposed": lambda **o: UNet(
        classes=CLASSES, width=4, depth=2, max_width=6, convs=1, norm="group", up="transposed", **o
    ),
    "unet-flat": lambda **o: UNet(classes=CLASSES, width=4, depth=0, norm="none", **o),
}
INDEPENDENT = ["cnn-group", "cnn-none", "resnet-small", "convnext-small", "unet-transposed", "unet-flat"]
SIZES = [(1, 1), (2, 3), (7, 5), (28, 28), (33, 31), (64, 45)]
each = pytest.mark.parametrize("name", NETS)


def build(name: str, channels: int = 3) -> nn.Module:
    torch.manual_seed(1)
    return NETS[name](channels=channels)


def images(batch: int = 3, channels: int = 3, size: tuple[int, int] = (17, 22)) -> Tensor:
    return torch.randn(batch, channels, *size, generator=torch.Generator().manual_seed(2))


def shape_of(name: str, batch: int, size: tuple[int, int]) -> tuple[int, ...]:
    return (batch, CLASSES, *size) if name.startswith("unet") else (batch, CLASSES)


@each
@pytest.mark.parametrize("channels", [1, 3, 4])
def test_logits_for_any_size_and_number_of_channels(name: str, channels: int) -> None:
    net = build(name, channels).eval()
    with torch.no_grad():
        for size in SIZES:
            logits = net(images(2, channels, size))
            assert logits.shape == shape_of(name, 2, size)
            assert logits.isfinite().all()


@each
def test_every_parameter_gets_a_finite_gradient(name: str) -> None:
    net = build(name)
    net(images()).square().sum().backward()
    for param in net.parameters():
        assert param.grad is not None and param.grad.isfinite().all()
        assert param.grad.is_contiguous()  # in the layout of the parameter, as DDP expects


@each
def test_a_seed_determines_the_network(name: str) -> None:
    one, two = build(name).state_dict(), build(name).state_dict()
    assert all(torch.equal(one[key], two[key]) for key in one)


@each
def test_evaluation_is_deterministic_and_does_not_depend_on_the_other_images(name: str) -> None:
    net, image = build(name), images(4)
    net(image)  # changes the statistics of BatchNorm
    net.eval()
    whole = net(image)
    assert torch.equal(whole, net(image))
    torch.testing.assert_close(net(image[1:2]), whole[1:2], rtol=1e-4, atol=1e-5)


@each
def test_the_state_dict_restores_the_network(name: str) -> None:
    net, other = build(name), NETS[name](channels=3)
    net(images())
    other.load_state_dict(net.state_dict())
    assert torch.equal(net.eval()(images()), other.eval()(images()))


@pytest.mark.parametrize("name", INDEPENDENT)
def test_without_batch_norm_an_image_does_not_depend_on_its_batch_in_training(name: str) -> None:
    net, image = build(name).double(), images(4).double()
    torch.testing.assert_close(net(image), torch.cat([net(part) for part in image.split([1, 3])]))


@each
def test_the_memory_layout_of_the_image_does_not_matter(name: str) -> None:
    net, image = build(name).double().eval(), images().double()
    torch.testing.assert_close(net(image.contiguous(memory_format=torch.channels_last)), net(image))


@pytest.mark.parametrize(("channels", "groups"), [(1, 1), (4, 1), (8, 1), (16, 2), (20, 2), (96, 12), (100, 4)])
def test_groups_divide_the_channels(channels: int, groups: int) -> None:
    norm = make_norm("group", channels)
    assert isinstance(norm, nn.GroupNorm) and norm.num_groups == groups


def test_stochastic_depth_keeps_the_mean() -> None:
    torch.manual_seed(3)
    block = ConvNeXtBlock(4, drop_path=0.5)
    branch = torch.ones(4000, 4, 1, 1)
    kept = block._skip(branch)
    assert kept.unique().tolist() == [0, 2]
    assert kept.mean().item() == pytest.approx(1, abs=0.1)
    assert torch.equal(block.eval()._skip(branch), branch)


# -- published architectures
@pytest.mark.parametrize(
    ("make", "count"),
    [
        (lambda: ResNet(classes=1000), 11_689_512),  # ResNet-18, ResNet-50 and ConvNeXt-T
        (lambda: ResNet(classes=1000, blocks=[3, 4, 6, 3], bottleneck=True), 25_557_032),
        (lambda: ConvNeXt(classes=1000), 28_589_128),
    ],
)
def test_the_published_number_of_parameters(make: Callable[[], nn.Module], count: int) -> None:
    with torch.device("meta"):
        assert sum(param.numel() for param in make().parameters()) == count


@pytest.mark.parametrize("bottleneck", [False, True])
def test_a_resnet_computes_what_that_of_transformers_computes(bottleneck: bool) -> None:
    transformers = pytest.importorskip("transformers", reason="the extra `text` is not installed")
    widths, expansion = [8, 16], 4 if bottleneck else 1
    config = transformers.ResNetConfig(
        embedding_size=8,
        hidden_sizes=[width * expansion for width in widths],
        depths=[2, 1],
        layer_type="bottleneck" if bottleneck else "basic",
        num_labels=CLASSES,
    )
    theirs = transformers.ResNetForImageClassification(config).eval()
    ours = ResNet(classes=CLASSES, widths=widths, blocks=[2, 1], bottleneck=bottleneck).eval()
    copy_in_order(theirs, ours)
    torch.testing.assert_close(ours(images()), theirs(images()).logits)


def test_a_convnext_computes_what_that_of_transformers_computes() -> None:
    transformers = pytest.importorskip("transformers", reason="the extra `text` is not installed")
    config = transformers.ConvNextConfig(
        hidden_sizes=[8, 16],
        depths=[2, 1],
        num_stages=2,
        layer_scale_init_value=1.0,
        layer_norm_eps=1e-6,
        num_labels=CLASSES,
    )
    theirs = transformers.ConvNextForImageClassification(config).eval()
    ours = ConvNeXt(classes=CLASSES, widths=[8, 16], blocks=[2, 1], scale=1).eval()
    copy_in_order(theirs, ours)
    image = images(size=(32, 40))  # of whole patches: ours pads others
    torch.testing.assert_close(ours(image), theirs(image).logits)


def copy_in_order(source: nn.Module, target: nn.Module) -> None:
    """Copy the layers of one network into another that has the same layers in the order of execution."""
    for there, here in zip(calls(source), calls(target), strict=True):
        here.load_state_dict(there.state_dict())


def calls(net: nn.Module) -> list[nn.Module]:
    """Return the layers with weights in the order in which they are called."""
    kinds = (nn.Conv2d, nn.Linear, nn.BatchNorm2d)
    order: list[nn.Module] = []
    hooks = [m.register_forward_hook(lambda m, *_: order.append(m)) for m in net.modules() if isinstance(m, kinds)]
    with torch.no_grad():
        net(images())
    for hook in hooks:
        hook.remove()
    return order
