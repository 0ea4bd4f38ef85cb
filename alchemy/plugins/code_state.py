"""Describe the code of a run: the git commit of the project, its uncommitted changes, and alchemy's own code."""

from __future__ import annotations

import contextlib
import functools
import io
import os
import re
import signal
import subprocess
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import alchemy
from alchemy.config.secrets import hide
from alchemy.errors import AlchemyError
from alchemy.files import hash_tree, read_bytes, read_table
from alchemy.plugins.secret_files import SOURCE, find_secret_in, has_secret_folder, has_secret_name, secret_reason
from alchemy.records.record_json import read_fields
from alchemy.records.status import INFO
from alchemy.records.symlinks import path_inside
from alchemy.trust import record_of

SECONDS = 3.0  # limit for each git command; it takes about 10 ms in most repositories
LARGEST_DIFF = 2**20  # bytes
LARGEST_OUTPUT = 16 * 2**20
PACKAGE = Path(alchemy.__file__).parent
# a repository named by these variables, which git sets for hooks, is not the one of the project
REMOVED = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX")
# no program that the settings of a repository name is started, and nothing is written or fetched
GIT = ("git", "--no-optional-locks", "-c", "core.fsmonitor=false", "-c", "core.quotePath=true")
ENVIRONMENT = {"GIT_NO_LAZY_FETCH": "1", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
STATUS = ("status", "--porcelain=v2", "--branch", "--ignore-submodules=dirty", "-z")
DIFF = ("diff", "--no-color", "--no-ext-diff", "--no-textconv", "--no-renames", "--ignore-submodules=dirty")
PREFIXES = ("--src-prefix=a/", "--dst-prefix=b/")
_RELEASE = re.compile(r"\d+(\.\d+)*((a|b|rc)\d+)?(\.post\d+)?")
_SECTION = re.compile(r"^(?=diff --git )", re.MULTILINE)


class CodeState(NamedTuple):
    """A field of `record.json`, or None if nothing is known, and the files that belong to it."""

    fields: dict[str, Any] | None
    files: dict[str, str] = {}


def read_git(folder: Path) -> CodeState:
    """Return the commit and the branch of the repository that contains a folder, and the changes in the folder.

    Nothing is started if there is no repository. A repository that git cannot read counts as none. The code in the
    backup of a record has the commit of that record.
    """
    if record := record_of(folder):
        return _read_git_of_record(Path(record))
    root = _find_repository(folder)
    found = None if root is None else _read_status(folder)
    if root is None or found is None:
        return CodeState(None)
    diff = _read_diff(folder, root) if found["dirty"] else ""
    found.pop("untracked")
    return CodeState(found, {"git.diff": diff} if diff else {})


def _read_git_of_record(record: Path) -> CodeState:
    files = {}
    with contextlib.suppress(OSError, ValueError, AlchemyError):
        fields = read_fields(record / INFO).get("git")
        if os.path.lexists(record / "git.diff"):
            files = {"git.diff": read_bytes(path_inside(record, "git.diff")).decode("utf-8", "replace")}
        return CodeState(fields, files)
    return CodeState(None)


@functools.cache
def read_alchemy() -> CodeState:
    """Return a hash of alchemy's code and, if it is not a release, where the code is: a commit, or None.

    The result is the same for all runs of a process, which keeps the code that it has imported.
    """
    fields: dict[str, Any] = {"hash": hash_tree(PACKAGE), "commit": None, "dirty": None}
    metadata = PACKAGE.parent / f"alchemy-{alchemy.__version__}.dist-info"
    if metadata.is_dir():
        commit = _installed_commit(metadata)
        return CodeState(fields | ({"commit": commit, "dirty": False} if commit else {}))
    root = _find_repository(PACKAGE)
    found = None if root is None else _read_status(PACKAGE, untracked=True)
    if root is None or found is None:
        return CodeState(fields)
    diff = _read_diff(PACKAGE, root) if found["dirty"] else ""
    new = [_show_new_file(root, name) for name in found["untracked"] if name.endswith(".py")]
    fields |= {"commit": found["commit"], "dirty": True if new else found["dirty"]}
    return CodeState(fields, {"alchemy.diff": "".join([diff, *new])} if diff or new else {})


@functools.cache
def zip_alchemy() -> bytes:
    """Return alchemy's code as a zip archive if it is neither a release nor a commit, else nothing."""
    fields = read_alchemy().fields
    installed = (PACKAGE.parent / f"alchemy-{alchemy.__version__}.dist-info").is_dir()
    is_release = installed and _RELEASE.fullmatch(alchemy.__version__)
    if is_release or fields is None or fields["commit"]:
        return b""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(PACKAGE.rglob("*.py")):
            archive.write(path, path.relative_to(PACKAGE.parent))
    return out.getvalue()


def _installed_commit(metadata: Path) -> str:
    """Return the commit of a package that pip has installed from a repository, or an empty string."""
    with contextlib.suppress(OSError, ValueError):
        return str(read_table(metadata / "direct_url.json").get("vcs_info", {}).get("commit_id", ""))
    return ""


def _find_repository(folder: Path) -> Path | None:
    folder = folder.absolute()
    return next((place for place in (folder, *folder.parents) if os.path.lexists(place / ".git")), None)


def _read_status(folder: Path, *, untracked: bool = False) -> dict[str, Any] | None:
    """Return commit, branch, and whether tracked files in the folder have changed; optionally, its untracked files."""
    out = _run_git(folder, *STATUS, f"--untracked-files={'all' if untracked else 'no'}", "--", ".")
    if out is None:  # too slow, perhaps: at least the commit is known
        commit = _run_git(folder, "rev-parse", "--verify", "HEAD")
        return None if commit is None else _state(commit.decode().strip(), "", None)
    rows = out.decode("utf-8", "replace").split("\0")
    heads = dict(row[2:].split(" ", 1) for row in rows if row.startswith("# "))
    if heads.get("branch.oid", "(initial)") == "(initial)":
        return None
    others = [row[2:] for row in rows if row.startswith("? ")]
    dirty = any(row.startswith(("1 ", "2 ", "u ")) for row in rows)
    return _state(heads["branch.oid"], heads.get("branch.head", ""), dirty, others)


def _state(commit: str, branch: str, dirty: bool | None, untracked: list[str] = []) -> dict[str, Any]:
    branch = "" if branch == "(detached)" else branch
    return {"commit": commit, "branch": branch, "dirty": dirty, "untracked": untracked}


def _read_diff(folder: Path, root: Path) -> str:
    """Return the changes of tracked files since the commit, without secrets and large files."""
    out = _run_git(folder, *DIFF, *PREFIXES, "HEAD", "--", ".") or b""
    sections = _SECTION.split(hide(out.decode("utf-8", "replace")))
    is_cut = len(out) >= LARGEST_OUTPUT
    if is_cut:
        sections.pop()
    kept, size = [], 0
    for section in filter(None, sections):
        text = _leave_out_secrets(section, root)
        if size + len(text) > LARGEST_DIFF:
            text = f"# {_name_of(section)} is left out: the changes are too large\n"
        size += len(text)
        kept.append(text)
    return "".join(kept) + ("# more changes are left out: they are too large\n" * is_cut)


def _show_new_file(root: Path, name: str) -> str:
    """Return an untracked file as a section of a diff."""
    try:
        lines = read_bytes(root / name, LARGEST_DIFF).decode("utf-8", "replace").splitlines()
    except (OSError, ValueError):
        return f"# {name} is left out: it cannot be read, or is too large\n"
    head = f"diff --git a/{name} b/{name}\nnew file mode 100644\n--- /dev/null\n+++ b/{name}\n"
    text = hide("".join(f"+{line}\n" for line in lines))
    return head + (f"@@ -0,0 +1,{len(lines)} @@\n{text}" if lines else "")


def _leave_out_secrets(section: str, root: Path) -> str:
    name = _name_of(section)
    # changed lines without their marks, which would hide a name at the start of a line
    content = "\n".join(line[1:] for line in section.split("\n") if line[:1] in ("+", "-", " "))
    place, file = os.path.split(root / name)
    if has_secret_folder(name) or has_secret_name(place, file):
        reason = "its name"
    else:  # the changes of a key file may not include the line that says so, unlike those of source code
        is_source = os.path.splitext(file)[1].lower() in SOURCE
        reason = find_secret_in(content.encode("utf-8", "replace"), name)
        reason = reason or ("" if is_source else secret_reason(place, file))
    return f"# {name} is left out: {reason}\n" if reason else section


def _name_of(section: str) -> str:
    """Return the path that a section of a diff is about.

    >>> _name_of("diff --git a/src/x y.py b/src/x y.py\\nindex 1..2\\n")
    'src/x y.py'
    >>> _name_of('diff --git "a/\\\\344.py" "b/\\\\344.py"')
    '\\\\344.py'
    """
    names = section.partition("\n")[0].removeprefix("diff --git ")
    return names[: len(names) // 2].strip('"').removeprefix("a/")  # both names are the same


def _run_git(folder: Path, *words: str) -> bytes | None:
    """Return the output of a git command, up to a limit; None if it fails or takes too long."""
    environment = {name: value for name, value in os.environ.items() if name not in REMOVED} | ENVIRONMENT
    try:
        process = subprocess.Popen(
            [*GIT, *words],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            process_group=0,
        )
    except (OSError, ValueError):
        return None
    with process, _kill_later(process):
        assert process.stdout is not None
        out = process.stdout.read(LARGEST_OUTPUT)
        if len(out) == LARGEST_OUTPUT:
            _kill(process)
        return out if len(out) == LARGEST_OUTPUT or process.wait() == 0 else None


@contextlib.contextmanager
def _kill_later(process: subprocess.Popen[bytes]) -> Iterator[None]:
    timer = threading.Timer(SECONDS, _kill, [process])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a command and the filters that it has started, which would keep its output open."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)


def describe_commit(fields: object) -> str:
    """Describe a commit from a `record.json`, as in `3fa2c1d with changes`."""
    if not isinstance(fields, dict) or not isinstance(fields.get("commit"), str):
        return ""
    return fields["commit"][:10] + (" with changes" if fields.get("dirty") else "")
