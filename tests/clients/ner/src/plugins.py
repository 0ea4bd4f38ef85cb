"""A plugin of the older generation: it works when it is entered and left."""

import json

from alchemy import sym_tbl
from alchemy.plugins import AlchemyPlugin


@AlchemyPlugin.register()
class Stopwatch(AlchemyPlugin):
    def __init__(self, filename: str = "stopwatch.json", **kwargs) -> None:
        super().__init__()
        self.filename = filename

    def __enter__(self):
        sym_tbl().set_global("entered", True)
        return self

    def __exit__(self, et, ev, tb):
        if sym_tbl().record_dir is not None:
            row = {"entered": sym_tbl().get_global("entered"), "error": None if et is None else et.__name__}
            (sym_tbl().record_dir / self.filename).write_text(json.dumps(row))
