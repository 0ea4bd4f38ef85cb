"""A private PostgreSQL server for tests, from the binaries that Debian installs."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

USER = "postgres"  # the server refuses to run as root
WAIT_SECONDS = 60.0


def find_binaries() -> Path | None:
    """Return the folder of the newest installed version."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    on_path = shutil.which("initdb")
    return found[-1].parent if found else Path(on_path).parent if on_path else None


@contextlib.contextmanager
def run_server(binaries: Path) -> Iterator[str]:
    """Yield the URL of a database whose server listens on a Unix socket only."""
    folder = Path(tempfile.mkdtemp(prefix="alchemy-postgres-"))
    user = USER if os.geteuid() == 0 else None
    if user:
        shutil.chown(folder, user)
    try:
        data = folder / "data"
        options = ["--auth=trust", "--username=alchemy", "--no-sync", "--encoding=UTF8", "--locale=C.UTF-8"]
        subprocess.run(
            [binaries / "initdb", "-D", data, *options], user=user, cwd=folder, check=True, capture_output=True
        )
        settings = {"listen_addresses": "", "unix_socket_directories": str(folder), "fsync": "off"}
        words = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        with open(folder / "log", "wb") as log:
            server = subprocess.Popen([binaries / "postgres", "-D", data, *words], user=user, cwd=folder, stderr=log)
        try:
            _wait(binaries, folder, server)
            yield f"postgresql://alchemy@/postgres?host={folder}"
        finally:
            server.terminate()  # waits for open connections
            with contextlib.suppress(subprocess.TimeoutExpired):
                server.wait(10)
            server.kill()
            server.wait()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _wait(binaries: Path, folder: Path, server: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + WAIT_SECONDS
    while subprocess.run([binaries / "pg_isready", "-q", "-h", folder], check=False).returncode:
        assert server.poll() is None and time.monotonic() < end, (folder / "log").read_text()
        time.sleep(0.05)


def drop_tables(url: str) -> None:
    """Remove the tables of all versions of the index."""
    import psycopg

    with psycopg.connect(url, autocommit=True) as db:
        names = db.execute("SELECT nspname FROM pg_namespace WHERE nspname LIKE 'alchemy%'").fetchall()
        for (name,) in names:
            db.execute(f'DROP SCHEMA "{name}" CASCADE')
