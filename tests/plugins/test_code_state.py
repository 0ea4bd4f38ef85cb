"""The commit and the changes of a repository in the record, without secrets, and never in the way of a run."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from alchemy.config import secrets
from alchemy.files import hash_tree
from alchemy.plugins import code_state
from alchemy.plugins.code_state import read_alchemy, read_git, zip_alchemy

KEY = "-----BEGIN RSA PRIVATE KEY-----\n" + "MIIEpAIBAAKCAQEA\n" * 30 + "-----END RSA PRIVATE KEY-----\n"


def git(folder: Path, *words: str) -> str:
    identity = ["-c", "user.name=x", "-c", "user.email=x@x", "-c", "commit.gpgsign=false"]
    done = subprocess.run(["git", *identity, *words], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository with one commit and no changes."""
    folder = tmp_path / "project"
    (folder / "src").mkdir(parents=True)
    files = {
        "src/model.py": "depth = 1\n",
        "notes.txt": "a\n",
        ".env": "A=1\n",
        "keys.txt": KEY,
        "other.toml": "x = 1\n",
    }
    for name, text in files.items():
        (folder / name).write_text(text)
    git(folder, "init", "-q", "-b", "main")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "first")
    return folder


def test_without_a_repository_nothing_is_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "Popen", None)
    assert read_git(tmp_path) == (None, {})


def test_a_clean_repository_has_a_commit_and_no_diff(project: Path) -> None:
    fields = {"commit": git(project, "rev-parse", "HEAD"), "branch": "main", "dirty": False}
    assert read_git(project / "src") == (fields, {})
    (project / "src" / "new.py").write_text("untracked\n")
    git(project, "checkout", "-q", "--detach")
    assert read_git(project) == (fields | {"branch": ""}, {})


def test_the_diff_restores_the_changes(project: Path, tmp_path: Path) -> None:
    git(project, "config", "diff.noprefix", "true")
    git(project, "config", "diff.external", "false")
    (project / "src" / "model.py").write_text("depth = 2\n")
    (project / "notes.txt").unlink()
    (project / "größe 2.py").write_text("new\n")
    git(project, "add", "größe 2.py")
    fields, files = read_git(project)
    assert fields is not None and fields["dirty"] is True
    git(tmp_path, "clone", "-q", str(project), "copy")
    (tmp_path / "git.diff").write_text(files["git.diff"])
    git(tmp_path / "copy", "apply", "../git.diff")
    assert hash_tree(tmp_path / "copy", "*.[tp]*") == hash_tree(project, "*.[tp]*")


def test_only_changes_below_the_project_are_stored(project: Path) -> None:
    (project / "notes.txt").write_text("of somebody else\n")
    fields, files = read_git(project / "src")
    assert fields is not None and fields["dirty"] is False and files == {}


def test_secrets_are_masked_or_left_out(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secrets, "_known", {})
    secrets._pattern.cache_clear()
    secrets.remember({"hunter22": "A"})
    lines = KEY.splitlines()
    changes = {
        "src/model.py": "depth = 2  # hunter22\n",
        "notes.txt": "ghp_" + "a1" * 20 + "\n",
        ".env": "A=hidden\n",
        "keys.txt": "\n".join([*lines[:20], "MIIchanged", *lines[21:]]),
        "other.toml": 'password = "abcdef"\n',
    }
    for name, text in changes.items():
        (project / name).write_text(text)
    diff = read_git(project)[1]["git.diff"]
    assert "+depth = 2  # ***" in diff
    assert "# notes.txt is left out: a GitHub token" in diff
    assert "# .env is left out: its name" in diff
    assert "# keys.txt is left out: a private key" in diff
    assert "# other.toml is left out: a secret setting" in diff
    assert not any(text in diff for text in ("hunter22", "ghp_", "hidden", "MII", "abcdef"))
    secrets._pattern.cache_clear()


