"""`alchemy mail`: the inbox of runs that have finished or failed."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from alchemy.cli.index import open_index
from alchemy.cli.options import Command, Parser, add_json, add_limit, print_json
from alchemy.errors import AlchemyError, printable

if TYPE_CHECKING:
    from alchemy.analysis.mail_marks import Mark
    from alchemy.analysis.mailbox import Mail, Mailbox, MailGroup
    from alchemy.web.send_mail import MailSettings

EXAMPLES = """examples:
  alchemy mail --since -1d              # what has ended since yesterday, grouped by cause
  alchemy mail show 1                   # the first of these lines: cause, traceback, log, command
  alchemy mail read --all
  alchemy mail clear --read
  alchemy mail send                     # send what no run could send, such as killed runs; for cron"""

UNREAD = "*"  # sign of an unread mail
MAIL = "a number in the list, a mail id, or a record"
_ALL = "--all"


def _arguments(parser: Parser) -> None:
    add = parser.add_argument
    add("--unread", action="store_true", help="only mails that are not marked as read")
    add("--since", metavar="TIME", help="only newer mails: a date, or an age such as -1d or -8h")
    add_limit(parser, 30, "lines")
    add_json(parser)
    text = "without an action, the mails are listed, newest first"
    actions = parser.add_subparsers(dest="action", metavar="ACTION", title="actions", description=text)

    def action(name: str, text: str) -> argparse.ArgumentParser:
        return actions.add_parser(name, help=text, epilog=EXAMPLES)

    show = action("show", "print a mail in full, and mark it as read")
    show.add_argument("mail", metavar="MAIL", help=MAIL)
    show.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="print JSON")
    read = action("read", "mark mails as read")
    clear = action("clear", "remove mails from the list; their records are kept")
    for marking in (read, clear):
        marking.add_argument("mails", nargs="*", metavar="MAIL", help=MAIL)
        marking.add_argument(_ALL, dest="every", action="store_true", help="all mails")
    clear.add_argument("--read", dest="only_read", action="store_true", help="all mails that are marked as read")
    send = action("send", "send one message about all mails that have not been sent")
    send.add_argument("--since", metavar="TIME", default="-1d", help="only newer mails (default: -1d)")
    action("test", "send a test message with the settings in .alchemy/config.toml; exit code 1 if that fails")


def _main(args: argparse.Namespace) -> int:
    actions: dict[str | None, Callable[[argparse.Namespace], int]] = {
        None: _list,
        "show": _show,
        "read": _read,
        "clear": _clear,
        "send": _send,
        "test": _test,
    }
    return actions[args.action](args)


@contextlib.contextmanager
def _open() -> Iterator[Mailbox]:
    from alchemy.analysis.mailbox import Mailbox

    with open_index() as index:
        yield Mailbox(index)


def _since(args: argparse.Namespace) -> float | None:
    from alchemy.index.filters import parse_time

    return None if args.since is None else parse_time(args.since)


def _list(args: argparse.Namespace) -> int:
    since = _since(args)
    with _open() as mailbox:
        groups = mailbox.select(unread=args.unread, since=since)
        shown = groups[: args.limit]
        if args.json:
            print_json([_as_data(mailbox, group) for group in shown])
        elif shown:
            _print_groups(mailbox, shown)
        else:
            print("no unread mail" if args.unread else "no mail")
    if len(shown) < len(groups) and not args.json:
        print(f"\n{len(shown)} of {len(groups)} lines; -n 0 shows all", file=sys.stderr)
    return 0


def _print_groups(mailbox: Mailbox, groups: list[MailGroup]) -> None:
    from alchemy.cli.table_format import print_table
    from alchemy.index.value_format import format_time

    columns = ["", "no", "when", "what", "runs", "tag", "cause"]
    rows: list[list[str]] = []
    styles: dict[tuple[int, int], int] = {}
    for place, group in enumerate(groups):
        mail, unread = group.newest, any(map(mailbox.is_unread, group.mails))
        tags = list(dict.fromkeys(mail.row.tag for mail in group.mails))
        tag = tags[0] if len(tags) == 1 else f"{tags[0]} and {len(tags) - 1} more"
        what = f"test {mail.kind}" if all(mail.row.kind == "test" for mail in group.mails) else mail.kind
        cells = [str(group.number), format_time(mail.when), what, str(len(group.mails)), tag, group.cause]
        rows.append([UNREAD if unread else "", *cells])
        if unread:
            styles |= {(place, column): 1 for column in range(len(columns))}
    print_table(columns, rows, wide={"tag", "cause"}, styles=styles)


