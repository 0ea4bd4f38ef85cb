"""An empty folder `alchemy` in the project, as git leaves for a submodule that was not fetched."""

import shutil
import zipfile
from pathlib import Path

import pytest

from alchemy.config import dumps
from tests import toy

ROOT = Path(__file__).parents[2]

# alchemy found by an import hook, as in editable installs of setuptools, not on the path
HOOK = f"""
import importlib.util, os, runpy, sys
from importlib.machinery import PathFinder

class Hook:
    @staticmethod
    def find_spec(name, path=None, target=None):
        base = os.path.join({str(ROOT)!r}, *name.split("."))
        files = [file for file in (base + "/__init__.py", base + ".py") if os.path.exists(file)]
        return importlib.util.spec_from_file_location(name, files[0]) if name.startswith("alchemy") and files else None

sys.path[:] = [p for p in sys.path if not os.path.exists(os.path.join(p or os.getcwd(), "alchemy/__init__.py"))]
sys.meta_path.insert(sys.meta_path.index(PathFinder) + 1, Hook)
"""
MODULE = HOOK + "runpy.run_module('alchemy', run_name='__main__', alter_sys=True)"
COMMAND = HOOK + "sys.path.remove(''); from alchemy.__main__ import main; sys.exit(main())"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "alchemy").mkdir()
    (tmp_path / "plain.toml").write_text(dumps(toy.config("records", sched__epochs=1)))
    return tmp_path


def test_an_installed_package_wins_and_is_backed_up(folder, start):
    backup = {"type": "alchemy.plugins.Backup", "paths": ["alchemy"]}
    cfg = toy.config("records", sched__epochs=1)
    (folder / "c.toml").write_text(dumps({**cfg, "plugins": [*cfg["plugins"], backup]}))
    start(folder, "-m", "alchemy", "run", "c.toml", "--device", "-1")
    assert list(folder.glob("records/*/backup/alchemy/registry.py"))


@pytest.mark.parametrize("code", [MODULE, COMMAND], ids=["python -m alchemy", "alchemy"])
def test_a_package_behind_an_import_hook_is_hidden_and_the_command_says_so(folder, start, code):
    done = start(folder, "-c", code, "run", "plain.toml", "--device", "-1", code=2)
    assert done.stderr == (
        f"error: the folder {folder}/alchemy has no __init__.py and shadows the installed package alchemy; "
        "remove it (it may be an empty git submodule): rmdir alchemy\n"
    )


def test_an_editable_install_is_a_path(tmp_path, monkeypatch):
    build = pytest.importorskip("setuptools.build_meta", reason="setuptools builds the package")
    source = tmp_path / "source"
    shutil.copytree(ROOT / "alchemy", source / "alchemy", ignore=lambda path, names: set(names) - {"__init__.py"})
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    monkeypatch.chdir(source)
    with zipfile.ZipFile(tmp_path / build.build_editable(str(tmp_path))) as wheel:
        (hook,) = [name for name in wheel.namelist() if name.endswith(".pth")]
        assert wheel.read(hook).decode().strip() == str(source)
