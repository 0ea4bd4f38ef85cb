"""Fault 10: the web server read any file on the disk. There is no server yet, so no route may exist."""

import pkgutil
import subprocess
import sys

import alchemy.web


def test_nothing_listens():
    assert {module.name for module in pkgutil.iter_modules(alchemy.web.__path__)} == {"plugins", "send_mail"}


def test_serve_says_in_one_line_that_it_is_not_there():
    done = subprocess.run(
        [sys.executable, "-m", "alchemy", "serve"], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode != 0
    assert len((done.stdout + done.stderr).strip().splitlines()) == 1
