"""Process groups of one or several processes: the same calls, the same results."""

from __future__ import annotations

import contextlib
import json
import multiprocessing.context
import os
import random
import socket
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from alchemy.errors import AlchemyError
from alchemy.launch import process_group as groups
from alchemy.launch.process_group import first_failure, local_device, open_group
from alchemy.launch.ranks import NEEDED, get_rank_info
from alchemy.null_objects import SingleProcess

SIZES = (1, 2, 3)


def gradients(group: Any) -> list[Any]:
    """Average gradients: of all ranks, of the last rank only, of a smaller dtype, None, and of a frozen parameter."""
    params = [nn.Parameter(torch.zeros(2, dtype=torch.float64)) for _ in range(5)]
    params[2].data = params[2].data.float()
    params[4].requires_grad = False
    for index in (0, 2) if group.rank < group.size - 1 else (0, 1, 2):
        params[index].grad = torch.full_like(params[index], group.rank + 1.0)
    group.average_grads(params)
    return [None if param.grad is None else param.grad.tolist() for param in params]


def wrapped(group: Any) -> dict[str, Any]:
    """A line whose gradient is its input: two inputs in a window, of which only the last is reduced."""
    torch.manual_seed(group.rank)
    module = nn.Linear(1, 1, bias=False, dtype=torch.float64)
    whole = group.wrap(module)
    with group.no_sync(whole):
        whole(torch.full((1, 1), group.rank + 1.0, dtype=torch.float64)).backward()
    assert module.weight.grad is not None
    alone = module.weight.grad.item()
    whole(torch.full((1, 1), 10.0, dtype=torch.float64)).backward()
    frozen = nn.Linear(1, 1).requires_grad_(False)
    same = group.wrap(frozen) is frozen
    return {"weight": module.weight.item(), "unshared": alone, "shared": module.weight.grad.item(), "frozen": same}


def unused(group: Any) -> dict[str, Any]:
    """Test an unused part of the module, and that the same step always yields the same bits."""
    torch.manual_seed(group.rank)
    module = nn.Sequential(*(nn.Linear(64, 64) for _ in range(4)))
    module.add_module("spare", nn.Linear(64, 64))
    module.forward = lambda x: nn.Sequential(*list(module)[:4])(x)  # type: ignore[method-assign]
    whole, inputs, seen = group.wrap(module), torch.randn(8, 64), []
    for _ in range(3):
        whole.zero_grad()
        whole(inputs).square().sum().backward()
        seen.append(torch.cat([param.grad.flatten() for param in module[0].parameters()]))
    spare = [param.grad is None for param in module[4].parameters()]
    return {"spare": all(spare), "same": all(torch.equal(seen[0], other) for other in seen)}


def sparse(group: Any) -> list[Any]:
    """Sparse rows of an embedding: first of each rank, then only of the last one, then dense in the last one."""
    found = []
    for dense in (False, True):
        tables = [nn.Embedding(3, 1, sparse=not (dense and group.rank == group.size - 1)) for _ in range(2)]
        for table in tables if group.rank == group.size - 1 else tables[:1]:
            table(torch.tensor([group.rank % 2, 2])).sum().backward()
        group.average_grads([table.weight for table in tables])
        found += [[table.weight.grad.is_sparse, *table.weight.grad.to_dense().flatten().tolist()] for table in tables]
    return found


def claims(group: Any) -> dict[str, Any]:
    """Return the results of the group methods on this rank."""
    group.barrier()
    return {
        "who": [group.rank, group.local_rank, group.size, group.is_main],
        "sum": group.sum([group.rank + 1, 2.0**40 + 2.0**-10, float("inf")]),
        "nothing": group.sum([]),
        "any": [group.any(False), group.any(group.rank == group.size - 1)],
        "gather": group.gather({"rank": group.rank}),
        "broadcast": group.broadcast([group.rank, "first"]),
        "gradients": gradients(group),
        "wrapped": wrapped(group),
        "unused": unused(group),
        "sparse": sparse(group),
    }


def fails(out: Path) -> str:
    """The last rank raises an error and stays alive; the others, which wait for it, get the reason immediately."""
    try:
        with open_group() as group:
            if group.rank == group.size - 1:
                raise ValueError("no such word")
            try:
                group.sum([1.0])
            except RuntimeError as error:
                cause = first_failure(group, error)
                error.add_note(f"{cause.reason}, {cause.trace.splitlines()[-1]}" if cause else "unknown")
                raise
    except ValueError as error:
        deadline = time.monotonic() + 60
        while len(list(out.glob("told*"))) < int(os.environ["WORLD_SIZE"]) - 1 and time.monotonic() < deadline:
            time.sleep(0.01)
        return str(error)
    except RuntimeError as error:
        (out / f"told{os.environ['RANK']}").touch()
        return "; ".join(error.__notes__)
    return "no error"


