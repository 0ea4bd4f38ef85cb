"""The process keeps freed tensor memory, if the C library supports it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from alchemy.launch.allocator import keep_memory

FAULTS = """
import resource
import torch
from alchemy.launch.allocator import keep_memory

kept = {kept} and keep_memory({{}})
for _ in range(20):
    torch.zeros(1 << 24)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    torch.zeros(1 << 24)
print(int(kept), resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="what the C library of Linux does")
def test_the_pages_of_a_tensor_are_asked_for_once() -> None:
    told = [
        subprocess.run([sys.executable, "-c", FAULTS.format(kept=kept)], capture_output=True, text=True, check=True)
        for kept in (False, True)
    ]
    (_, anew), (kept, faults) = (map(int, one.stdout.split()) for one in told)
    if not kept:
        pytest.skip("this C library takes no orders")
    assert (
        faults < 1000 < anew
    )  # 20 tensors have 320,000 pages of 4 KiB; below 32 MB, glibc learns to keep them by itself


@pytest.mark.parametrize("name", ["MALLOC_ARENA_MAX", "LD_PRELOAD", "GLIBC_TUNABLES"])
def test_who_has_an_opinion_of_their_own_keeps_it(name: str) -> None:
    assert not keep_memory({name: "1"})
