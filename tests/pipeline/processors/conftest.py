"""What the tests of processors share: files of a few lines."""

import pytest


@pytest.fixture
def write(tmp_path):
    """Writes a file, and gives its path."""

    def written(name, text):
        path = tmp_path / name
        path.write_text(text, "utf-8")
        return str(path)

    return written
