"""Benchmark reports: writing the page of three long runs, its size, and opening it in Chromium.

The command runs as a process and is timed as a user sees it: the first time, when it indexes the records, and later.
Runs with 1e5 points each have a bound both times. Real runs log 7 values per row; their first time has no bound.
Opening is the time until all charts are drawn, in a browser that is already running.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.measure import Figure, absolute
from bench.record_generator import RecordGenerator
from bench.records import USER_ENV
from bench.start import ROOT, process_seconds

RUNS, ROWS, QUICK_ROWS = 3, 100_000, 2_000
ROUNDS, QUICK_ROUNDS = 12, 1
PROGRAM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


def figures(quick: bool = False) -> list[Figure]:
    rows, rounds = (QUICK_ROWS, QUICK_ROUNDS) if quick else (ROWS, ROUNDS)
    made = []
    for real, values in ((False, "1 value"), (True, "7 values")):
        with tempfile.TemporaryDirectory() as name:
            what = f"report of {RUNS} runs with {rows:,} rows of {values}"
            made += _measure(Path(name), what, rows, rounds, real=real)
    return made


def _measure(project: Path, what: str, rows: int, rounds: int, *, real: bool) -> list[Figure]:
    (project / ".alchemy").mkdir()
    runs, page = _write_runs(project, rows, real=real), project / "report.html"
    command = [sys.executable, "-m", "alchemy", "report", *runs, "--out", page.name]
    subprocess.run(command, cwd=project, env=USER_ENV | {"PYTHONPATH": str(ROOT)}, check=True, capture_output=True)
    first = [_write_first(command, project) for _ in range(max(1, rounds // 4))]
    times = [process_seconds(command, project, USER_ENV)[0] for _ in range(rounds)]
    made = [
        absolute(f"{what}, indexed and written", first, 3.0, "s"),
        absolute(f"{what}, written", times, 3.0, "s"),
        absolute(f"{what}, size", [page.stat().st_size / 1e6], 2.0, "MB"),
    ]
    if importlib.util.find_spec("playwright"):
        made.append(absolute(f"{what}, opened in Chromium", _open(page, rounds), 1.0, "s"))
    return made


def _write_first(command: list[str], project: Path) -> float:
    shutil.rmtree(project / ".alchemy")
    (project / ".alchemy").mkdir()
    return process_seconds(command, project, USER_ENV)[0]


def _write_runs(project: Path, rows: int, *, real: bool) -> list[str]:
    """Write runs with different configs, so that each has curves of its own; return their folders."""
    name = RecordGenerator(project / "records").write_long(rows, real=real)
    folder = project / "records" / name
    found = [str(folder)]
    for number in range(1, RUNS):
        copy = folder.with_name(name.replace(".999999", f".{number:06}"))
        shutil.copytree(folder, copy)
        info = json.loads((copy / "record.json").read_text()) | {"id": copy.name, "fold_hash": f"{number}"}
        (copy / "record.json").write_text(json.dumps(info))
        found.append(str(copy))
    return found


def _open(page: Path, rounds: int) -> list[float]:
    from playwright.sync_api import sync_playwright

    times = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=PROGRAM, args=["--no-sandbox"])
        for _ in range(rounds):
            tab = browser.new_page()
            begin = time.perf_counter()
            tab.goto(page.as_uri())
            tab.wait_for_selector("footer")
            times.append(time.perf_counter() - begin)
            tab.close()
        browser.close()
    return times