def _as_data(mailbox: Mailbox, group: MailGroup) -> dict[str, Any]:
    mail, numbers = group.newest, mailbox.numbers(group.mails)
    return {
        "number": group.number,
        "kind": mail.kind,
        "subject": group.subject,
        "cause": group.cause,
        "runs": len(group.mails),
        "unread": sum(map(mailbox.is_unread, group.mails)),
        "mails": [_mail_data(mailbox, mail, numbers[mail.id]) for mail in group.mails],
    }


def _mail_data(mailbox: Mailbox, mail: Mail, numbers: dict[str, float]) -> dict[str, Any]:
    from alchemy.index.value_format import format_iso

    row = mail.row
    return {
        "id": mail.id,
        "kind": mail.kind,
        "subject": mail.subject,
        "when": format_iso(mail.when),
        "record": row.name,
        "path": row.path,
        "tag": row.tag,
        "purpose": row.purpose,
        "gen": row.gen,
        "unread": mailbox.is_unread(mail),
        "cause": mail.cause,
        "numbers": numbers,
    }


def _show(args: argparse.Namespace) -> int:
    from alchemy.analysis.mail_text import describe_mails

    with _open() as mailbox:
        mails = mailbox.find(args.mail)
        numbers = mailbox.numbers(mails)
        text = describe_mails(mails, numbers[mails[0].id])
        if args.json:
            print_json({"text": text, "mails": [_mail_data(mailbox, mail, numbers[mail.id]) for mail in mails]})
        else:
            print(printable(text))
        try:
            mailbox.marks.add("read", [mail.id for mail in mails])
        except AlchemyError as error:  # a read-only project can still be looked at
            print(f"warning: {error}", file=sys.stderr)
    return 0


def _read(args: argparse.Namespace) -> int:
    with _open() as mailbox:
        print(f"{_mark(mailbox, 'read', _named(mailbox, args))} marked as read")
    return 0


def _clear(args: argparse.Namespace) -> int:
    if args.only_read and (args.mails or args.every):
        raise AlchemyError("--read cannot be combined with mails or --all")
    with _open() as mailbox:
        if args.only_read:
            mails = [mail for group in mailbox.groups for mail in group.mails if not mailbox.is_unread(mail)]
        else:
            mails = _named(mailbox, args)
        print(f"{_mark(mailbox, 'cleared', mails)} cleared")
    return 0


def _mark(mailbox: Mailbox, mark: Mark, mails: list[Mail]) -> str:
    """Mark mails; return how many did not have the mark yet, and how many lines of the list they are."""
    from alchemy.index.value_format import format_count

    groups = {mail.id: mail.group for mail in mails if mail.id not in mailbox.marks[mark]}
    count = mailbox.marks.add(mark, groups)
    return f"{format_count(count, 'mail')} ({format_count(len(set(groups.values())), 'line')})"


def _named(mailbox: Mailbox, args: argparse.Namespace) -> list[Mail]:
    if bool(args.mails) == args.every:
        raise AlchemyError("pass mails or --all", hint="`alchemy mail` lists them with their numbers")
    if args.every:
        return [mail for group in mailbox.groups for mail in group.mails]
    return [mail for name in args.mails for mail in mailbox.find(name)]


def _send(args: argparse.Namespace) -> int:
    from alchemy.analysis.mail_text import write_digest
    from alchemy.web.send_mail import Message, deliver

    settings, since = _settings(), _since(args)
    with _open() as mailbox:
        groups = mailbox.select_unsent(settings.events, since)
        if not groups:
            print("nothing to send")
            return 0
        results = deliver(settings, Message(*write_digest(groups), {"groups": [_as_data(mailbox, g) for g in groups]}))
        if not all(results.values()):  # sent at least once
            mailbox.marks.add("sent", [mail.id for group in groups for mail in group.mails])
    return _report(results)


def _test(args: argparse.Namespace) -> int:
    from alchemy.web.send_mail import Message, deliver

    text = "This is a test. Your runs will send messages like this one when they end."
    return _report(deliver(_settings(), Message("alchemy: a test message", text, {"kind": "test"})))


def _settings() -> MailSettings:
    from alchemy.web.send_mail import load_mail_settings

    settings = load_mail_settings()
    if settings is None:
        hint = 'add a table [mail] with smtp = "HOST:PORT" and to = "ADDRESS", or webhook = "https://.."'
        raise AlchemyError("mail is not set up in .alchemy/config.toml", hint=hint)
    return settings


def _report(results: dict[str, str]) -> int:
    for name, error in results.items():
        print(printable(f"{name}: {f'not sent: {error}' if error else 'sent'}"))
    return int(any(results.values()))


COMMAND = Command(_arguments, _main, EXAMPLES)
