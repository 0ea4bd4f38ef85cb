"""Train on the reviews, test the best weights on held-out reviews, and list the records and what to try next."""

import os
import sys
import time
from pathlib import Path

# the networks are too small to benefit from several threads; torch reads this when it is imported
os.environ.setdefault("OMP_NUM_THREADS", "1")

from alchemy import prepare_cfg, run
from alchemy.cli import main as alchemy
from alchemy.cli.derived_config import best_checkpoint, derive_test

HERE = Path(__file__).resolve().parent


def main() -> int:
    started, called_from = time.monotonic(), Path.cwd()
    os.chdir(HERE)
    [trained] = run(["reviews.toml"], device=[-1], desc="the demo")
    if isinstance(trained, Exception):
        return failed(trained)
    record = trained.record_dir
    test = derive_test(prepare_cfg(record / "cfg.toml"), best_checkpoint(record)).document
    [tested] = run([test], device=[-1], desc=f"test of {record}")
    if isinstance(tested, Exception):
        return failed(tested)
    folder = os.path.relpath(HERE, called_from)
    print(f"""
test accuracy  {tested.ret["accuracy"]:.4f}, on 1,700 held-out reviews
record         {os.path.join(folder, record)}
time           {time.monotonic() - started:.0f} s

$ alchemy ls""")
    alchemy(["ls"])
    print("\ntry next:")
    for line, meaning in next_steps(folder, called_from):
        print(f"  {line:<50} {meaning}")
    return 0


def next_steps(folder: str, called_from: Path) -> list[tuple[str, str]]:
    command = Path(sys.executable).with_name("alchemy")
    on_path = any(Path(entry) == command.parent for entry in os.environ.get("PATH", "").split(os.pathsep))
    activate = os.path.relpath(command.with_name("activate"), called_from)  # the working folder has changed since
    enter = [] if on_path else [(f"source {activate}", "make the command `alchemy` available")]
    return [
        *enter,
        (f"cd {folder}", "go to the project: a config, and its parts in src/"),
        ("alchemy run reviews.toml --set optim.lr=0.02", "train with another learning rate"),
        ("alchemy rerun last", "repeat the run from its record: the numbers must be the same"),
        ("alchemy run reviews.toml#textcnn", "train the second model, a variant in the same file"),
        ("alchemy predict latest --out predictions.csv", "write the model's predictions"),
        ("alchemy data peek reviews.toml", "print the samples between the data pipes"),
    ]


def failed(result: Exception) -> int:
    print(f"\nthe demo failed: {result}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