def shared() -> list[bool]:
    """A group created elsewhere is used, and not destroyed."""
    torch.distributed.init_process_group("gloo")
    with open_group() as group:
        answer = [group.any(True), group.size > 1]
    answer.append(torch.distributed.is_initialized())
    torch.distributed.destroy_process_group()
    return answer


def work(out: Path, ports: list[int]) -> None:
    """Open three groups in sequence, each on its own port: rank 0 hosts the store, and on a shared port an early rank
    would join the store of the previous group, which is about to close."""
    answers: dict[str, Any] = {}
    os.environ["MASTER_PORT"] = str(ports[0])
    with open_group() as group:
        answers["claims"] = claims(group)
    answers["closed"] = not torch.distributed.is_initialized()
    os.environ["MASTER_PORT"] = str(ports[1])
    answers["fails"] = fails(out)
    os.environ["MASTER_PORT"] = str(ports[2])
    answers["shared"] = shared()
    (out / f"rank{os.environ['RANK']}.json").write_text(json.dumps(answers))


@pytest.fixture(scope="module")
def answers(
    tmp_path_factory: pytest.TempPathFactory, forks: multiprocessing.context.ForkServerContext
) -> dict[int, list[dict[str, Any]]]:
    """Return the results of every rank, by number of ranks; each is launched once."""
    started = {size: start(forks, size, tmp_path_factory.mktemp(f"ranks{size}")) for size in SIZES if size > 1}
    found = {1: [{"claims": claims(SingleProcess())}]}
    try:
        for size, (out, processes) in started.items():
            for process in processes:
                process.join(timeout=120)
            told = [path.read_text() for path in sorted(out.glob("*.txt"))]
            assert [process.exitcode for process in processes] == [0] * size, told
            found[size] = [json.loads((out / f"rank{rank}.json").read_text()) for rank in range(size)]
    finally:
        for process in [process for _, processes in started.values() for process in processes]:
            process.kill()
            process.join()
    return found


def free_port() -> int:
    """Return a port that no outgoing connection can take in the meantime: one outside the ephemeral range."""
    while True:
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", random.SystemRandom().randrange(20000, 32000)))
            return int(probe.getsockname()[1])


def start(
    forks: multiprocessing.context.ForkServerContext, size: int, out: Path
) -> tuple[Path, list[multiprocessing.context.ForkServerProcess]]:
    ports = [free_port() for _ in range(3)]
    processes = [forks.Process(target=be_rank, args=(rank, size, out, ports)) for rank in range(size)]
    for process in processes:
        process.start()
    return out, processes


def be_rank(rank: int, size: int, out: Path, ports: list[int]) -> None:
    os.environ |= {"WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "OMP_NUM_THREADS": "1"}
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank)}
    with open(out / f"rank{rank}.txt", "w") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    work(out, ports)


@pytest.mark.parametrize("size", SIZES)
def test_the_members_answer_alike_on_every_rank(answers: dict[int, list[dict[str, Any]]], size: int) -> None:
    for rank, answer in enumerate(answers[size]):
        said = answer["claims"]
        assert said["who"] == [rank, rank, size, rank == 0]
        # exact only in float64
        assert said["sum"] == [size * (size + 1) / 2, size * (2.0**40 + 2.0**-10), float("inf")]
        assert said["nothing"] == []
        assert said["any"] == [False, True]
        assert said["gather"] == [{"rank": other} for other in range(size)]
        assert said["broadcast"] == [0, "first"]


@pytest.mark.parametrize("size", SIZES)
def test_gradients_are_averaged_and_missing_ones_count_as_zero(
    answers: dict[int, list[dict[str, Any]]], size: int
) -> None:
    mean = (size + 1) / 2
    for answer in answers[size]:
        assert answer["claims"]["gradients"] == [[mean] * 2, [1.0] * 2, [mean] * 2, None, None]


