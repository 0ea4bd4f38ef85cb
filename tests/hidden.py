"""Run Python as if some packages were not installed."""

from __future__ import annotations

import subprocess
import sys

HIDE = """
import sys
class Hide:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {hidden!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Hide())
"""
EVERYTHING = ["tensorboard", "pynvml", "fastapi", "uvicorn", "pyarrow", "zstandard", "transformers", "accelerate"]
EVERYTHING += ["seqeval", "sacrebleu", "matplotlib", "ctranslate2"]


def python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout
