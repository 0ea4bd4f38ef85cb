"""The config keys and metrics that the index knows, by name."""

from __future__ import annotations

from collections.abc import Iterable

from alchemy.errors import did_you_mean
from alchemy.index.store import Store


class KnownNames:
    """Looks up the numbers of config keys and metrics in the database."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[str, int] | None = None

    @property
    def _numbers(self) -> dict[str, int]:
        if self._known is None:
            self._known = dict(self._store.query("SELECT name, id FROM names"))  # type: ignore[arg-type]
        return self._known

    def forget(self) -> None:
        """Read the names again when they are needed, because records were added."""
        self._known = None

    def number_of(self, name: str) -> int | None:
        return self._numbers.get(name)

    def find_keys(self, name: str) -> list[int]:
        """Return the numbers of a config key, or of all keys that end with `.name`."""
        known = self._numbers
        found = [known[name]] if name in known else [known[key] for key in known if key.endswith(f".{name}")]
        if not found:
            return []
        sql = f"SELECT DISTINCT key FROM config WHERE key IN ({join_numbers(found)})"
        return [key for (key,) in self._store.query(sql)]

    def find_metrics(self, name: str) -> list[int]:
        """Return the number of a metric; an empty list if no record has it."""
        number = self._numbers.get(name)
        if number is None or not self._store.query(f"SELECT 1 FROM metrics WHERE metric = {number} LIMIT 1"):
            return []
        return [number]

    def suggest(self, name: str) -> str:
        """Return a hint for a misspelled config key or metric, or an empty string."""
        return did_you_mean(name, [*self._numbers, *{key.rpartition(".")[2] for key in self._numbers}])

    def text_match(self, column: str, param: str) -> str:
        return self._store.text_match(column, param)

    def text_query(self, words: Iterable[str]) -> str:
        return self._store.text_query(words)


def join_numbers(numbers: Iterable[int]) -> str:
    """Return numbers for use in a statement: `IN (1, 2, 3)`."""
    return ", ".join(str(int(number)) for number in numbers)
