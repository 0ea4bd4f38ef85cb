"""An empty project for each database of the index."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from alchemy.index.store import URL
from tests.index.postgres_server import drop_tables, find_binaries, run_server


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """The URL of a PostgreSQL server of our own."""
    pytest.importorskip("sqlalchemy", reason="the extra `track` is not installed")
    pytest.importorskip("psycopg", reason="the extra `track` is not installed")
    binaries = find_binaries()
    if binaries is None:
        pytest.skip("PostgreSQL is not installed: apt-get install postgresql")
    with run_server(binaries) as url:
        yield url


@pytest.fixture
def local_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project whose index is in SQLite."""
    (tmp_path / ".alchemy").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(URL, raising=False)
    return tmp_path


@pytest.fixture
def shared_project(local_project: Path, monkeypatch: pytest.MonkeyPatch, postgres_url: str) -> Path:
    """A project whose index is in PostgreSQL."""
    drop_tables(postgres_url)
    monkeypatch.setenv(URL, postgres_url)
    return local_project


@pytest.fixture(params=["sqlite", "postgres"])
def project(request: pytest.FixtureRequest) -> Path:
    """A project with an empty index, once for each database."""
    return request.getfixturevalue("local_project" if request.param == "sqlite" else "shared_project")
