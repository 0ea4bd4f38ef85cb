"""Pipes that make the runs of a project slow, or fail."""

QUICK = ["--set", "sched.epochs=1", "--device", "-1"]
SLOW_PIPE = """import time
from alchemy.pipeline import EndStepPipeline

class Slow(EndStepPipeline):
    def __init__(self) -> None:
        super().__init__()

    def __call__(self, outputs, **kwargs):
        print("stepping", flush=True)
        time.sleep(0.05)
        return kwargs

class Boom(Slow):
    def __call__(self, outputs, **kwargs):
        raise ValueError("boom [x] {y}")
"""


def add_pipe(project, name):
    (project / "src" / "steps.py").write_text(SLOW_PIPE)
    (project / f"{name}.toml").write_text(f'base = "train.toml"\n[sched]\npipes = [{{ type = "src.steps.{name}" }}]\n')
    return f"{name}.toml"


def records(project, kind="train"):
    return sorted((project / "records" / kind).glob("*"))
