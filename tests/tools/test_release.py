"""A release changes everything at the end, or nothing: tested on a small project with the same layout."""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from tools import release as script
from tools.release import ReleaseError, release

PROJECT = {
    "alchemy/__init__.py": '__version__ = "0.1.0"\n',
    "alchemy/__main__.py": "import alchemy\n\n\ndef main() -> None:\n    print('alchemy', alchemy.__version__)\n",
    "CHANGELOG.md": "# Changelog\n\n## Unreleased\n\n### Added\n\n- A thing.\n\n## 0.1.0 - 2026-01-01\n\n- First.\n",
    "CITATION.cff": "title: alchemy\nversion: 0.1.0\ndate-released: 2026-01-01\n",
    "Makefile": "check:\n\t@! grep -q mistake alchemy/__init__.py || { echo found a mistake; exit 1; }\n",
    ".gitignore": "build/\n*.egg-info/\n/dist/\n",
    "pyproject.toml": """
[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"
[project]
name = "alchemy"
dynamic = ["version"]
scripts = { alchemy = "alchemy.__main__:main" }
[tool.setuptools]
packages = ["alchemy"]
dynamic = { version = { attr = "alchemy.__version__" } }
""",
}
NO_CHANGES = "# Changelog\n\n## Unreleased\n\n### Added\n\n## 0.1.0 - 2026-01-01\n\n- First.\n"


def git(root: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=root, check=True, capture_output=True, text=True).stdout.strip()


def commit(root: Path, **files: str) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, "utf-8")
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "change")


def state(root: Path) -> str:
    return "\n".join(git(root, *command.split()) for command in ("rev-parse HEAD", "status --porcelain", "tag"))


@pytest.fixture(autouse=True)
def own_git_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    git(folder, "config", "user.name", "Anna")
    git(folder, "config", "user.email", "anna@example.org")
    commit(folder, **PROJECT)
    return folder


def test_a_dry_run_builds_and_changes_nothing(root: Path) -> None:
    before = state(root)
    assert release("0.2.0", root, dry_run=True) == ["alchemy-0.2.0-py3-none-any.whl", "alchemy-0.2.0.tar.gz"]
    assert state(root) == before and not (root / "dist").exists()


def test_a_release_sets_the_version_dates_the_changelog_and_tags(root: Path) -> None:
    release("0.2.0rc1", root)
    assert 'version__ = "0.2.0rc1"' in (root / "alchemy/__init__.py").read_text()
    text = (root / "CHANGELOG.md").read_text()
    assert "## Unreleased\n\n## 0.2.0rc1 - 20" in text and text.endswith("\n\n- First.\n")
    assert (root / "CITATION.cff").read_text().startswith("title: alchemy\nversion: 0.2.0rc1\ndate-released: 20")
    assert git(root, "log", "-1", "--format=%s %an") == "Release 0.2.0rc1 Anna"
    assert git(root, "rev-parse", "v0.2.0rc1^{commit}") == git(root, "rev-parse", "HEAD")
    assert git(root, "status", "--porcelain") == ""
    with tarfile.open(root / "dist" / "alchemy-0.2.0rc1.tar.gz") as packed:
        assert "alchemy-0.2.0rc1/alchemy/__init__.py" in packed.getnames()
    with pytest.raises(ReleaseError, match="the section '## Unreleased' is empty"):
        release("0.3.0", root)


@pytest.mark.parametrize(
    ("version", "message"),
    [
        ("0.1.0", "version 0.1.0 is not greater than the current version 0.1.0"),
        ("0.1.0rc1", "version 0.1.0rc1 is not greater than"),
        ("next", "'next' is not a valid version: expected PEP 440"),
        ("0.2-rc.1", r"'0.2-rc.1' is not in normal form: write '0.2rc1'"),
        ("0.2+local", "has a local part"),
        ("0.3.0", "the tag v0.3.0 already exists"),
    ],
)
def test_a_wrong_version_is_refused(version: str, message: str, root: Path) -> None:
    git(root, "tag", "v0.3.0")
    with pytest.raises(ReleaseError, match=message):
        release(version, root)


def test_all_problems_are_reported_at_once(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    commit(root, **{"CHANGELOG.md": NO_CHANGES})
    git(root, "switch", "-q", "-c", "topic")
    (root / "new.py").write_text("")
    before = state(root)
    monkeypatch.setattr(script, "ROOT", root)
    assert script.main(["0.0.9", "--dry-run"]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert [line for line in lines if line.startswith("error: ")] == [
        "error: the branch is 'topic', expected 'main': run `git switch main`",
        "error: the working tree is not clean: commit or stash your changes",
        "error: version 0.0.9 is not greater than the current version 0.1.0",
        "error: CHANGELOG.md: the section '## Unreleased' is empty: describe what has changed",
    ]
    assert "?? new.py" in lines and state(root) == before


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def main() -> None:\n    print('alchemy 0.1.0')\n", "the wheel reports another version"),
        ("import nothing_of_this_name\n", "No module named 'nothing_of_this_name'"),
    ],
)
def test_a_wheel_that_does_not_work_changes_nothing(text: str, message: str, root: Path) -> None:
    commit(root, **{"alchemy/__main__.py": text})
    before = state(root)
    with pytest.raises(ReleaseError, match=message):
        release("0.2.0", root)
    assert state(root) == before and not (root / "dist").exists()


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("alchemy/__init__.py", '__version__ = "0.1.0"  # mistake\n__version__ = "0.1.0"\n', "found a mistake"),
        ("CHANGELOG.md", "# Changelog\n", "CHANGELOG.md has no section '## Unreleased'"),
        ("alchemy/__init__.py", "", "has no line `__version__"),
    ],
)
def test_a_failure_changes_nothing(name: str, text: str, message: str, root: Path) -> None:
    commit(root, **{name: text})
    before = state(root)
    with pytest.raises(ReleaseError, match=message):
        release("0.2.0", root)
    assert state(root) == before and not (root / "dist").exists()


@pytest.mark.slow
@pytest.mark.skipif(not (script.ROOT / ".git").exists() or not shutil.which("git"), reason="needs a git repository")
def test_a_dry_run_of_this_project(tmp_path: Path) -> None:
    root = tmp_path / "alchemy"
    git(tmp_path, "clone", "-q", str(script.ROOT), str(root))
    git(root, "switch", "-q", "-C", "main")
    git(root, "config", "user.name", "Anna")
    git(root, "config", "user.email", "anna@example.org")
    before = state(root)
    assert "alchemy-99.0.0.tar.gz" in release("99.0.0", root, dry_run=True)
    assert state(root) == before
