"""`alchemy verify ledger`: what a record proves about the samples of its run."""

import json
import subprocess
import sys

import pytest

from alchemy.checkpoint.files import write
from alchemy.checkpoint.manifest import Manifest
from alchemy.cli import main
from alchemy.records.folder import Record
from alchemy.records.ledger import NAME, Ledger


def written(folder, *epochs, cut_short=(), samples=8, **closing):
    """A record whose epochs have these updates, each a list of sample numbers."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "record.json").write_text("{}")
    ledger, update = Ledger(folder / NAME), 0
    for number, updates in enumerate([*epochs, *([cut_short] if cut_short else [])]):
        for ids in updates:
            update += 1
            ledger.add_step(ids, bytes(16))
            ledger.close_update(update, number)
        if number < len(epochs):
            ledger.close_epoch(number, samples, **closing)
    ledger.flush()
    ledger.close()
    return str(folder)


ONE, TWO = [[3, 1, 0], [2, 7, 6], [5, 4]], [[0, 1, 2], [3, 4, 5], [6, 7]]


def lines_of(folder):
    return (folder / NAME).read_text().splitlines(keepends=True)


def test_a_record_that_saw_each_sample_once(tmp_path, capsys):
    record = written(tmp_path / "r", ONE, TWO, cut_short=ONE[:1])
    assert main(["verify", "ledger", record]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "epoch 1: 8 samples in 3 updates, each once",
        "epoch 2: 8 samples in 3 updates, each once",
        "epoch 3: 3 samples in 1 update, incomplete: the run was stopped during this epoch",
        "the chain of 7 updates is intact",
    ]


@pytest.mark.parametrize(
    ("updates", "text"),
    [
        ([[0, 1, 2, 3], [4, 5, 6, 6]], "8 samples in 2 updates, some of them more than once, others never"),
        ([[0, 1, 2, 3], [4, 5, 6]], "7 samples in 2 updates, but there are 8: some were never seen"),
        ([[0, 1, 2, 3], [4, 5, 6, 7, 0]], "9 samples in 2 updates, but there are 8: some were seen again"),
        ([[0, 1, 2, 3], [4, 5, 6, 8]], "8 samples in 2 updates, some of them more than once, others never"),
    ],
)
def test_a_sample_that_is_missing_or_seen_twice_is_found(tmp_path, capsys, updates, text):
    assert main(["verify", "ledger", written(tmp_path / "r", updates)]) == 1
    assert capsys.readouterr().out.startswith(f"epoch 1: {text}\n")


@pytest.mark.parametrize(
    ("updates", "closing", "text"),
    [
        ([[0, 1], [4, 5, 6, 7]], {"left_out": [3, 2]}, "6 samples in 2 updates, each once, 2 left out on purpose"),
        ([[0, 1]], {"samples": None}, "2 samples in 1 update, complete; whether each was seen once is unknown"),
        ([None, None], {}, "2 batches in 2 updates, complete; whether each was seen once is unknown"),
    ],
)
def test_what_was_left_out_and_what_is_not_known_is_said(tmp_path, capsys, updates, closing, text):
    assert main(["verify", "ledger", written(tmp_path / "r", updates, **closing)]) == 0
    assert capsys.readouterr().out.startswith(f"epoch 1: {text}\n")


def test_a_run_that_was_killed_and_resumed_is_whole(tmp_path, capsys):
    folder = tmp_path / "r"
    written(folder, cut_short=ONE[:1])
    line = lines_of(folder)[0]
    state = {"lines": 1, "update": 1, "open": [], "hash": json.loads(line)["hash"]}
    (folder / NAME).write_text(line + '{"update": 2, "ep')  # the point where it was killed
    ledger = Ledger(folder / NAME)
    ledger.load_state_dict(state)
    ledger.resume(1, 1)
    for update, ids in enumerate(ONE[1:], 2):
        ledger.add_step(ids)
        ledger.close_update(update, 0)
    ledger.close_epoch(0, 8)
    ledger.flush()
    ledger.close()
    other = written(tmp_path / "other", ONE)
    assert main(["verify", "ledger", str(folder)]) == 0
    assert main(["verify", "ledger", str(folder), other]) == 0
    assert capsys.readouterr().out.endswith("intact\nequal for all 3 updates\n")


@pytest.mark.parametrize("change", ["drop", "swap", "hash"])
def test_rows_that_were_dropped_or_changed_break_the_chain(tmp_path, capsys, change):
    record = written(tmp_path / "r", ONE)
    lines = lines_of(tmp_path / "r")
    if change == "drop":
        del lines[0]
    elif change == "swap":
        lines[0], lines[1] = lines[1], lines[0]
    else:
        lines[0] = json.dumps(json.loads(lines[0]) | {"hash": "00" * 16}) + "\n"
    (tmp_path / "r" / NAME).write_text("".join(lines))
    assert main(["verify", "ledger", record]) == 1
    assert f"{NAME}:1 the chain is broken before update" in capsys.readouterr().out
    assert main(["verify", "ledger", record, record, "--json"]) == 1
    assert "the chain is broken" in json.loads(capsys.readouterr().out)["records"][1]["broken"]


def test_two_records_part_where_they_saw_other_samples(tmp_path, capsys):
    a, b = written(tmp_path / "a", ONE, TWO), written(tmp_path / "b", ONE, [*TWO[:1], [3, 4], [5, 6, 7]])
    short = written(tmp_path / "c", ONE)
    assert main(["verify", "ledger", a, a]) == 0
    assert main(["verify", "ledger", a, b]) == 1
    assert main(["verify", "ledger", a, short]) == 1
    first, second, third = capsys.readouterr().out.splitlines()
    assert first == "equal for all 6 updates"
    assert second.startswith(f"the runs diverge at update 5 (epoch 2): {a} saw n=3 ids=")
    assert f"; {b} saw n=2 ids=" in second
    assert third == f"equal for the first 3 updates; {a} has 6, {short} has 3"


def test_json_has_the_same_to_say(tmp_path, capsys):
    record = written(tmp_path / "r", ONE)
    assert main(["verify", "ledger", record, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["holds"], found["broken"], found["epochs"][0]["verdict"]) == (True, "", "each once")
    assert main(["verify", "ledger", record, record, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["equal"] is True


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "has no ledger.jsonl; runs with the FileLogger plugin write one"),
        ("{\n", "ledger.jsonl:1 not a ledger row; the record was edited"),
        ('{"update": 1, "epoch": 0}\n', "ledger.jsonl:1 invalid ledger row: 'n'"),
        (
            '{"update": 1, "epoch": 0, "n": 1, "set": null, "ids": "x", "hash": ""}\n',
            "invalid ledger row: non-hex",
        ),
    ],
)
def test_a_record_without_a_ledger_and_a_damaged_one_are_one_error(tmp_path, capsys, text, message):
    (tmp_path / "record.json").write_text("{}")
    if text is not None:
        (tmp_path / NAME).write_text(text)
    assert main(["verify", "ledger", str(tmp_path)]) == 2
    err = capsys.readouterr().err
    assert message in err and err.count("\n") == 1


def test_it_needs_no_torch(tmp_path):
    record = written(tmp_path / "r", ONE)
    code = (
        "import sys; from alchemy.cli import main; code = main(sys.argv[1:]); sys.exit(code or 'torch' in sys.modules)"
    )
    words = [sys.executable, "-c", code, "verify", "ledger", record]
    assert subprocess.run(words, stdout=subprocess.DEVNULL).returncode == 0


def keep_state(folder, update, **other):
    """Give a record the state saved at this update; `other` replaces parts of it."""
    lines = lines_of(folder)
    line, row = next(
        (line, row) for line, row in enumerate(map(json.loads, lines), 1) if "n" in row and row["update"] == update
    )
    ledger = {"hash": row["hash"], "lines": line, "update": update, "open": []} | other
    target = folder / "state" / f"u{update}"
    target.parent.mkdir(exist_ok=True)
    write(target, {"state.json": {"parts": {"ledger": ledger}}}, Manifest(update, 0, update, "now"))


def test_a_state_that_the_ledger_leads_up_to(tmp_path, capsys):
    record = written(tmp_path / "r", ONE, TWO)
    keep_state(tmp_path / "r", 5)
    assert main(["verify", "ledger", record]) == 0
    assert capsys.readouterr().out.endswith("the chain of 6 updates is intact\n")


@pytest.mark.parametrize(
    ("kept", "known", "message"),
    [
        (4, {}, "the record has a checkpoint of update 6, but the ledger ends at update 3"),
        (0, {}, "the record has a checkpoint of update 6, but the ledger ends at update 0"),
        (8, {"hash": "00" * 16}, "update 6 of the ledger does not match the checkpoint u6"),
        (7, {"lines": 8}, "the checkpoint u6 counts 8 ledger lines, but the file has only 7: its end is missing"),
    ],
)
def test_an_end_that_is_missing_is_known_to_the_state(tmp_path, capsys, kept, known, message):
    record = written(tmp_path / "r", ONE, TWO)
    keep_state(tmp_path / "r", 6, **known)
    (tmp_path / "r" / NAME).write_text("".join(lines_of(tmp_path / "r")[:kept]))
    assert main(["verify", "ledger", record]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == message


def test_a_number_of_samples_that_was_changed_is_found(tmp_path, capsys):
    record = written(tmp_path / "r", ONE)
    lines = lines_of(tmp_path / "r")
    lines[0] = lines[0].replace('"n": 3', '"n": 4')
    (tmp_path / "r" / NAME).write_text("".join(lines))
    assert main(["verify", "ledger", record]) == 1
    text = "each of the 8 samples was seen once, but the rows add up to 9: a value was edited"
    assert capsys.readouterr().out.startswith(f"epoch 1: 9 samples in 3 updates, {text}\n")


def test_an_epoch_in_which_a_finished_run_ended_was_not_cut_short(tmp_path, capsys):
    record = written(tmp_path / "r", ONE, cut_short=[None, None])
    made = Record.create(tmp_path, name="other", tag="t")
    made.finish("finished")
    (made.path / "record.json").replace(tmp_path / "r" / "record.json")
    assert main(["verify", "ledger", record]) == 0
    last = capsys.readouterr().out.splitlines()[1]
    assert (
        last == "epoch 2: 2 batches in 2 updates, the run ended in this epoch; whether there was more data is unknown"
    )
