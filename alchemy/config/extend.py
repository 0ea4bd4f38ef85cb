"""Resolve splits that extend another split: `[task.datasets.dev] like = "train"` plus the keys that differ."""

from __future__ import annotations

from itertools import pairwise

from alchemy.config.merge import DATASETS, LIKE, merge
from alchemy.config.tree import Array, Document, Table, copy_tree
from alchemy.config.values import dotted_key
from alchemy.errors import Problem, did_you_mean

# options that only make sense for training: an evaluation reads every sample once, in order
NOT_INHERITED = ("shuffle", "drop_last", "sampler", "batch_sampler")
NOT_INHERITED_BY_PIPES = ("shuffle", "drop_last")


def extend(doc: Document, problems: list[Problem]) -> bool:
    """Merge each split that has a `like` key with the split it names; return whether any split has one."""
    splits = doc.table("task").table("datasets")
    found = False
    for name, split in list(splits.items()):
        if isinstance(split, Table) and LIKE in split:
            found = True
            chain = _chain(name, splits, problems)
            for parent, child in pairwise(reversed(chain)):
                _extend(splits, parent, child, problems)
    return found


def _chain(name: str, splits: Table, problems: list[Problem]) -> list[str]:
    """Return a split and the splits it extends, directly or indirectly, or just the split if any of them is missing."""
    chain = [name]
    while LIKE in splits.table(chain[-1]):
        last = splits.table(chain[-1])
        like = last[LIKE]
        where, section = last.where(LIKE), dotted_key((*DATASETS, chain[-1]))
        if like in chain:
            circle = " -> ".join([*chain, like])
            problems.append(Problem(f"like is circular: {circle}", where, section, "break the cycle"))
        elif not isinstance(like, str) or not isinstance(splits.get(like), Table):
            others = [split for split in splits if split != chain[-1]]
            hint = did_you_mean(str(like), others) or f"available: {', '.join(others) or 'none'}"
            problems.append(Problem(f"like = {like!r}: there is no such split", where, section, hint))
        else:
            chain.append(like)
            continue
        del last[LIKE]  # report the problem only once
        return [name]
    return chain


def _extend(splits: Table, parent: str, child: str, problems: list[Problem]) -> None:
    lower, upper = splits[parent], splits[child]
    table = Table(origin=upper.origin)
    for key, value in lower.items():
        if key not in NOT_INHERITED:
            table.put(key, copy_tree(value), lower.origin_of(key))
    pipes = table.get("pipes")
    for pipe in pipes if isinstance(pipes, Array) else ():
        for key in NOT_INHERITED_BY_PIPES if isinstance(pipe, Table) else ():
            pipe.pop(key, None)
    del upper[LIKE]
    merge(table, upper, problems, (*DATASETS, child))
    splits.put(child, table, splits.origin_of(child))
