"""Common mistakes: each is found before the first update, with the message that docs/mistakes.md shows."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

import pytest

from tests.config.mistake import NEWS, POINTS, Mistake

TABLE = tomllib.loads(Path(__file__).with_name("mistakes.toml").read_text(encoding="utf-8"))
PAGE = Path(__file__).parents[2] / "docs" / "mistakes.md"
START = "<!-- the tables below are written by `python -m tests.config.test_mistakes` -->\n"


def mistake(row: dict[str, object]) -> Mistake:
    return Mistake(**{**row, "config": POINTS if row.get("config") == "points" else NEWS})  # type: ignore[arg-type]


ROWS = {f"{group}: {row['title']}": mistake(row) for group, rows in TABLE.items() for row in rows}


@pytest.mark.parametrize("name", ROWS)
def test_the_message_says_what_to_do(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row = ROWS[name]
    assert row.message in row.made(tmp_path, monkeypatch)


@pytest.mark.parametrize("config", [NEWS, POINTS], ids=["news", "points"])
def test_the_configs_without_a_mistake_run(config: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from alchemy.config.load import prepare_cfg
    from alchemy.runner import run_task

    good = Mistake("none", "epochs = 1", "epochs = 1", "", config=config)
    assert good.made(tmp_path, monkeypatch) == []
    assert "loss" in run_task(prepare_cfg("train.toml"), no_file=True, raise_errors=True).ret


def written() -> str:
    """Return the tables of the page."""
    lines = []
    for group, rows in TABLE.items():
        lines += [f"\n## {group}\n", "| mistake | message |", "|---|---|"]
        for row in rows:
            warns = "W " if row.get("warns") else ""
            message = row["message"].replace("|", "\\|")
            fence = "``" if "`" in message else "`"
            lines.append(f"| {row['title']} | {warns}{fence}{message}{fence} |")
    return "\n".join(lines) + "\n"


def test_the_page_lists_them() -> None:
    assert PAGE.read_text(encoding="utf-8").partition(START)[2] == written(), "run python -m tests.config.test_mistakes"
    assert len(ROWS) >= 60


if __name__ == "__main__":
    head = PAGE.read_text(encoding="utf-8").partition(START)[0] if PAGE.exists() else ""
    PAGE.write_text(head + START + written(), encoding="utf-8")
    sys.exit(0)
