"""Print the scores of images that no GAN made, as reference points: real images, noise and blurred images."""

import argparse

import numpy as np
import torch
from src.scores import Classifier, class_scores, frechet_distance
from torch import Tensor
from torch.nn.functional import avg_pool2d, interpolate

from alchemy.pipeline.processors import IdxImages


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="mnist", help="folder with the four idx files")
    parser.add_argument("--classifier", default="records/classifier", help="record of the classifier, or its folder")
    parser.add_argument("--count", type=int, default=10000, help="number of images")
    args = parser.parse_args()
    classify = Classifier(args.classifier)
    train, test = (read(f"{args.data}/{part}-images-idx3-ubyte.gz", args.count) for part in ("train", "t10k"))
    noise = torch.rand(train.shape, generator=torch.Generator().manual_seed(0)) * 2 - 1
    features, _ = describe(classify, test)
    print(f"{'images':<24}{'recognized':>12}{'frechet':>12}{'smallest class':>16}")
    for name, images in (
        ("test images", test),
        ("training images", train),
        ("blurred test images", interpolate(avg_pool2d(test, 4), scale_factor=4.0, mode="bilinear")),
        ("shuffled pixels", shuffle_pixels(test)),
        ("uniform noise", noise),
    ):
        own, probs = describe(classify, images)
        scores, distance = class_scores(probs), frechet_distance(own, features)
        print(f"{name:<24}{scores['recognized']:>12.4f}{distance:>12.3f}{scores['smallest_class']:>16.4f}")
    return 0


def read(path: str, count: int) -> Tensor:
    """Return images with values from -1 to 1."""
    return torch.from_numpy(IdxImages(path).images[:count].copy())[:, None].float() / 127.5 - 1


def shuffle_pixels(images: Tensor) -> Tensor:
    """Return images with the same pixels in another order, one for all images."""
    order = torch.randperm(images[0].numel(), generator=torch.Generator().manual_seed(0))
    return images.flatten(1)[:, order].view_as(images)


def describe(classify: Classifier, images: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Return the features and the probabilities of images."""
    parts = [classify(part) for part in images.split(250)]
    features, probs = (torch.cat(column).numpy() for column in zip(*parts))
    return features, probs


if __name__ == "__main__":
    raise SystemExit(main())