def test_large_changes_are_left_out(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "notes.txt").write_text("long line\n" * 1000)
    (project / "src" / "model.py").write_text("depth = 2\n")
    monkeypatch.setattr(code_state, "LARGEST_DIFF", 1000)
    diff = read_git(project)[1]["git.diff"]
    assert "# notes.txt is left out: the changes are too large" in diff and "+depth = 2" in diff
    monkeypatch.setattr(code_state, "LARGEST_OUTPUT", 500)
    assert read_git(project)[1]["git.diff"].endswith("# more changes are left out: they are too large\n")


@pytest.mark.parametrize("script", ["", "exit 128", "sleep 60", "trap '' TERM; sleep 60 & wait"])
def test_git_that_is_missing_fails_or_hangs_does_not_matter(
    script: str, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if script:
        (tmp_path / "git").write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin" if script else str(tmp_path))
    monkeypatch.setattr(code_state, "SECONDS", 0.05)
    assert read_git(project) == (None, {})


def test_a_slow_repository_still_has_a_commit(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "git").write_text('#!/bin/sh\ncase "$*" in *rev-parse*) echo 3fa2 ;; *) sleep 60 ;; esac\n')
    (tmp_path / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(code_state, "SECONDS", 0.5)
    assert read_git(project) == ({"commit": "3fa2", "branch": "", "dirty": None}, {})


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A stand-in for the installed package."""
    folder = tmp_path / "site" / "alchemy"
    folder.mkdir(parents=True)
    (folder / "loop.py").write_text("code\n")
    monkeypatch.setattr(code_state, "PACKAGE", folder)
    caches = (read_alchemy, zip_alchemy)
    for function in caches:
        function.cache_clear()
    yield folder
    for function in caches:
        function.cache_clear()


def install(package: Path, monkeypatch: pytest.MonkeyPatch, version: str, url: str = "{}") -> None:
    monkeypatch.setattr("alchemy.__version__", version)
    metadata = package.parent / f"alchemy-{version}.dist-info"
    metadata.mkdir()
    (metadata / "direct_url.json").write_text(url)


def test_a_release_of_alchemy_needs_no_code(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(package, monkeypatch, "1.2.0")
    assert read_alchemy() == ({"hash": hash_tree(package), "commit": None, "dirty": None}, {})
    assert zip_alchemy() == b""


def test_alchemy_installed_from_a_repository_has_a_commit(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(package, monkeypatch, "1.2.0.dev3", '{"url": "x", "vcs_info": {"vcs": "git", "commit_id": "3fa2"}}')
    fields = read_alchemy().fields
    assert fields is not None and (fields["commit"], fields["dirty"]) == ("3fa2", False) and zip_alchemy() == b""


@pytest.mark.parametrize("version", ["1.2.0.dev3", "1.2.0+local", ""])
def test_other_code_of_alchemy_is_archived(version: str, package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if version:
        install(package, monkeypatch, version)
    assert zip_alchemy().startswith(b"PK") and b"alchemy/loop.py" in zip_alchemy()


def test_a_checkout_of_alchemy_has_a_commit_and_all_changes(package: Path, tmp_path: Path) -> None:
    git(package.parent, "init", "-q")
    git(package.parent, "add", ".")
    git(package.parent, "commit", "-q", "-m", "first")
    git(tmp_path, "clone", "-q", "site", "copy")
    (package / "loop.py").write_text("changed\n")
    (package / "new.py").write_text("a\n\nb")
    fields, files = read_alchemy()
    assert fields is not None and fields["commit"] == git(package, "rev-parse", "HEAD") and fields["dirty"] is True
    (tmp_path / "alchemy.diff").write_text(files["alchemy.diff"])
    git(tmp_path / "copy", "apply", "../alchemy.diff")
    assert (tmp_path / "copy/alchemy/loop.py").read_text() == "changed\n"
    assert (tmp_path / "copy/alchemy/new.py").read_text() == "a\n\nb\n" and zip_alchemy() == b""
