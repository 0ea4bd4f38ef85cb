"""Find the config keys that differ between records."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

REPEATED = ("seed", "log_dir")  # differ between repetitions of one experiment
HIDDEN = (*REPEATED, "tag")  # the tag is shown anyway


def find_changed_keys(configs: Sequence[Mapping[str, str]], hidden: Collection[str] = HIDDEN) -> list[str]:
    """Return the keys that differ, except those whose last part is `hidden`.

    >>> find_changed_keys([{"optim.lr": "0.1", "seed": "1"}, {"optim.lr": "0.2", "seed": "2"}])
    ['optim.lr']
    """
    keys = dict.fromkeys(key for config in configs for key in config)
    shown = (key for key in keys if key.rpartition(".")[2] not in hidden)
    return [key for key in shown if len({config.get(key) for config in configs}) > 1]
