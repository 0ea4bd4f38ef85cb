"""Files of lines written by a thread: errors never reach the loop, and counts are exact."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alchemy.records import jsonl_writer
from alchemy.records.jsonl_writer import JsonlWriter, count_lines, drop_superseded, read_lines


def numbers(path: Path) -> list[Any]:
    return [row and row["n"] for _, row in read_lines(path)]


def test_rows_are_written_in_order_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "日志.jsonl"
    for gen in range(2):
        log = JsonlWriter(path)
        for n in range(100):
            assert log.append({"n": 100 * gen + n, "text": "词"})
        assert log.lines == 100 * (gen + 1)
        assert log.flush()
        assert numbers(path) == list(range(100 * (gen + 1)))
        assert log.sync()
        log.close()
    assert (log.dropped, log.error, count_lines(path)) == (0, "", (200, False))
    assert "词" in path.read_text("utf-8")
    assert not log.append({"n": 1})
    assert (log.dropped, log.error, log.lines) == (1, "the file is closed", 200)
    assert not log.sync()
    log.close()


def test_rows_reach_the_system_without_being_asked_for(tmp_path: Path) -> None:
    """A killed process has written everything except its last second."""
    code = (
        "import os, sys, time; from pathlib import Path; from alchemy.records.jsonl_writer import JsonlWriter\n"
        "path = Path(sys.argv[1]); log = JsonlWriter(path); log.append({'n': 1})\n"
        "while not path.stat().st_size: time.sleep(0.01)\n"
        "os.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "a")], check=False, timeout=60)
    assert done.returncode == -9
    assert numbers(tmp_path / "a") == [1]


def test_a_program_that_forgets_to_close_loses_nothing(tmp_path: Path) -> None:
    code = "import sys; from pathlib import Path; from alchemy.records.jsonl_writer import JsonlWriter\n"
    code += "JsonlWriter(Path(sys.argv[1])).append({'n': 1})"
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "a")], check=True, timeout=60)
    assert numbers(tmp_path / "a") == [1]


@given(st.lists(st.integers(), min_size=1, max_size=5), st.integers(0, 200))
def test_a_file_cut_anywhere_is_gone_on_with(tmp_path_factory: Any, rows: list[int], cut: int) -> None:
    path = tmp_path_factory.mktemp("cut") / "a"
    whole = "".join(json.dumps({"n": n}) + "\n" for n in rows).encode()
    path.write_bytes(whole[:cut])
    log = JsonlWriter(path)
    log.append({"n": -1})
    log.close()
    assert log.lines == count_lines(path)[0] == len(path.read_bytes().splitlines())
    kept = whole[:cut].count(b"\n")
    assert [n for n in numbers(path) if n is not None] in ([*rows[:kept], -1], [*rows[: kept + 1], -1])


def test_a_full_disk_is_tried_again_until_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    room = 10
    write = os.write

    def scarce(file: int, data: bytes) -> int:
        nonlocal room
        if not room:
            raise OSError(28, "No space left on device")
        size = write(file, data[:room])
        room -= size
        return size

    monkeypatch.setattr(jsonl_writer.os, "write", scarce)
    log = JsonlWriter(tmp_path / "a")
    log.append({"n": 1})
    log.append({"n": 2})
    assert not log.flush()
    assert (log.dropped, log.lines) == (0, 2)
    room = 1000
    assert log.flush()
    assert numbers(tmp_path / "a") == [1, 2]
    room = 3
    log.append({"n": 3})
    log.close()
    assert (log.dropped, log.lines) == (1, 2)
    assert "No space left" in log.error


@pytest.fixture
def hanging(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A file that accepts 64 KiB and then blocks."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDWR)
    monkeypatch.setattr(jsonl_writer, "open_to_append", lambda path: os.open(path, os.O_WRONLY))  # it rejects a FIFO
    yield path
    os.set_blocking(reader, False)
    while True:  # releases blocked writers
        try:
            os.read(reader, 2**20)
        except BlockingIOError:
            break
    os.close(reader)


def test_a_disk_that_hangs_blocks_nobody(hanging: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jsonl_writer, "PATIENCE_SECONDS", 0.05)
    log = JsonlWriter(hanging, capacity=10)
    assert log.append({"text": "x" * 100_000})
    assert not log.flush(timeout=0.05)
    taken = [log.append({"n": n}) for n in range(20)]
    assert taken == [True] * 9 + [False] * 11
    assert (log.dropped, log.lines, log.error) == (11, 10, "the disk is too slow")
    log.close()
    assert (log.dropped, log.lines) == (21, 0)


@pytest.mark.parametrize("row", [{"n": object()}, {"n": "\udc80"}])
def test_what_is_no_json_is_dropped_and_counted(tmp_path: Path, row: Any) -> None:
    log = JsonlWriter(tmp_path / "a")
    assert not log.append(row)
    log.close()
    assert (log.dropped, log.lines, numbers(tmp_path / "a")) == (1, 0, [])
    assert log.error


def test_rows_of_several_threads_are_whole_and_all_counted(tmp_path: Path) -> None:
    log = JsonlWriter(tmp_path / "a")
    threads = [threading.Thread(target=lambda: [log.append({"n": n}) for n in range(300)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    assert log.flush()  # does not wait for later rows
    for thread in threads:
        thread.join()
    log.close()
    assert (log.lines, log.dropped) == (1200, 0)
    assert sorted(numbers(tmp_path / "a")) == sorted(list(range(300)) * 4)


def test_a_file_that_cannot_be_opened_is_an_error_at_once(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="gone"):
        JsonlWriter(tmp_path / "gone" / "a")


def test_a_forked_worker_writes_nothing_and_does_not_hang(tmp_path: Path) -> None:
    log = JsonlWriter(tmp_path / "a")
    log.append({"n": 1})

    def work() -> bool:
        log.close()
        return log.append({"n": 2}) or log.flush() or log.sync()

    assert in_fork(work) == 0
    log.append({"n": 3})
    log.close()
    assert numbers(tmp_path / "a") == [1, 3]


def in_fork(work: Callable[[], bool]) -> int:
    pid = os.fork()
    if not pid:
        os._exit(work())
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_a_resume_makes_the_lines_after_its_own_state_void() -> None:
    def resume(from_line: int) -> dict[str, Any]:
        return {"event": "resume", "from_line": from_line}

    lines = [{"n": 1}, {"n": 2}, {"n": 3}, resume(2), {"n": 4}, None, resume(1), {"n": 5}, resume(8), {"n": 6}]
    kept = drop_superseded(enumerate(lines, 1))
    assert [(number, row and row["n"]) for number, row in kept] == [(1, 1), (8, 5), (10, 6)]


def test_a_line_that_is_no_row_does_not_hide_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jsonl_writer, "LONGEST", 64)
    lines = ['{"n": 1}', f'{{"n": "{"x" * 200}"}}', "[" * 60, "\0", '{"n": 1' + "0" * 50 + "}", '{"n": 2}']
    (tmp_path / "a").write_text("".join(f"{line}\n" for line in lines))
    assert [(number, bool(row)) for number, row in read_lines(tmp_path / "a")] == [
        (1, True), (2, False), (3, False), (4, False), (5, True), (6, True),
    ]  # fmt: skip


def test_a_row_that_is_nested_too_deeply_is_none(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("[" * 200_000 + "\n" + '{"n": 2}\n')
    assert numbers(tmp_path / "a") == [None, 2]


@pytest.mark.parametrize("line", ["x", None, [1], 1.5, float("nan")])
def test_a_resume_from_no_line_drops_none(line: Any) -> None:
    assert drop_superseded(iter([(1, {"n": 1}), (2, {"event": "resume", "from_line": line})])) == [(1, {"n": 1})]
