"""Golden values of every config in the repository: changes of the config language must not alter them.

`python -m tests.config.test_resolved` records new configs; it never changes recorded ones.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from alchemy.config.load import prepare_cfg, variants

ROOT = Path(__file__).parents[2]
GOLDEN = Path(__file__).with_name("resolved.json")
FOLDERS = ("examples", "recipes", "tests/golden", "tests/clients", "alchemy/cli/template")
DEFAULTS = {"tag", "runner", "plugins"}  # keys that may be added to a config without them


def configs() -> list[str]:
    """Return every config of the repository, and every variant of each."""
    found = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.toml"))
    files = [path for path in found if "records" not in path.relative_to(ROOT).parts]  # those of `make demo`
    # a table of results is not a config
    names = [
        path.relative_to(ROOT).as_posix()
        for path in files
        if "cfg.toml" not in path.name and path.parent.name != "tables"
    ]
    return [full for name in names for full in (name, *(f"{name}#{variant}" for variant in variants(ROOT / name)))]


def digests(config: str) -> dict[str, str]:
    """Return a hash of the resolved values below each top-level key."""
    plain = prepare_cfg(ROOT / config).plain()
    return {key: hashlib.sha256(_text(value).encode()).hexdigest()[:12] for key, value in sorted(plain.items())}


def _text(value: object) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, default=str)


@pytest.mark.parametrize("config", configs())
def test_a_config_resolves_to_the_values_it_always_had(config: str) -> None:
    found, kept = digests(config), json.loads(GOLDEN.read_text("utf-8"))[config]
    assert {key: found.get(key) for key in kept} == kept
    assert found.keys() - kept.keys() <= DEFAULTS


if __name__ == "__main__":
    recorded = json.loads(GOLDEN.read_text("utf-8")) if GOLDEN.exists() else {}
    recorded |= {config: digests(config) for config in configs() if config not in recorded}
    GOLDEN.write_text(json.dumps(recorded, indent=1, sort_keys=True) + "\n", "utf-8")
