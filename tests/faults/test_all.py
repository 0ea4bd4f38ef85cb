"""Every fault of the original has a regression test, here or with the part concerned."""

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parent.parent


@pytest.mark.parametrize("fault", range(1, 13))
def test_fault_has_a_test(fault):
    here = (re.search(rf"Fault {fault}\b", path.read_text()) for path in TESTS.glob("faults/test_*.py"))
    there = (re.search(rf"def test_fault_{fault}_", path.read_text()) for path in TESTS.rglob("test_*.py"))
    assert any(here) or any(there)
