"""The command line: imports the one command that is asked for, and turns its errors into exit codes."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Iterator, Sequence
from typing import Any, TextIO

from alchemy.errors import AlchemyError, ConfigError, did_you_mean

BROKEN_PIPE = 128 + 13  # as a shell counts the signal that ends other programs here

# a command is the module of that name in this folder, which has it as COMMAND; what it is for stands here
COMMANDS = {
    "run": "run the experiments that configs describe",
    "resume": "go on with an interrupted run, exactly",
    "test": "evaluate a trained record, or a config, on its test split",
    "predict": "write the predictions of a trained record, or of a config, to a file",
    "generate": "write the texts of a trained model for the lines of a file",
    "export": "write a trained model as a file that other programs read",
    "score": "tell how likely given translations are for a trained model",
    "check": "find what is wrong with a config, without running it",
    "config": "show a resolved config, explain a value, compare two configs",
    "data": "look at what flows between the data pipes",
    "find": "try out which learning rate and batch size suit a config",
    "parts": "list the parts that a config can name, with their parameters",
    "checkpoint": "list, verify, average and import checkpoints",
    "new": "write a small working project that trains at once",
    "stop": "ask a running experiment to end cleanly",
    "replay": "make one update of a record again, and look at it closely",
    "trust": "trust the configs of records made elsewhere",
    "verify": "check the promises on your own records and configs",
    "version": "print the versions of alchemy, Python and torch",
    "completion": "print the completion script of a shell",
}

# commands that have a name and are not available yet
PLANNED = {
    "serve": "the dashboard over the records",
    "web": "the dashboard over the records",
    "rerun": "repeating a run from its record",
    "ls": "the list of records",
    "show": "a record at a glance",
    "search": "full text search over records",
    "diff": "the comparison of two records",
    "compare": "the comparison of two records",
    "tag": "tags of records",
    "note": "notes on records",
    "rm": "removing records",
    "gc": "clearing caches and dead records",
    "du": "the disk space of records",
    "table": "tables of results",
    "mail": "the mailbox of finished and failed runs",
    "report": "the report of a run as a page",
    "deploy": "the server of a trained model",
    "sweep": "searches over a config",
    "queue": "the queue of runs",
}

EXAMPLES = """examples:
  alchemy new demo && cd demo && alchemy run train.toml
  alchemy check train.toml --deep
  alchemy run train.toml --set optim.lr=1e-3 --seeds 1,2,3"""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code: 0, 1 a run failed, 2 the user's error, 130 and 143 on signals."""
    words = [decode_argument(word) for word in (sys.argv[1:] if argv is None else argv)]
    if argv is None:
        sys.argv[1:] = [repair_argument(word) for word in sys.argv[1:]]  # records keep the command
    _never_fail_to_print()
    out = _Output(sys.stdout or open(os.devnull, "w"))  # noqa: SIM115  (there is none where it was closed)
    try:
        with contextlib.redirect_stdout(out):
            _refuse_if_hidden()
            code = _dispatch(words)
            sys.stdout.flush()  # here, where a closed pipe can still be met quietly
        return code or int(out.failed)
    except AlchemyError as error:
        _tell(error)
        return error.exit_code
    except KeyboardInterrupt as error:
        from alchemy.launch.signals import signal_number

        return 128 + signal_number(error)
    except BrokenPipeError:
        _silence_stdout()
        return BROKEN_PIPE


def _tell(error: AlchemyError) -> None:
    from alchemy.cli.problems import print_problems

    if isinstance(error, ConfigError):
        print_problems(error.problems, sys.stderr)
    else:
        from alchemy.config.secrets import hide

        print(hide(f"error: {error}"), file=sys.stderr)


def _refuse_if_hidden() -> None:
    """`python -m alchemy` beside an empty folder `alchemy` finds this package only in part."""
    if sys.modules["alchemy"].__file__ is None:
        from alchemy.launch.project_imports import check_not_shadowed

        check_not_shadowed()


def _dispatch(words: list[str]) -> int:
    if words[:1] == ["help"]:
        words = [*words[1:2], "--help"]
    if not words:
        print(_overview(), file=sys.stderr)
        return 2
    name, rest = words[0], words[1:]
    if name in ("-h", "--help"):
        print(_overview())
        return 0
    if name in ("-V", "--version"):
        name = "version"
    if name == "__complete":
        return _complete(rest)
    if name in PLANNED:
        print(f"alchemy {name}: {PLANNED[name]} is not available yet", file=sys.stderr)
        return 2
    if name not in COMMANDS:
        kind = "option" if name.startswith("-") else "command"
        hint = did_you_mean(name, [*COMMANDS, *PLANNED, "--help", "--version"]) or "see 'alchemy --help'"
        raise AlchemyError(f"alchemy has no {kind} {name!r}", hint=hint)
    return _execute(name, rest)


def _execute(name: str, words: list[str]) -> int:
    from alchemy.cli.options import load_command, parse_command

    try:
        args = parse_command(name, words)
    except SystemExit as done:  # argparse ends so after --help
        return int(done.code or 0)
    args.words = words
    if "device" in args:  # it computes, in a process of its own
        from alchemy.launch.allocator import keep_memory

        keep_memory()
    return load_command(name).main(args)


def _complete(words: list[str]) -> int:
    from alchemy.cli.completion import complete

    print("\n".join(complete(words)))
    return 0


def _overview() -> str:
    """What `alchemy --help` prints, made without a parser so that it costs nothing."""
    rows = "\n".join(f"  {name:<11} {purpose}" for name, purpose in COMMANDS.items())
    return (
        "usage: alchemy COMMAND ...\n\n"
        "Experiments from modules and a TOML file.\n\n"
        f"commands:\n{rows}\n\n{EXAMPLES}\n\n'alchemy COMMAND --help' tells more about one of them."
    )


def _never_fail_to_print() -> None:
    """A terminal that knows only ASCII shows an escape in place of a letter, never a traceback."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")


class _Output:
    """An output that cannot be written, as on a full disk, says so once and is silent from then on.

    What is being done goes on: a training is worth more than its log on the screen.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream, self.failed = stream, False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        with self._forgiving():
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with self._forgiving():
            self._stream.flush()

    @contextlib.contextmanager
    def _forgiving(self) -> Iterator[None]:
        try:
            yield
        except BrokenPipeError:
            raise
        except OSError as error:  # once: what it silences does not fail again
            self.failed = True
            _silence_stdout()
            print(f"error: cannot write to the output: {error.strerror}", file=sys.stderr)


def repair_argument(word: str) -> str:
    """An argument as it was typed, where the locale could not decode it: UTF-8 in a terminal set to ASCII."""
    return os.fsencode(word).decode("utf-8", "replace") if _is_broken(word) else word


def decode_argument(word: str) -> str:
    """The same, but the name of a file stays as the system gives it, or it would not be found."""
    return word if _is_broken(word) and os.path.exists(word.partition("#")[0]) else repair_argument(word)


def _is_broken(word: str) -> bool:
    return any("\udc80" <= letter <= "\udcff" for letter in word)


def _silence_stdout() -> None:
    # what is still in the buffer would fail again when the interpreter closes it
    with contextlib.suppress(OSError, ValueError):  # a stream without a file, as in a notebook
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
