"""Fault 7: the CPU required NVML, and runs waited for a GPU that does not exist."""

import subprocess
import sys
import types

import pytest

from alchemy import run
from alchemy.errors import AlchemyError
from alchemy.util.alloc_gpu import alloc_cuda
from alchemy.util.device import alloc, alloc1


@pytest.fixture
def no_driver(monkeypatch):
    def fail():
        raise RuntimeError("Driver Not Loaded")

    monkeypatch.setitem(sys.modules, "pynvml", types.SimpleNamespace(nvmlInit=fail))


def test_the_cpu_asks_for_no_driver(no_driver):
    import line_parts

    assert list(alloc([-1])) == [alloc1([-1])] == [{"device": "cpu"}]
    result = run([line_parts.config()], device=[-1])[0]
    assert result.exception is None


def test_a_gpu_that_is_not_there_is_an_error_at_once(no_driver):
    with pytest.raises(AlchemyError, match=r"no device 99: .*use --device -1 for the CPU"):
        next(alloc_cuda([[99]]))


def test_a_missing_gpu_ends_the_command_with_code_2(tmp_path):
    import line_parts

    from alchemy.config import dumps

    (tmp_path / "line.toml").write_text(dumps(line_parts.config()))
    command = [sys.executable, "-m", "alchemy", "run", "line.toml", "--device", "99"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2
    assert "no device 99" in done.stderr
    assert "Traceback" not in done.stderr
