"""The calls of schedule pipes: one after another, and from the one that a signal has interrupted after a resume."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor

Pipe = Callable[..., Mapping[str, Any] | None]


class PipeCalls:
    """Hands keywords from pipe to pipe, and knows which one is running.

    A state that is saved while a pipe evaluates holds what this pipe was given; the resumed run calls it again.
    """

    def __init__(self) -> None:
        self.pending: tuple[str, int] | None = None  # the moment, and the place of the pipe that is running
        self.passed: Mapping[str, Any] | None = None  # what the pipes before it have left for it
        self.outputs: Any = None  # of the step whose end pipes are running

    def run(self, moment: str, pipes: Sequence[Pipe], *args: object, **kwargs: object) -> None:
        first: int = 0
        passed: Mapping[str, Any] = kwargs
        if self.pending is not None and self.pending[0] == moment:
            first, passed = self.pending[1], dict(self.passed or {})
        for number in range(first, len(pipes)):
            self.pending, self.passed = (moment, number), passed
            answer = pipes[number](*args, **passed)
            # a pipe that returns nothing has changed nothing
            passed = passed if answer is None else answer
        self.pending = self.passed = None

    @property
    def resumable(self) -> bool:
        """Whether a state that is saved now can be resumed: the pipe that is running needs what it was given."""
        return self.pending is None or (self.pending[0] != "begin_step" and _is_plain([self.outputs, self.passed]))

    def state_dict(self) -> dict[str, Any]:
        return {"pending": self.pending, "outputs": self.outputs, "passed": self.passed}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.pending, self.outputs, self.passed = state["pending"], state["outputs"], state["passed"]


def _is_plain(value: object) -> bool:
    """Whether a checkpoint can hold a value: numbers, texts, tensors, and what is made of them."""
    if isinstance(value, Mapping):
        return all(isinstance(key, str) and _is_plain(inner) for key, inner in value.items())
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return isinstance(value, str | int | float | bool | Tensor | None)
