"""A pipe that selects the samples whose ids are listed in a file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from alchemy.data.files import check_file, read_lines
from alchemy.errors import AlchemyError
from alchemy.pipeline import DataPipeline, LstDataPipeline, where_in
from alchemy.pipeline.itr import field_of
from alchemy.pipeline.lst import check_list


@DataPipeline.register()
class SplitById(LstDataPipeline):
    """Keeps the samples whose id is listed in the file `ids`, one per line, in data order; with `exclude`, drops them.

    The id is the `id` field as a string, or with `id = ""`, the zero-based index of the sample. An id in the file that
    matches no sample raises an error unless `missing = true`.
    """

    keeps = True

    def __init__(
        self, datapipe: Any, *, ids: str, id: str = "id", exclude: bool = False, missing: bool = False
    ) -> None:
        super().__init__(check_list(datapipe, "SplitById"))
        self.ids, self.id, self.exclude, self.missing = ids, id, exclude, missing
        wanted = _read_ids(ids)
        own = list(self._sample_ids(datapipe))
        there = set(own)
        lost = next((name for name in wanted if not missing and name not in there), None)
        if lost is not None:
            hint = f"the first sample has {own[0]!r}; set missing = true to ignore such ids" if own else ""
            raise AlchemyError(f"no sample has the id {lost!r}", where=f"{ids}:{wanted[lost]}", hint=hint)
        self.kept = [place for place, name in enumerate(own) if (name in wanted) != exclude]
        if not self.kept:
            raise AlchemyError(f"SplitById keeps none of {len(own)} samples", hint=f"check {ids} and the field {id!r}")

    def _sample_ids(self, datapipe: Any) -> Iterator[str]:
        for place in range(len(datapipe)):
            yield str(field_of(datapipe[place], self.id, self)) if self.id else str(place)

    def __getitem__(self, index: int) -> Any:
        return self.datapipe[self.kept[index]]

    def __len__(self) -> int:
        return len(self.kept)

    def where(self, index: int) -> str:
        return where_in(self.datapipe, self.kept[index])


def _read_ids(path: str) -> dict[str, int]:
    """Return the ids in a file with their line numbers; raise on duplicates."""
    found: dict[str, int] = {}
    for number, line in read_lines(check_file(path)):
        name = line.strip()
        if name in found:
            raise AlchemyError(f"duplicate id {name!r}, first on line {found[name]}", where=f"{path}:{number}")
        if name:
            found[name] = number
    if not found:
        raise AlchemyError(f"{path} has no ids", hint="it needs one id per line")
    return found
