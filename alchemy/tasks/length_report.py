"""Log the text lengths of a split at the start of a run, and warn about outliers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from loguru import logger

from alchemy.pipeline import where_in
from alchemy.seeds import preserve_rng_state, set_current_sample

if TYPE_CHECKING:
    from alchemy.tasks.data_checks import Samples
    from alchemy.tasks.text_task import TextTask

SAMPLED = 1000  # number of samples that are encoded; the others are only measured in characters


def log_text_lengths(task: TextTask, source: Samples, sizes: Sequence[int], split: str) -> None:
    """Log the token lengths of evenly spaced samples and of the longest one; `sizes` are lengths in characters."""
    if not sizes:
        return
    chosen = {int(place) for place in np.linspace(0, len(sizes) - 1, min(len(sizes), SAMPLED))}
    longest = int(np.argmax(sizes))
    found = {}
    with preserve_rng_state():
        for index in sorted({*chosen, longest}):
            set_current_sample(0, index)
            found[index] = sum(len(task.tokenizer.encode(text)) for text in task.texts(source[index]))
    counts = np.array([found[index] for index in sorted(chosen)])
    log_lengths(split, counts, found[longest], lambda: where_in(source, longest))


def log_lengths(split: str, counts: np.ndarray, most: int, where: Callable[[], str], what: str = "text") -> None:
    """Log the length distribution of a split; `most` is the maximum length, and `where` returns its location."""
    median, usual = (int(np.quantile(counts, share, method="higher")) for share in (0.5, 0.95))
    most = max(most, int(counts.max()))
    text = "lengths of {}{}: median {:,}, 95% {:,}, max {:,} tokens"
    side = "" if what == "text" else f", {what}"
    logger.log("INFO" if split == "train" else "DEBUG", text, split, side, median, usual, most)
    if most > 10 * max(usual, 10):
        text = "{}: the longest {} of {} has {:,} tokens, 95% have at most {:,}: are several rows merged into one?"
        logger.warning(text, where(), what, split, most, usual)
