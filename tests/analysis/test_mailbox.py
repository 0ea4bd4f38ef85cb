"""Mails are derived from the records: what ended, and every new best, grouped by cause."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alchemy.analysis.mail_marks import FILE, MailMarks
from alchemy.analysis.mail_text import describe_mails
from alchemy.analysis.mailbox import Mailbox, find_former_best
from alchemy.errors import AlchemyError
from alchemy.index.record_index import RecordIndex
from tests.analysis.fake_runs import write_run

TRACE = (
    'Traceback (most recent call last):\n  File "/p/src/model.py", line {n}, in forward\n    x\nValueError: bad {n}\n'
)


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def add(tmp_path):
    """Return a function that writes a record and returns its folder."""

    def write(number, *, trace="", changes=(), metrics=None, **options):
        folder = tmp_path / "records" / write_run(tmp_path / "records", number, metrics or {}, **options)
        if trace:
            (folder / "mail.json").write_text(json.dumps({"status": "failed", "traceback": trace}))
        info = json.loads((folder / "record.json").read_text())
        (folder / "record.json").write_text(json.dumps(info | dict(changes)))
        return folder

    return write


def mailbox(text="records"):
    with RecordIndex.open([text]) as index:
        return Mailbox(index)


def subjects():
    return [mail.subject for mail in mailbox().all]


def test_every_end_is_a_mail_and_a_running_run_is_none(add):
    for number, status in enumerate(("finished", "failed", "killed", "lost", "stopped", "running")):
        add(number, status=status, changes={"reason": "because"} if status != "finished" else ())
    add(9, kind="predict")
    ended = json.loads((add(8, kind="test", tag="demo") / "record.json").read_text())["id"]
    found = mailbox().all
    # a run on another machine without a heartbeat is lost, whatever its status says
    kinds = ["finished", "lost", "stopped", "lost", "killed", "failed", "finished"]
    assert [mail.kind for mail in found] == kinds
    assert found[0].id == f"{ended}:0:finished"
    assert found[0].subject == "finished: demo (test)"
    assert found[2].subject == "stopped: demo: because"


def test_the_same_fault_in_ten_runs_is_one_group(add):
    for number in range(10):
        add(number, status="failed", trace=TRACE.format(n=number), tag=f"tag{number}")
    add(20, status="failed", trace=TRACE.format(n=1).replace("Value", "Key"))
    first, second = mailbox().groups
    assert (first.number, len(first.mails), first.newest.cause) == (1, 1, "KeyError: bad 1 (model.py:forward)")
    assert (second.number, len(second.mails), second.newest.cause) == (2, 10, "ValueError: bad 9 (model.py:forward)")


@pytest.mark.parametrize(
    ("values", "mode", "new"),
    [
        ([0.5, 0.4, 0.7, 0.7, 0.9], None, [0.7, 0.9]),
        ([0.5, 0.4, 0.7, 0.7, 0.3], "min", [0.4, 0.3]),
        ([0.5], None, []),
    ],
)
def test_a_new_best_beats_all_earlier_runs_with_the_tag(add, values, mode, new):
    config = {"checkpoint": {"mode": mode}} if mode else {}
    for number, value in enumerate(values):
        add(number, metrics={"dev/f1": value}, config=config)
        add(100 + number, metrics={"dev/f1": 0.99}, config=config, tag="other")
    found = [mail for mail in mailbox().all if mail.kind == "new best"]
    assert [mail.row.best_value for mail in reversed(found)] == new


def test_a_failed_run_sets_the_bar_but_is_no_new_best(add):
    add(0, metrics={"dev/f1": 0.5})
    add(1, metrics={"dev/f1": 0.9}, status="failed")
    folder = add(2, metrics={"dev/f1": 0.8})
    assert not [text for text in subjects() if text.startswith("new best")]
    with RecordIndex.open(["records"]) as index:
        assert find_former_best(index, str(folder), "dev/f1", 0.8) is None
        assert find_former_best(index, str(folder), "dev/f1", 0.95) == 0.9
        assert find_former_best(index, "/nowhere", "dev/f1", 0.95) is None


def test_marks_survive_the_loss_of_the_index(add, tmp_path):
    add(0)
    add(1, tag="other")
    box = mailbox()
    box.marks.add("read", [box.all[0].id])
    box.marks.add("cleared", [box.all[1].id])
    (tmp_path / ".alchemy" / "index.db").unlink()
    box = mailbox()
    assert [mail.row.tag for group in box.groups for mail in group.mails] == ["other"]
    assert box.select(unread=True) == []


def test_a_resumed_run_sends_a_new_mail(add):
    folder = add(0, status="failed")
    box = mailbox()
    box.marks.add("cleared", [mail.id for mail in box.all])
    info = json.loads((folder / "record.json").read_text())
    (folder / "record.json").write_text(json.dumps(info | {"gen": 1}))
    (group,) = mailbox().groups
    assert group.newest.id.endswith(":1:failed")


def test_mails_are_found_by_number_id_and_record(add):
    folders = [add(number, tag=f"tag{number}") for number in range(3)]
    with RecordIndex.open(["records"]) as index:
        box = Mailbox(index)
        for name in ("1", folders[2].name, f"{folders[2].name}:0:finished", str(folders[2]), "last", "2026-03-01_14"):
            assert [mail.row.name for mail in box.find(name)] == [folders[2].name]
        for name, error in (
            ("0", "no mail 0; the mailbox has 3 lines"),
            ("4", "no mail 4"),
            ("2027", "record not found"),
        ):
            with pytest.raises(AlchemyError, match=error):
                box.find(name)


def test_a_run_that_sent_its_mail_is_not_sent_again(add, tmp_path):
    sent = {"status": "finished", "gen": 0, "sent": ["e-mail"]}
    (add(0) / "mail.json").write_text(json.dumps(sent))
    (add(1, tag="resumed", changes={"gen": 1}) / "mail.json").write_text(json.dumps(sent))
    add(2, tag="marked")
    add(3, tag="dead", status="killed")
    add(4, tag="stopped", status="stopped")
    box = mailbox()
    box.marks.add("sent", [mail.id for mail in box.all if mail.row.tag == "marked"])
    found = box.select_unsent(("finished", "failed"), None)
    assert [group.newest.row.tag for group in found] == ["dead", "resumed"]
    assert box.select_unsent(("finished", "failed"), 2e9) == []


def test_the_text_of_a_failure_says_why_and_how_to_repeat_it(add, tmp_path):
    folders = [add(number, status="failed", trace=TRACE.format(n=number)) for number in range(2)]
    (folders[1] / "run.log").write_text("12:00 begin\n12:01 failed\n" + TRACE.format(n=1) + "\n12:02 end\n")
    (folders[1] / "env.json").write_text(json.dumps({"cwd": "/my project"}))
    (folders[1] / "state" / "last").mkdir(parents=True)
    text = describe_mails(mailbox().groups[0].mails, {"dev/f1": 0.5})
    for part in (
        "failed: demo\n",
        "reason:  ValueError: bad 1 (model.py:forward)\n",
        f"record:  records/{folders[1].name}\n",
        "numbers: dev/f1 0.5\n",
        "again:   cd '/my project' && alchemy run a.toml\n",
        f"resume:  alchemy resume records/{folders[1].name}\n",
        'end of the traceback:\n  Traceback (most recent call last):\n    File "/p/src/model.py", line 1, in forward\n',
        f"last lines of records/{folders[1].name}/run.log:\n  12:00 begin\n  12:01 failed\n",
        f"1 more like this:\n  {folders[0].name}",
    ):
        assert part in text


def test_the_cause_is_shown_once_and_the_reason_in_full(add):
    note = f"in epoch 1/3, samples {', '.join(map(str, range(200)))}"
    first = TRACE.format(n=0).replace("bad 0", "first")
    chained = "The above exception was the direct cause of the following exception:"
    trace = f"{first}\n{chained}\n\n{TRACE.format(n=7)}{note}"
    folder = add(0, status="failed", trace=trace, changes={"reason": f"ValueError: bad 7; {note}"})
    (folder / "run.log").write_text(f"12:00 begin\n{trace}\n\n12:02 end\n")
    text = describe_mails(mailbox().groups[0].mails, {})
    assert text.count("bad 7") == 1
    assert f"reason:  ValueError: bad 7; {note}\n" in text
    assert text.endswith("run.log:\n  12:00 begin")  # the log is shown up to the traceback


def test_finished_runs_on_a_line_differ_only_in_their_seed(add):
    for number, (lr, seed) in enumerate([(0.1, 1), (0.2, 1), (0.1, 2)]):
        add(number, config={"lr": lr}, seed=seed)
    assert [[mail.row.seed for mail in group.mails] for group in mailbox().groups] == [["2", "1"], ["1"]]


# -- marks
def test_several_processes_mark_at_the_same_time(tmp_path):
    code = "import sys; from pathlib import Path; from alchemy.analysis.mail_marks import MailMarks\n"
    code += "for n in range(50): MailMarks(Path('.')).add('read', [f'{sys.argv[1]}-{n}-{i}' for i in range(150)])"
    here = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    jobs = [subprocess.Popen([sys.executable, "-c", code, name], env=here) for name in "ab"]
    assert [job.wait() for job in jobs] == [0, 0]
    assert len(MailMarks(tmp_path)["read"]) == 2 * 50 * 150


@given(st.lists(st.binary(max_size=40) | st.sampled_from([b'{"mark": "read", "ids": [3]}', b'{"mark": []}', b"[1]"])))
def test_damaged_lines_are_skipped(tmp_path_factory, lines):
    home = tmp_path_factory.mktemp("home")
    (home / FILE).parent.mkdir()
    (home / FILE).write_bytes(b"\n".join([b'{"mark": "read", "ids": ["a"]}', *lines]))
    marks = MailMarks(home)
    marks.add("cleared", ["b"])
    assert "a" in MailMarks(home)["read"]
    assert "b" in MailMarks(home)["cleared"]


def test_marks_that_cannot_be_written_or_read_are_explained(tmp_path):
    (tmp_path / "mail").write_text("a file")
    with pytest.raises(AlchemyError, match="cannot be read: Not a directory"):
        MailMarks(tmp_path)
    (tmp_path / "mail").unlink()
    marks = MailMarks(tmp_path)
    (tmp_path / "mail").write_text("a file")
    with pytest.raises(AlchemyError, match=r"cannot mark mails in .*read.jsonl: File exists"):
        marks.add("read", ["a"])
