"""Make a release: check, set the version, date the changelog, build and try the packages, commit and tag.

Everything happens in a temporary clone. The repository changes only at the end, when nothing can fail anymore, and not
at all in a dry run:

    python tools/release.py 1.0.0 --dry-run
"""

from __future__ import annotations

import argparse
import datetime
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from packaging.version import InvalidVersion, Version

ROOT = Path(__file__).resolve().parents[1]
INIT, CHANGELOG, CITATION = "alchemy/__init__.py", "CHANGELOG.md", "CITATION.cff"
VERSION = re.compile(r'^__version__ = "(.*)"$', re.MULTILINE)
UNRELEASED = re.compile(r"^## Unreleased\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)


class ReleaseError(Exception):
    """Everything that prevents a release, one argument per problem."""


def run(*command: str | Path, cwd: Path, env: dict[str, str] | None = None) -> str:
    """Run a command and return its output; raise a `ReleaseError` that contains the output if it fails."""
    done = subprocess.run(command, cwd=cwd, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode:
        raise ReleaseError(f"`{shlex.join(map(str, command))}` failed:\n{done.stdout.strip()}")
    return done.stdout.strip()


def read(root: Path, name: str) -> str:
    """Return the text of a file, or nothing if the file is missing."""
    path = root / name
    return path.read_text("utf-8") if path.is_file() else ""


def problems(root: Path, version: str) -> list[str]:
    """Return everything that is wrong with the tree, the version and the changelog."""
    found = []
    branch = run("git", "branch", "--show-current", cwd=root)
    if branch != "main":
        found.append(f"the branch is {branch or 'detached'!r}, expected 'main': run `git switch main`")
    if changes := run("git", "status", "--porcelain", cwd=root):
        found.append(f"the working tree is not clean: commit or stash your changes\n{changes}")
    found += version_problems(root, version)
    if not (section := UNRELEASED.search(read(root, CHANGELOG))):
        found.append(f"{CHANGELOG} has no section '## Unreleased'")
    elif not re.sub(r"^#.*", "", section[1], flags=re.MULTILINE).strip():
        found.append(f"{CHANGELOG}: the section '## Unreleased' is empty: describe what has changed")
    return found


def version_problems(root: Path, version: str) -> list[str]:
    """Return what is wrong with the new version: its form, its order, or its tag."""
    current = VERSION.search(read(root, INIT))
    if not current:
        return [f'{INIT} has no line `__version__ = ".."`']
    try:
        new = Version(version)
    except InvalidVersion:
        return [f"{version!r} is not a valid version: expected PEP 440, for example 1.0.0 or 1.1.0rc1"]
    found = []
    if str(new) != version:
        found.append(f"{version!r} is not in normal form: write {str(new)!r}")
    if new.local:
        found.append(f"{version!r} has a local part, which a release may not have")
    if new <= Version(current[1]):
        found.append(f"version {version} is not greater than the current version {current[1]}")
    if run("git", "tag", "--list", f"v{new}", cwd=root):
        found.append(f"the tag v{new} already exists")
    return found


def write_version(root: Path, version: str, date: str) -> list[str]:
    """Set the version, date the changelog and the citation; return the changed files."""
    init, changelog, citation = (read(root, name) for name in (INIT, CHANGELOG, CITATION))
    changed = {
        INIT: VERSION.sub(f'__version__ = "{version}"', init),
        CHANGELOG: changelog.replace("## Unreleased\n", f"## Unreleased\n\n## {version} - {date}\n", 1),
    }
    if citation:
        lines = [line for line in citation.splitlines() if not line.startswith(("version:", "date-released:"))]
        changed[CITATION] = "\n".join([*lines, f"version: {version}", f"date-released: {date}", ""])
    for name, text in changed.items():
        (root / name).write_text(text, "utf-8")
    return list(changed)


def check(root: Path) -> None:
    """Run `make check` with the tools of this environment, without installing anything into it."""
    venv = Path(sys.prefix)
    run("make", f"VENV={venv}", "-o", venv / ".dev", "check", cwd=root)


def build(root: Path, version: str) -> list[Path]:
    """Build the source distribution, and from it the wheel; try the wheel in an empty environment."""
    run(sys.executable, "-m", "build", "--no-isolation", cwd=root)
    packages = sorted((root / "dist").iterdir())
    wheel = next(path for path in packages if path.suffix == ".whl")
    with tempfile.TemporaryDirectory(prefix="release-venv-") as folder:
        venv = Path(folder)
        run(sys.executable, "-m", "venv", "--without-pip", venv, cwd=venv)
        python = venv / "bin" / "python"
        install = ("install", "--quiet", "--no-deps", "--no-index", "--disable-pip-version-check", wheel)
        run(sys.executable, "-m", "pip", "--python", python, *install, cwd=venv)
        env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        run(venv / "bin" / "alchemy", "--help", cwd=venv, env=env)
        printed = run(venv / "bin" / "alchemy", "version", cwd=venv, env=env)
        if version not in printed.split():
            raise ReleaseError(f"the wheel reports another version, expected {version}:\n{printed}")
    return packages


def release(version: str, root: Path, dry_run: bool = False) -> list[str]:
    """Make a release and return the names of its packages; a dry run leaves the repository as it is."""
    if found := problems(root, version):
        raise ReleaseError(*found)
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    with tempfile.TemporaryDirectory(prefix="release-") as folder:
        clone = Path(folder) / "clone"
        run("git", "clone", "--quiet", "--branch", "main", root, clone, cwd=root)
        for key in ("user.name", "user.email"):
            if value := run("git", "config", "--default", "", "--get", key, cwd=root):
                run("git", "config", key, value, cwd=clone)
        changed = write_version(clone, version, date)
        check(clone)
        packages = build(clone, version)
        run("git", "commit", "--quiet", "-m", f"Release {version}", "--", *changed, cwd=clone)
        run("git", "tag", "-a", f"v{version}", "-m", f"alchemy {version}", cwd=clone)
        if not dry_run:
            run("git", "pull", "--quiet", "--ff-only", "--tags", clone, "main", cwd=root)
            (root / "dist").mkdir(exist_ok=True)
            for path in packages:
                shutil.copy2(path, root / "dist")
    return [path.name for path in packages]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Check, build, commit and tag a release.")
    parser.add_argument("version", help="the new version, for example 1.0.0")
    parser.add_argument("--dry-run", action="store_true", help="do everything in a temporary clone and change nothing")
    options = parser.parse_args(arguments)
    try:
        packages = release(options.version, ROOT, options.dry_run)
    except ReleaseError as error:
        print(*(f"error: {problem}" for problem in error.args), sep="\n", file=sys.stderr)
        return 1
    print("\n".join(packages))
    if options.dry_run:
        print(f"dry run of {options.version}: nothing was changed")
    else:
        print(f"released {options.version}; publish it with `git push origin main v{options.version}` and upload dist/")
    return 0


if __name__ == "__main__":
    sys.exit(main())
