"""Every stateful part resumes exactly: schedules, optimizers, averages, precision, rules, samplers."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from alchemy.checkpoint.manifest import checkpoints, read_manifest
from alchemy.records.metrics_file import comparable
from tests.resume.compare import differences
from tests.resume.conftest import Lab, record_of, text_of
from tests.resume.parts import config

KILL, SLOW = signal.SIGKILL, pytest.mark.slow
PIPES: list[dict[str, Any]] = config("")["sched"]["pipes"]
RESET = [*PIPES, {"type": "tests.resume.parts.ResetES", "step": 6}]
SCORES: list[dict[str, Any]] = [
    {"type": "tests.resume.parts.Draw"},
    {"type": "alchemy.pipeline.eval.SaveBest", "monitor": "drawn"},
    {"type": "alchemy.pipeline.eval.SaveBest", "monitor": "loss", "mode": "min", "name": "lowest", "min_delta": 0.01},
    {"type": "alchemy.pipeline.eval.EarlyStop", "monitor": "drawn", "patience": 3},
]


def sched(kind: str, **more: Any) -> dict[str, Any]:
    return {"sched": {"type": f"alchemy.sched.{kind}", "epochs": 3, "pipes": PIPES, **more}}


def optim(kind: str, **more: Any) -> dict[str, Any]:
    return {"optim": {"type": kind, "lr": 0.05, **more}}


def stop(kind: str, **more: Any) -> dict[str, Any]:
    return {"stop": {"any": [{"type": f"alchemy.stop.{kind}", **more}]}}


KINDS: dict[str, dict[str, Any]] = {
    "constant": sched("Constant", num_warmup_steps=4),
    "step": sched("Step", step_size=3, unit="step"),
    "step-epoch": sched("Step", step_size=1, unit="epoch"),
    "multi-step": sched("MultiStep", milestones=[4, 9]),
    "exponential": sched("Exponential", gamma=0.9),
    "cosine": sched("Cosine", num_warmup_steps=0.2),
    "cosine-restarts": sched("Cosine", t_0=4),
    "polynomial": sched("Polynomial", power=2.0),
    "inverse-sqrt": sched("InverseSqrt", num_warmup_steps=3),
    "plateau": sched("Plateau", monitor="dev/drawn", patience=0, factor=0.5),
    "reset": sched("LineWarmup", num_warmup_steps=3) | {"sched__pipes": RESET},
    "part-epochs": {"sched__epochs": 2.4},
    "updates": {"sched": {"type": "alchemy.sched.LineWarmup", "num_training_steps": 11, "pipes": PIPES}},
    "sgd": optim("alchemy.optim.SGD", momentum=0.9, nesterov=True),
    "torch-sgd": optim("torch.optim.SGD", momentum=0.9),
    "adam": optim("alchemy.optim.Adam"),
    "hf-adamw": optim("alchemy.optim.HFAdamW"),
    "adafactor": optim("alchemy.optim.Adafactor"),
    "rmsprop": optim("torch.optim.RMSprop", max_grad_norm=0.5),
    "swa": {"ema": {"type": "alchemy.average.SWA", "start": 0.5}},
    "no-average": {"ema": {"decay": 0.5, "start": 7, "every": 2}},
    "bf16": {"precision": {"dtype": "bf16"}},
    "fp16": {"precision": {"dtype": "fp16", "scale": 2.0**40, "scale_every": 3}},
    "fp16-window": {"precision": {"dtype": "fp16", "scale": 2.0**40, "scale_every": 3}, "period": 3},
    "patience": stop("Patience", monitor="dev/calls", mode="min", patience=3),
    "patience-log": stop("Patience", monitor="train/newest", mode="min", patience=2),
    "target": stop("Target", monitor="dev/calls", value=4),
    "tokens": stop("Tokens", tokens=19),
    "stop-updates": stop("Updates", updates=8),
    "all-rules": {
        "stop": {
            "all": [
                {"type": "alchemy.stop.Updates", "updates": 4},
                {"type": "alchemy.stop.Target", "monitor": "dev/calls", "value": 3},
            ]
        }
    },
    "lazy-sampler": {
        "task__datasets": {
            "train": {
                "pipes": [{"type": "tests.resume.parts.Noisy"}],
                "batch_size": 2,
                "sampler": {"type": "tests.resume.parts.LazySampler"},
            },
            "dev": {"pipes": [{"type": "tests.resume.parts.Noisy", "count": 4}], "batch_size": 2},
        }
    },
    "whole-batches": {
        "task__datasets": {
            "train": {
                "pipes": [{"type": "tests.toy.Points", "count": 10}],
                "batch_size": 3,
                "drop_last": True,
                "shuffle": True,
            },
            "dev": {"pipes": [{"type": "tests.toy.Points", "count": 4}], "batch_size": 2},
        },
        "model": {"type": "tests.toy.Line", "dropout": 0.3},
        "sched__pipes": [{"type": "tests.resume.parts.ShakeBE"}, {"type": "tests.resume.parts.PassES"}],
    },
    "logs-rarely": {"log_every": 4},
    "best-pipes": {"task__evalpipes": SCORES, "checkpoint": {"every": 3}},
    "best-of-max": {"checkpoint": {"every": 3, "monitor": "dev/drawn", "mode": "max", "best": 3, "last": 1}},
    "adagrad": optim("alchemy.optim.Adagrad"),
}
SAMPLE = ("step-epoch", "plateau", "reset", "part-epochs", "adafactor", "fp16-window", "patience-log", "lazy-sampler")
PLACES = [("end_step", 6), ("end_step", 3), ("begin_epoch", 3), ("end_step", 8), ("end_epoch", 1), ("begin_epoch", 2)]


def cases() -> list[Any]:
    """One place for each kind, in turn; all of them in the slow tests."""
    found = []
    for turn, kind in enumerate(KINDS):
        for number, place in enumerate(PLACES):
            marks = () if kind in SAMPLE and number == turn % 2 else (pytest.mark.slow,)
            found.append(pytest.param(kind, place, id=f"{kind}-{place[0]}-{place[1]}", marks=marks))
    return found


@pytest.mark.parametrize(("kind", "place"), cases())
def test_a_kind(lab: Lab, tmp_path: Path, kind: str, place: tuple[str, int]) -> None:
    baseline, seen = lab.baseline(**KINDS[kind])
    if seen.get(place[0], 0) < place[1]:
        pytest.skip(f"{kind} ends before")
    assert lab.start(tmp_path, [[*place, KILL]], **KINDS[kind], checkpoint__asynchronous=False) == -KILL
    assert lab.resume(tmp_path) == 0, text_of(tmp_path)
    assert differences(baseline, record_of(tmp_path)) == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["patience", "patience-log", "target", "tokens", "stop-updates", "all-rules"])
def test_a_rule_ends_the_training_where_it_does_without_a_resume(lab: Lab, kind: str) -> None:
    record, seen = lab.baseline(**KINDS[kind])
    assert 3 < seen["forward"] < 15
    assert comparable(record / "metrics.jsonl")[-1]["step"] == seen["forward"] - 1


@pytest.mark.parametrize(
    "place", ["end_epoch", "finish", *(pytest.param(p, marks=SLOW) for p in ("disk", "eval", "row"))]
)
@pytest.mark.parametrize(
    "kind", ["stop-updates", *(pytest.param(kind, marks=SLOW) for kind in ("patience", "part-epochs"))]
)
def test_killed_after_a_rule_has_ended_it(lab: Lab, tmp_path: Path, kind: str, place: str) -> None:
    """At the last pass of a place: only the end of the run is left."""
    changes = {**KINDS[kind], "every": 1}
    baseline, seen = lab.baseline(**changes)
    assert lab.start(tmp_path, [[place, seen[place], KILL]], **changes) == -KILL
    assert lab.resume(tmp_path) == 0, text_of(tmp_path)
    assert differences(baseline, record_of(tmp_path)) == []


def test_the_best_ones_are_kept_across_a_resume(lab: Lab, tmp_path: Path) -> None:
    changes = KINDS["best-of-max"]
    baseline, _ = lab.baseline(**changes)
    assert lab.start(tmp_path, [["end_step", 10, KILL]], **changes) == -KILL
    assert lab.resume(tmp_path) == 0, text_of(tmp_path)
    kept = [
        sorted(
            (manifest.value or 0.0, manifest.update) for manifest in map(read_manifest, checkpoints(record / "state"))
        )
        for record in (baseline, record_of(tmp_path))
    ]
    assert kept[0] == kept[1]
    assert len(kept[0]) in (3, 4)


@pytest.mark.parametrize(
    "place", [("scored", 3), *(pytest.param((name, 4), marks=SLOW) for name in ("scored", "end_step", "disk"))]
)
def test_the_best_weights_under_a_name_are_the_same_after_a_resume(
    lab: Lab, tmp_path: Path, place: tuple[str, int]
) -> None:
    changes = KINDS["best-pipes"]
    baseline, _ = lab.baseline(**changes)
    assert lab.start(tmp_path, [[*place, KILL]], **changes) == -KILL
    assert lab.resume(tmp_path) == 0, text_of(tmp_path)
    assert differences(baseline, record_of(tmp_path)) == []
    for name in ("best", "lowest"):
        files = (f"{name}_info.json", f"checkpt/{name}/model.safetensors", f"checkpt/{name}/ema.safetensors")
        for file in files:
            assert (baseline / file).read_bytes() == (record_of(tmp_path) / file).read_bytes()


@pytest.mark.parametrize("before", [0, 2])
def test_the_number_of_workers_does_not_matter(lab: Lab, tmp_path: Path, before: int) -> None:
    baseline, _ = lab.baseline(workers=0)
    assert lab.start(tmp_path, [["forward", 8, KILL]], workers=before) == -KILL
    options = {"overrides": [f"task.datasets.{split}.num_workers={2 - before}" for split in ("train", "dev")]}
    assert lab.resume(tmp_path, **options) == 0, text_of(tmp_path)
    assert differences(baseline, record_of(tmp_path)) == []
