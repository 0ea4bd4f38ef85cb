"""The cause of a failure: found in mail.json or run.log, and equal for runs that failed for the same reason."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alchemy.records.failure import find_cause, normalize_message, read_log_end, read_traceback, split_log

TRACE = """Traceback (most recent call last):
  File "{home}/alchemy/runner.py", line {line}, in run_task
    ret = runner.run()
          ^^^^^^^^^^^^
  File "{home}/alchemy/task.py", line {line}, in loss
    return loss_of(self.run.model, batch)
  File "{home}/lib/python3.11/site-packages/torch/nn/modules/module.py", line {line}, in _call_impl
    return forward_call(*args, **kwargs)
  File "/home/{user}/demo/src/model.py", line {line}, in {function}
    raise ValueError(text)
{error}: cannot read /home/{user}/data/{number}.csv:{number}: tensor at 0x7f{number:04x}, shape [{number}, 3]
in epoch {number}/12, update {number}, step 3, samples 10, 882, ..
"""
LOGGED = """{time} | INFO     | alchemy.loop:68 | first
{time} | ERROR    | alchemy.result:197 | train.toml failed
{trace}
{time} | DEBUG    | alchemy.plugins:149 | tracking overhead
"""


def trace(number=1, user="anna", line=10, home="/usr", function="forward", error="ValueError"):
    return TRACE.format(number=number, user=user, line=line, home=home, function=function, error=error)


def sign(text):
    return find_cause("failed", "", text).signature


@given(st.integers(0, 10**6), st.from_regex(r"[a-z]{1,8}", fullmatch=True), st.integers(1, 10**4))
def test_numbers_addresses_paths_and_lines_do_not_matter(number, user, line):
    assert sign(trace(number, user, line, home=f"/opt/{user}")) == sign(trace())


@pytest.mark.parametrize("change", [{"function": "encode"}, {"error": "KeyError"}])
def test_another_error_or_function_is_another_cause(change):
    assert sign(trace(**change)) != sign(trace())


def test_the_log_and_the_mail_give_the_same_signature(tmp_path):
    outer = '  File "<frozen runpy>", line 198, in _run\n> File "/usr/alchemy/runner.py", line 9, in run_task\n'
    logged = trace().replace('  File "/usr/alchemy/runner.py", line 10, in run_task\n', outer)
    (tmp_path / "run.log").write_text(LOGGED.format(time="2026-01-01 12:00:00", trace=logged))
    found = read_traceback(tmp_path)
    assert found.startswith("Traceback") and found.endswith("samples 10, 882, ..")
    assert sign(found) == sign(trace())
    (tmp_path / "mail.json").write_text(json.dumps({"traceback": trace(error="KeyError")}))
    assert read_traceback(tmp_path) == trace(error="KeyError")


def test_the_cause_names_the_error_and_the_place_in_the_project():
    assert find_cause("failed", "", trace()).text == (
        "ValueError: cannot read /home/anna/data/1.csv:1: tensor at 0x7f0001, shape [1, 3] (model.py:forward)"
    )


def test_an_error_of_a_loader_worker_is_the_original_one():
    worker = (
        "ValueError: Caught ValueError in DataLoader worker process {}.\nOriginal Traceback (most recent call last):\n"
    )
    inner = '  File "/p/data.py", line 3, in __getitem__\n    raise ValueError(1)\nValueError: bad row {}\n'
    texts = [f"Traceback (most recent call last):\n{(worker + inner).format(number, number)}" for number in (0, 1)]
    assert find_cause("failed", "", texts[0]).text == "ValueError: bad row 0 (data.py:__getitem__)"
    assert sign(texts[0]) == sign(texts[1])


@pytest.mark.parametrize(
    ("status", "reasons"),
    [
        ("killed", ["its process is gone"]),
        ("lost", [f"no heartbeat from node7 since 2026-11-1{day}T20:00:00.000+00:00" for day in (1, 2)]),
        ("failed", [f"ValueError: bad {n}; in epoch {n}, update 3, step 4, samples {n}, {n}" for n in (1, 22)]),
    ],
)
def test_without_a_traceback_the_reason_counts(status, reasons):
    causes = [find_cause(status, reason) for reason in reasons]
    assert len({cause.signature for cause in causes}) == 1
    assert reasons[0].startswith(causes[0].text)


@given(st.text(), st.text(), st.sampled_from(["failed", "killed", "lost", "stopped"]))
def test_any_text_has_a_cause(text, reason, status):
    for part in (text, f"Traceback (most recent call last):\n{text}"):
        cause = find_cause(status, reason, part)
        assert cause.text
        assert len(cause.signature) == 16
    assert normalize_message(normalize_message(text)) == normalize_message(text)
    before, found = split_log(text)
    assert text.startswith(before + found)


def test_only_the_end_of_a_log_is_read_and_never_through_a_link(tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("Traceback (most recent call last):\nhidden")
    record = tmp_path / "record"
    record.mkdir()
    (record / "run.log").symlink_to(secret)
    (record / "mail.json").symlink_to(secret)
    assert read_traceback(record) == read_log_end(record) == ""
    (record / "run.log").unlink()
    (record / "run.log").write_bytes(b"x" * 2**20 + b"\xff\nend\n")
    assert len(read_log_end(record)) == 2**18
    assert read_log_end(record).endswith("\ufffd\nend\n")
