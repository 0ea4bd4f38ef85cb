"""Train a config of this folder and return its trace: its losses and a hash of every weight.

`NAME.toml` is a config, `NAME.json` its trace. `NAME.OTHER.toml` is the same training run written in another way, with
the same trace. Nothing here accesses a run directly: the input is the path of a config, the output a record folder.
"""

from __future__ import annotations

import contextlib
import hashlib
import platform
import random
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

import alchemy
from alchemy.cli import main
from alchemy.records.metrics_file import read_metrics
from tests.dist.start import torchrun

FOLDER = Path(__file__).parent
CONFIGS = sorted(path.stem for path in FOLDER.glob("*.toml"))
TOGETHER = [name for name in CONFIGS if name.startswith("processes")]  # what two processes train
WEIGHTS = {"weights": "model.safetensors", "average": "ema.safetensors"}  # the files of a state that have them

WORDS = {"a": "ein", "dog": "hund", "cat": "kater", "sees": "sieht", "runs": "läuft", "small": "kleiner"}


def file_of(config: str) -> Path:
    """Return the file of the trace of a config: `plain.other` has that of `plain`."""
    return FOLDER / f"{config.split('.')[0]}.json"


def trace(config: str, root: Path) -> dict[str, Any]:
    """Train a config of this folder in the empty folder `root`; return its trace."""
    write_data(root)
    path = FOLDER / f"{config}.toml"
    with contextlib.chdir(root), one_thread():
        if config in TOGETHER:
            torchrun(2, "alchemy", "run", path, "--device", -1, cwd=root)
        else:
            alchemy.run([path], device=[-1], raise_errors=True)
    (record,) = (root / "records").iterdir()
    return machine() | {"losses": losses_of(record)} | weights_of(record)


def machine() -> dict[str, str]:
    """Return everything except the config that determines the bits of a training run."""
    return {
        "torch": torch.__version__,
        "capability": torch.backends.cpu.get_cpu_capability(),
        "cpu": cpu_model(),  # libraries select kernels by it, independent of the capability
    }


def cpu_model() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()


def losses_of(record: Path) -> dict[str, list[float]]:
    """Return each series of losses: JSON keeps all digits of a float."""
    found: dict[str, list[float]] = defaultdict(list)
    for row in read_metrics(record / "metrics.jsonl"):
        for name, value in row["values"].items():
            if name.partition("/")[2].startswith("loss"):
                found[name].append(value)
    return dict(found)


def weights_of(record: Path) -> dict[str, dict[str, str]]:
    """Return a hash of the bytes of each tensor in the last state, by name."""
    files = {kind: record / "state" / "last" / name for kind, name in WEIGHTS.items()}
    return {
        kind: {name: hash_of(tensor) for name, tensor in sorted(load_file(path).items())}
        for kind, path in files.items()
        if path.is_file()
    }


def hash_of(tensor: torch.Tensor) -> str:
    head = f"{tensor.dtype} {list(tensor.shape)} "
    return hashlib.sha256(head.encode() + tensor.contiguous().numpy().tobytes()).hexdigest()


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Use one thread: sums are split among threads, so their bits depend on the number of threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def write_data(root: Path) -> None:
    """Write the files that the configs name: texts with classes, characters with tags, sentence pairs."""
    draw = random.Random(1)
    rows = [draw.sample(list(WORDS), draw.randint(1, 6)) for _ in range(20)]
    texts = [f"{'pet' if 'dog' in row or 'cat' in row else 'none'},{' '.join(row)}\n" for row in rows]
    (root / "texts.csv").write_text("label,text\n" + "".join(texts), "utf-8")
    tagged = ["小 B-NAME\n明 E-NAME\n在 O\n北 B-LOC\n京 E-LOC\n", "我 S-NAME\n去 O\n", "北 B-LOC\n京 E-LOC\n去 O\n"]
    (root / "tags.txt").write_text("\n".join(draw.choices(tagged, k=13)), "utf-8")
    (root / "text.en").write_text("".join(f"{' '.join(row)}\n" for row in rows), "utf-8")
    (root / "text.de").write_text("".join(f"{' '.join(WORDS[word] for word in row)}\n" for row in rows), "utf-8")
    sides = [word for side in ("en", "de") for word in ("--side", f"{side}={root / f'text.{side}'}")]
    assert main(["data", "build", str(root / "pairs"), *sides, "--joined", "--workers", "1"]) == 0
