"""The command-line entry point: dispatch to a command and map errors to exit codes."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Iterator, Sequence
from typing import Any, TextIO

from alchemy.errors import AlchemyError, ConfigError, IndexFailed, did_you_mean

BROKEN_PIPE = 128 + 13  # 128 + SIGPIPE, the exit code that shells report

# each command is a module that defines COMMAND; the descriptions are here so that --help imports none of them
COMMANDS = {
    "run": "run the experiments that configs describe",
    "resume": "resume an interrupted run, with bit-identical results",
    "rerun": "repeat a run from its record and compare the results",
    "test": "evaluate a trained model on its test split",
    "predict": "write the predictions of a trained model",
    "generate": "translate the lines of a file with a trained model",
    "export": "export a trained model for another program",
    "score": "compute the log-probability of given translations",
    "check": "find mistakes in a config without running it",
    "config": "show a resolved config, explain a value, compare two configs",
    "data": "inspect data pipes, build corpora, manage cached samples",
    "find": "search for a suitable learning rate and batch size",
    "model": "show the layers of a model, and draw its graph",
    "parts": "list the available parts with their parameters",
    "ls": "list, filter and sort records",
    "show": "summarize a record on one screen",
    "search": "search the texts of records",
    "tag": "add tags to records, and remove them",
    "note": "add a note to a record",
    "purpose": "print or change the purpose of a record",
    "open": "print the folder of a record, or open its README, config or log",
    "du": "show how much disk space records use",
    "rm": "move records to the bin, and restore them",
    "gc": "delete old checkpoints, caches and the contents of the bin",
    "archive": "pack records into one file",
    "import": "unpack an archive of records",
    "mail": "see which runs have finished or failed, and why",
    "index": "update or rebuild the index of records",
    "diff": "show what differs between two records, or since a run",
    "compare": "compare the configs and results of runs, over seeds",
    "plot": "plot the metrics of runs, in the terminal or as a picture",
    "watch": "follow the curves of a running record in the terminal",
    "report": "write runs as one HTML page to read, send and keep",
    "export-tb": "write the metrics of records for TensorBoard",
    "import-tb": "create records from TensorBoard logs",
    "table": "show and edit tables of results",
    "checkpoint": "list, verify, average and import checkpoints",
    "new": "create a small working project",
    "stop": "stop a running experiment cleanly",
    "queue": "run experiments one after the other, on all devices of this machine",
    "sweep": "search for good values of config keys with many runs",
    "replay": "rerun one update of a record and inspect it",
    "trust": "trust the configs of records created by others",
    "verify": "check that the guarantees hold for your own records and configs",
    "version": "print the versions of alchemy, Python and torch",
    "completion": "print a shell completion script",
}

# planned commands
PLANNED = {
    "serve": "the dashboard",
    "web": "the dashboard",
    "deploy": "serving a trained model",
}

EXAMPLES = """examples:
  alchemy new demo && cd demo && alchemy run train.toml
  alchemy check train.toml --deep
  alchemy run train.toml --set optim.lr=1e-3 --seeds 1,2,3"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0, 1 (a run failed), 2 (usage error), or 130 or 143 (signals)."""
    words = [decode_argument(word) for word in (sys.argv[1:] if argv is None else argv)]
    if argv is None:
        sys.argv[1:] = [repair_argument(word) for word in sys.argv[1:]]  # records store the command
    _allow_unprintable()
    out = _Output(sys.stdout or open(os.devnull, "w"))  # noqa: SIM115  (stdout is None if it was closed)
    try:
        with contextlib.redirect_stdout(out):
            _check_not_shadowed()
            code = _dispatch(words)
            sys.stdout.flush()  # flush here, where a closed pipe is still handled
        return code or int(out.failed)
    except AlchemyError as error:
        _print_error(error)
        return error.exit_code
    except KeyboardInterrupt as error:
        from alchemy.launch.signals import signal_number

        return 128 + signal_number(error)
    except BrokenPipeError:
        _silence_stdout()
        return BROKEN_PIPE


def _print_error(error: AlchemyError) -> None:
    from alchemy.cli.problems import print_problems

    if isinstance(error, ConfigError):
        print_problems(error.problems, sys.stderr)
    else:
        from alchemy.config.secrets import hide

        print(hide(f"error: {error}"), file=sys.stderr)


def _check_not_shadowed() -> None:
    """Raise an error if an `alchemy` folder in the working directory shadows this package."""
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
        raise AlchemyError(f"unknown {kind} {name!r}", hint=hint)
    return _execute(name, rest)


def _execute(name: str, words: list[str]) -> int:
    from alchemy.cli.options import load_command, parse_command

    try:
        args = parse_command(name, words)
    except SystemExit as done:  # raised by argparse after --help
        return int(done.code or 0)
    args.words = words
    if "device" in args:  # the command runs a model
        from alchemy.launch.allocator import keep_memory

        keep_memory()
    main = load_command(name).main
    try:
        return main(args)
    except IndexFailed as error:  # while records were queried; the second attempt opens the index again
        print(f"warning: the index of records failed ({error}); trying again", file=sys.stderr)
        return main(args)
    except FileNotFoundError:
        from alchemy.files import working_directory

        working_directory()  # raises an error if it was deleted, which is then the cause
        raise


def _complete(words: list[str]) -> int:
    from alchemy.cli.completion import complete

    print("\n".join(complete(words)))
    return 0


def _overview() -> str:
    """Return the text of `alchemy --help`, without building a parser."""
    rows = "\n".join(f"  {name:<11} {purpose}" for name, purpose in COMMANDS.items())
    return (
        "usage: alchemy COMMAND ...\n\n"
        "Run deep-learning experiments described in TOML files.\n\n"
        f"commands:\n{rows}\n\n{EXAMPLES}\n\nRun 'alchemy COMMAND --help' for details on a command."
    )


def _allow_unprintable() -> None:
    """Escape characters that the terminal cannot encode instead of raising an error."""
    for stream in (sys.stdout, sys.stderr):
        # `surrogateescape` is the default in the C locale
        if isinstance(stream, io.TextIOWrapper) and stream.errors in ("strict", "surrogateescape"):
            stream.reconfigure(errors="backslashreplace")


class _Output:
    """Standard output that reports the first write error, such as a full disk, and discards all further output.

    The command continues: a training run matters more than its console output.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream, self.failed = stream, False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        with self._catch_errors():
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with self._catch_errors():
            self._stream.flush()

    @contextlib.contextmanager
    def _catch_errors(self) -> Iterator[None]:
        try:
            yield
        except BrokenPipeError:
            raise
        except OSError as error:  # happens only once: the output is silenced from here on
            self.failed = True
            _silence_stdout()
            print(f"error: cannot write to standard output: {error.strerror}", file=sys.stderr)


def repair_argument(word: str) -> str:
    """Decode an argument as UTF-8 if the locale could not decode it, for example in an ASCII terminal."""
    return os.fsencode(word).decode("utf-8", "replace") if _is_broken(word) else word


def decode_argument(word: str) -> str:
    """Like `repair_argument`, but leave the names of existing files unchanged so that they can be opened."""
    return word if _is_broken(word) and os.path.exists(word.partition("#")[0]) else repair_argument(word)


def _is_broken(word: str) -> bool:
    return any("\udc80" <= letter <= "\udcff" for letter in word)


def _silence_stdout() -> None:
    # otherwise flushing the buffer at interpreter exit would fail again
    with contextlib.suppress(OSError, ValueError):  # a stream without a file descriptor, as in a notebook
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
