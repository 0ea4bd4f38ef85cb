"""`alchemy completion`: print shell completion scripts and compute the candidates."""

from __future__ import annotations

import argparse
import glob
import os
from collections.abc import Sequence

from alchemy.cli.options import Command

EXAMPLES = """examples:
  eval "$(alchemy completion bash)"                                      # in ~/.bashrc
  alchemy completion zsh > ~/.zfunc/_alchemy                             # in a folder of $fpath
  alchemy completion fish > ~/.config/fish/completions/alchemy.fish"""

# positional arguments that name records
RECORDS = ("record", "records", "runs", "a", "b", "other", "target", "source", "sources")
# each script calls `alchemy __complete` and falls back to file names
SCRIPTS = {
    "bash": """_alchemy() {
    local IFS=$'\\n'
    COMPREPLY=($(alchemy __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o default -o bashdefault -F _alchemy alchemy""",
    "zsh": """#compdef alchemy
_alchemy() {
    local -a found
    found=(${(f)"$(alchemy __complete "${(@)words[2,CURRENT]}" 2>/dev/null)"})
    if (( $#found )); then compadd -a found; else _files; fi
}
if [ "$funcstack[1]" = "_alchemy" ]; then _alchemy "$@"; else compdef _alchemy alchemy; fi""",
    "fish": """function __alchemy_complete
    set -l words (commandline -opc) (commandline -ct)
    alchemy __complete $words[2..-1] 2>/dev/null
end
complete -c alchemy -a '(__alchemy_complete)'""",
}


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=list(SCRIPTS), metavar="SHELL", help="bash, zsh or fish")


def _main(args: argparse.Namespace) -> int:
    print(SCRIPTS[args.shell])
    return 0


def complete(words: Sequence[str]) -> list[str]:
    """Return the completions for the last word; an empty list makes the shell complete file names.

    >>> complete(["ver"])
    ['verify', 'version']
    """
    from alchemy.cli import COMMANDS
    from alchemy.cli.options import build_parser, load_command

    typed = words[-1] if words else ""
    if len(words) <= 1:
        return _filter(typed, [*COMMANDS, "--help", "--version"])
    if words[0] not in COMMANDS:
        return []
    parser, given = build_parser(words[0]), words[1:-1]
    nested = parser.nested()
    if nested and not given:
        return _filter(typed, parser.options() if typed.startswith("-") else list(nested))
    if nested and given[0] not in nested:
        default = load_command(words[0]).default
        if not default:
            return []
        given = [default, *given]
    if nested:
        parser, given = nested[given[0]], given[1:]
    if "#" in typed:
        return _complete_variants(typed)
    if typed.startswith("-"):
        return _filter(typed, parser.options())
    action = parser.argument_after(given)
    if action is None:
        return []
    if action.choices:
        return _filter(typed, [str(choice) for choice in action.choices])
    return _complete_name(action, typed)


def _complete_name(action: argparse.Action, typed: str) -> list[str]:
    """Complete the name of a record, a metric or a column from the index, or of a table or a sweep."""
    if action.dest == "table":
        from alchemy.analysis.table_files import list_tables

        return _filter(typed, [path.stem for path in list_tables()])
    if action.dest == "sweep":
        from alchemy.sweep.study import list_studies

        return _filter(typed, list_studies())
    from alchemy.files import home
    from alchemy.index.completions import complete_column, complete_metric, complete_record, is_harmless

    opening = typed[:1] if typed[:1] in ("'", '"') else ""  # bash passes the quote of an incomplete word
    text = typed.removeprefix(opening)
    if not action.option_strings:
        found = complete_record(home(), text) if action.dest in RECORDS else []
        files = sorted(filter(is_harmless, glob.glob("*.toml"))) if action.dest == "target" and not typed else []
        return [f"{opening}{name}" for name in found] + files
    names = {"--metric": complete_metric, "--sort": complete_column, "--columns": complete_column}
    complete = next((names[option] for option in action.option_strings if option in names), None)
    before, comma, last = text.rpartition(",")
    return [f"{opening}{before}{comma}{name}" for name in complete(home(), last)] if complete else []


def _complete_variants(typed: str) -> list[str]:
    from alchemy.config.load import variants
    from alchemy.errors import AlchemyError

    file = typed.partition("#")[0]
    path = os.path.expanduser(file)
    if not os.path.isfile(path):
        return []
    try:
        return _filter(typed, [f"{file}#{name}" for name in variants(path)])
    except AlchemyError:
        return []


def _filter(typed: str, words: Sequence[str]) -> list[str]:
    return [word for word in words if word.startswith(typed)]


COMMAND = Command(_arguments, _main, EXAMPLES)
