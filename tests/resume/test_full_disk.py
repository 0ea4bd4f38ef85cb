"""A full disk, temporary or permanent: training continues, and its end is reported correctly."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from alchemy.checkpoint.manifest import read_manifest
from alchemy.records.status import read_info
from tests.resume.compare import differences
from tests.resume.conftest import ROOT, Lab, record_of, text_of

TERM = int(signal.SIGTERM)
PIPES = [
    {"type": "tests.resume.parts.Draw"},
    {"type": "alchemy.pipeline.eval.SaveBest", "monitor": "loss", "mode": "min"},
]


def quiet(text: str) -> None:
    """Check for one console line about the log, and no traceback."""
    assert "Traceback" not in text and "Logging error" not in text
    assert text.count("run.log cannot be written; the run continues without it: [Errno 28]") == 1


def test_a_training_goes_on_while_the_disk_is_full(lab: Lab, tmp_path: Path) -> None:
    baseline, _ = lab.baseline()
    assert lab.start(tmp_path, faults=["disk_is_full_for_a_while"]) == 0, text_of(tmp_path)
    record = record_of(tmp_path)
    quiet((tmp_path / "log.txt").read_text())
    info = read_info(record)
    assert (info["status"], info["reason"], info["unsaved"]) == ("finished", "", "")
    log = (record / "run.log").read_text()  # it has waited
    assert re.search(r"could not write the checkpoint \S+: OSError: \[Errno 28\]", log)
    assert differences(baseline, record) == []


def test_a_disk_that_stays_full_is_told_and_the_rest_is_made_again(lab: Lab, tmp_path: Path) -> None:
    baseline, _ = lab.baseline()
    assert lab.start(tmp_path, faults=["disk_fills_up"]) == 0, text_of(tmp_path)
    record, text = record_of(tmp_path), (tmp_path / "log.txt").read_text()
    quiet(text)
    assert "the last state could not be saved: OSError: [Errno 28] No space left on device" in text
    assert "rows of metrics.jsonl could not be written" in text
    info = read_info(record)
    assert (info["status"], info["unsaved"]) == ("finished", "OSError: [Errno 28] No space left on device")
    assert info["reason"].startswith("the last state could not be saved")
    assert lab.command(tmp_path, "resume", str(record), "--device", "-1") == 0, text_of(tmp_path)
    assert differences(baseline, record) == []
    assert (read_info(record)["unsaved"], read_info(record)["reason"]) == ("", "")
    assert lab.command(tmp_path, "resume", str(record), "--device", "-1") == 2
    assert "has finished: nothing to resume" in text_of(tmp_path)


def test_a_signal_while_the_disk_is_full(lab: Lab, tmp_path: Path) -> None:
    baseline, _ = lab.baseline()
    assert lab.start(tmp_path, [["forward", 9, TERM]], faults=["disk_fills_up"]) == 128 + TERM
    record = record_of(tmp_path)
    quiet((tmp_path / "log.txt").read_text())
    reason = f"signal {TERM}: ended at the next step; the last state could not be saved: OSError: [Errno 28]"
    assert read_info(record)["status"] == "stopped"
    assert read_info(record)["reason"].startswith(reason)
    assert lab.resume(tmp_path) == 0, text_of(tmp_path)
    assert differences(baseline, record) == []


def test_a_best_checkpoint_that_was_not_kept_is_tried_again(lab: Lab, tmp_path: Path) -> None:
    """The best checkpoint during the full disk is lost and reported; the next best one is kept under all its names."""
    fault = "disk_is_full_for_a_while"
    assert lab.start(tmp_path, faults=[fault], task__evalpipes=PIPES, every=100) == 0, text_of(tmp_path)
    record, text = record_of(tmp_path), text_of(tmp_path)
    assert "could not write the checkpoint u8" in text
    best = read_info(record)["best"]
    assert read_manifest(record / "state" / "best").update == best["update"] > 10
    assert os.path.samefile(record / "state/best/model.safetensors", record / "checkpt/best/model.safetensors")


FILLED = """
import os, json
from pathlib import Path
from alchemy import run
from alchemy.pipeline import EndStepPipeline, SchedPipeline
from tests.resume.parts import config

@SchedPipeline.register()
class Fill(EndStepPipeline):
    def __call__(self, outputs, **kwargs):
        if self.run.train_sched.cur_step == 5:
            with open("filler", "ab", buffering=0) as file:
                for size in (2**16, 1):
                    try:
                        while file.write(b"x" * size):
                            pass
                    except OSError:
                        pass
        if self.run.train_sched.cur_step == 11 and then == "freed":
            os.unlink("filler")
        return kwargs

for then in ("freed", "full"):
    cfg = config("runs")
    cfg["sched"]["pipes"].insert(0, {"type": "__main__.Fill"})
    (result,) = run([cfg], device=[-1])
    print(json.loads(Path(result.record_dir, "record.json").read_text())["status"], result.status, then)
"""


@pytest.mark.skipif(shutil.which("unshare") is None, reason="needs unshare, to mount a small disk without root")
def test_a_real_disk(tmp_path: Path) -> None:
    """It is freed during the first training, and stays full in the second."""
    disk, script = tmp_path / "disk", tmp_path / "filled.py"
    disk.mkdir()
    script.write_text(FILLED)
    mount = f'mount -t tmpfs -o size=24m none {disk} && cd {disk} && exec "$@"'
    prefix = ["unshare", "--map-root-user", "--mount", "sh", "-c"]
    if subprocess.run([*prefix, mount, "sh", "true"], capture_output=True, check=False).returncode:
        pytest.skip("no disk can be mounted here")
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    words = [*prefix, mount, "sh", sys.executable, str(script)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, env=env, check=False)
    assert "Traceback" not in done.stdout + done.stderr
    freed, found, full = done.stdout.partition("finished finished freed\n")
    assert found and full.endswith("finished finished full\n"), done.stdout + done.stderr
    assert "the last state could not be saved" not in freed
    assert "the last state could not be saved" in full