@pytest.mark.parametrize("size", SIZES)
def test_sparse_gradients_are_averaged_and_stay_sparse_unless_a_rank_has_a_dense_one(
    answers: dict[int, list[dict[str, Any]]], size: int
) -> None:
    rows = [0.0, 0.0, 1.0]
    for rank in range(size):
        rows[rank % 2] += 1 / size
    last = [0.0, 0.0, 1 / size]
    last[(size - 1) % 2] += 1 / size
    for answer in answers[size]:
        said = answer["claims"]["sparse"]
        assert [grad[0] for grad in said] == [True, True, False, False]
        assert [grad[1:] for grad in said] == [pytest.approx(row) for row in (rows, last, rows, last)]


@pytest.mark.parametrize("size", SIZES)
def test_a_wrapped_module_shares_gradients_but_inside_no_sync(
    answers: dict[int, list[dict[str, Any]]], size: int
) -> None:
    torch.manual_seed(0)
    weight = nn.Linear(1, 1, bias=False, dtype=torch.float64).weight.item()
    for rank, answer in enumerate(answers[size]):
        said = answer["claims"]["wrapped"]
        shared = pytest.approx(10 + (size + 1) / 2, rel=1e-15)
        assert said == {"weight": weight, "unshared": rank + 1, "shared": shared, "frozen": True}
        assert answer["claims"]["unused"] == {"spare": True, "same": True}


@pytest.mark.parametrize("size", SIZES[1:])
def test_a_rank_that_fails_takes_the_others_along_and_they_say_why(
    answers: dict[int, list[dict[str, Any]]], size: int
) -> None:
    *others, last = answers[size]
    cause = f"rank {size - 1}: ValueError: no such word"
    assert last["fails"] == "no such word"
    assert [other["fails"] for other in others] == [
        f"{cause}, ValueError: no such word; the first to fail was {cause}"
    ] * (size - 1)


@pytest.mark.parametrize("size", SIZES[1:])
def test_a_group_is_closed_by_who_has_opened_it(answers: dict[int, list[dict[str, Any]]], size: int) -> None:
    assert all(answer["closed"] and answer["shared"] == [True] * 3 for answer in answers[size])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"RANK": "0"}, "RANK set without WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT; start it with torchrun"),
        ({"WORLD_SIZE": "2", "MASTER_ADDR": "h"}, "WORLD_SIZE, MASTER_ADDR set without RANK, LOCAL_RANK, MASTER_PORT"),
        (dict(zip(NEEDED, ("2", "2", "0", "h", "1"))), "RANK=2, WORLD_SIZE=2, LOCAL_RANK=0: RANK must be a number"),
        (dict(zip(NEEDED, ("x", "2", "0", "h", "1"))), "RANK=x, WORLD_SIZE=2, LOCAL_RANK=0: RANK must be a number"),
    ],
)
def test_half_an_environment_is_an_error(
    given: dict[str, str], message: str, monkeypatch: pytest.MonkeyPatch, bare: None
) -> None:
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(AlchemyError, match=message), open_group():
        pass


@pytest.mark.parametrize("given", [{}, {"WORLD_SIZE": "1", "RANK": "0"}, {"MASTER_ADDR": "h"}])
def test_without_others_a_run_is_alone(given: dict[str, str], monkeypatch: pytest.MonkeyPatch, bare: None) -> None:
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    with open_group("cuda") as group:
        assert isinstance(group, SingleProcess)
        assert first_failure(group, RuntimeError("x")) is None


def test_each_rank_has_the_gpu_of_its_number(monkeypatch: pytest.MonkeyPatch, bare: None) -> None:
    monkeypatch.setattr(groups, "alloc_cuda", lambda number: {"device": f"cuda:{number}"})
    assert local_device({"device": "cuda:0"}) == {"device": "cuda:0"}
    for name, value in zip(NEEDED, ("3", "4", "1", "h", "1")):
        monkeypatch.setenv(name, value)
    assert get_rank_info() == (3, 4, 1)
    assert local_device({"device": "cuda:0"}) == {"device": "cuda:1"}
    assert local_device({"device": "cpu"}) == {"device": "cpu"}


def test_a_module_with_sparse_gradients_is_refused_by_name_on_gpus() -> None:
    groups.check_no_sparse_grads(nn.Sequential(nn.Embedding(3, 1)))
    with pytest.raises(AlchemyError, match=r"\[model\] 1: nccl cannot average sparse gradients; build it with sparse"):
        groups.check_no_sparse_grads(nn.Sequential(nn.Embedding(3, 1), nn.EmbeddingBag(3, 1, sparse=True)))


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NEEDED:
        monkeypatch.delenv(name, raising=False)
