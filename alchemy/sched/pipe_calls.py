"""Call schedule pipes in order; after resuming, start with the interrupted pipe."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor

Pipe = Callable[..., Mapping[str, Any] | None]


class PipeCalls:
    """Passes keywords from pipe to pipe and tracks which pipe is running.

    A checkpoint saved while a pipe evaluates contains the pipe's arguments; the resumed run calls it again.
    """

    def __init__(self) -> None:
        self.pending: tuple[str, int] | None = None  # the hook, and the index of the running pipe
        self.passed: Mapping[str, Any] | None = None  # keywords returned by the previous pipe
        self.outputs: Any = None  # outputs of the step whose end-step pipes are running

    def run(self, moment: str, pipes: Sequence[Pipe], *args: object, **kwargs: object) -> None:
        first: int = 0
        passed: Mapping[str, Any] = kwargs
        if self.pending is not None and self.pending[0] == moment:
            first, passed = self.pending[1], dict(self.passed or {})
        for number in range(first, len(pipes)):
            self.pending, self.passed = (moment, number), passed
            result = pipes[number](*args, **passed)
            # a pipe that returns None changes nothing
            passed = passed if result is None else result
        self.pending = self.passed = None

    @property
    def resumable(self) -> bool:
        """Whether a checkpoint saved now could be resumed: it must contain the arguments of the running pipe."""
        return self.pending is None or (self.pending[0] != "begin_step" and _is_plain([self.outputs, self.passed]))

    def state_dict(self) -> dict[str, Any]:
        return {"pending": self.pending, "outputs": self.outputs, "passed": self.passed}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.pending, self.outputs, self.passed = state["pending"], state["outputs"], state["passed"]


def _is_plain(value: object) -> bool:
    """Return whether a checkpoint can contain a value: numbers, strings, tensors, and containers of them."""
    if isinstance(value, Mapping):
        return all(isinstance(key, str) and _is_plain(inner) for key, inner in value.items())
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return isinstance(value, str | int | float | bool | Tensor | None)
