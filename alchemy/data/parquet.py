"""Open Parquet files, plain or compressed, with errors that name the file."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from alchemy.data.files import COMPRESSED, open_bytes
from alchemy.errors import AlchemyError
from alchemy.optional_packages import import_package


@contextlib.contextmanager
def open_parquet(path: Path) -> Iterator[Any]:
    """Open a Parquet file; errors while reading it are also converted, because damage may only be detected then."""
    pyarrow = import_package("pyarrow", str(path))
    import_package("pyarrow.parquet", str(path))
    try:
        source: Any = path
        if path.suffix.lower() in COMPRESSED:
            with open_bytes(path) as packed:
                source = io.BytesIO(packed.read())
        with pyarrow.parquet.ParquetFile(source) as file:
            yield file
    except (OSError, EOFError, pyarrow.ArrowException) as error:
        raise AlchemyError(f"{str(path)!r} is not a readable parquet file: {error}") from error
