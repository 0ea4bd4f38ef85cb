"""Trains the reviews, scores the best weights on reviews that were held out, and says what to type next."""

import os
import sys
import time
from pathlib import Path

# the networks are too small to be shared among threads, which would mostly wait for each other; read when torch starts
os.environ.setdefault("OMP_NUM_THREADS", "1")

from alchemy import prepare_cfg, run
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
test accuracy  {tested.ret["accuracy"]:.4f}, on 1,700 reviews that were held out
record         {os.path.join(folder, record)}
time           {time.monotonic() - started:.0f} s

what to type next:""")
    for line, meaning in next_steps(folder, called_from):
        print(f"  {line:<50} {meaning}")
    return 0


def next_steps(folder: str, called_from: Path) -> list[tuple[str, str]]:
    command = Path(sys.executable).with_name("alchemy")
    on_path = any(Path(entry) == command.parent for entry in os.environ.get("PATH", "").split(os.pathsep))
    activate = os.path.relpath(command.with_name("activate"), called_from)  # by now this is not the working folder
    enter = [] if on_path else [(f"source {activate}", "the command `alchemy`")]
    return [
        *enter,
        (f"cd {folder}", "a project: a config, and its parts in src/"),
        ("alchemy run reviews.toml --set optim.lr=0.02", "the same with another value"),
        ("alchemy run reviews.toml#textcnn", "the second model, a variant of the same file"),
        ("alchemy predict latest --out predictions.csv", "what the model says of each review"),
        ("alchemy data peek reviews.toml", "what flows between the data pipes"),
    ]


def failed(result: Exception) -> int:
    print(f"\nthe demo failed: {result}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
