"""Benchmark loading and checking configs against tomllib on the same text."""

from __future__ import annotations

import tempfile
import time
import tomllib
from collections.abc import Callable
from pathlib import Path

from alchemy.config.check import check_all
from alchemy.config.load import load_family
from bench.measure import Figure, ratio

HEAD = 'tag = "x"\nrunner = "alchemy.runner.Trainer"\n'
TASK = '[task]\ntype = "alchemy.tasks.Classification"\n'
OPTIM = '[optim]\ntype = "torch.optim.SGD"\nlr = 0.1\n'
SHAPES: dict[str, str] = {
    "1,000,000 numbers in a list": f"x = [{', '.join(str(i % 10) for i in range(1_000_000))}]\n",
    "30,000 tables": "".join(f"[t{i}]\nx = {i}\n" for i in range(30_000)),
    "100,000 keys in a table": '[model]\ntype = "torch.nn.Linear"\n' + "".join(f"k{i} = {i}\n" for i in range(100_000)),
    "30,000 splits": TASK + "".join(f"[task.datasets.s{i}]\nbatch_size = {i}\n" for i in range(30_000)),
    "50,000 plugins": "".join(f'[[plugins]]\ntype = "alchemy.plugins.Seeding"\nseed = {i}\n' for i in range(50_000)),
    "100,000 inline tables": f"x = [{', '.join(['{a = 1}'] * 100_000)}]\n",
    "a 3 MB string": f'x = "{"word " * 600_000}"\n',
    "1,500 variants": OPTIM + "".join(f"[variant.v{i}.optim]\nlr = 0.{i:05d}1\n" for i in range(1500)),
}

BOUND = 3.0  # times tomllib


def figures(quick: bool = False) -> list[Figure]:
    """Return the ratios of CPU time: loading and checking a file with all of its variants / tomllib."""
    made = []
    with tempfile.TemporaryDirectory() as folder:
        for number, (name, text) in enumerate(SHAPES.items()):
            file = Path(folder) / f"{number}.toml"
            file.write_text(HEAD + text)
            _check(file)  # warm up: reads the sources of the parts
            pairs = [
                (_seconds(lambda: _check(file)), _seconds(lambda: tomllib.loads(file.read_text())))  # noqa: B023
                for _ in range(3 if quick else 40)
            ]
            made.append(ratio(f"check / tomllib: {name}", pairs, BOUND))
    return made


def _check(file: Path) -> None:
    check_all(load_family(file), strict=False, roots=(".",))


def _seconds(function: Callable[[], object]) -> float:
    start = time.process_time()
    function()
    return time.process_time() - start
