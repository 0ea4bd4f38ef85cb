"""`alchemy checkpoint`: list, show, verify, average and import."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from alchemy.checkpoint.files import read, read_tensors, write
from alchemy.checkpoint.manifest import Manifest, read_manifest, verify
from alchemy.cli import main
from alchemy.context import Run
from alchemy.records import Record
from tests.checkpoint.conftest import Training
from tests.toy import Line, config


@pytest.fixture
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A record with u2, u3 (the best), u6 and u7 (the last), as `r1` in the working folder."""
    record = Record.create(tmp_path, name="r1", tag="t")
    training = Training(record.path / "state", monitor="dev/f1", best=3, last=2, every=2)
    for score in (0.0, 0.5, 1.0, 0.0, 0.25, 0.75, 0.125):
        training.step(score)
    training.keeper.save(training.where, "end")
    training.keeper.close()
    record.finish("finished")
    Record.create(tmp_path, name="r2", tag="a test, without checkpoints").finish("finished")
    monkeypatch.chdir(tmp_path)
    return Path("r1")


def call(*words: str) -> int:
    return main(["checkpoint", *words])


def test_ls(record: Path, capsys: Any) -> None:
    assert call("ls", "latest") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["checkpoint", "update", "epoch", "kind", "why", "metric", "size", "age", "links"]
    assert [line.split()[:5] for line in lines[1:]] == [
        ["u2", "2", "1", "whole", "every"],
        ["u3", "3", "1", "whole", "best"],
        ["u6", "6", "1", "whole", "every"],
        ["u7", "7", "1", "whole", "end"],
    ]
    assert [line.split()[-1] for line in lines[1:] if "KiB" in line][1::2] == ["best", "last"]


def test_ls_as_json_with_a_broken_one(record: Path, capsys: Any) -> None:
    (record / "state" / "u2" / "state.json").write_text("{}")
    (record / "state" / "u3" / "manifest.json").write_text("{}")
    assert call("ls", "r1", "--json") == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in rows] == ["u2", "u3", "u6", "u7"]
    assert rows[0]["broken"].startswith("state.json has 2 bytes, expected")
    assert "update" not in rows[1]
    assert (rows[2]["update"], rows[2]["value"], rows[3]["links"]) == (6, 0.75, ["last"])
    assert call("ls", "r1") == 0
    assert "u3 is damaged: invalid manifest.json" in capsys.readouterr().out


def test_what_a_bad_update_left_is_read_like_any_other(record: Path, capsys: Any) -> None:
    """Newer runs keep the state before a bad update in `bad`, older ones among the others."""
    files = read(record / "state" / "u7")
    at: dict[str, Any] = {"update": 8, "epoch": 1, "step": 8, "time": "", "why": ["nonfinite"]}
    write(record / "state" / "u8", files, Manifest(**at))
    write(record / "bad" / "u8", files, Manifest(**at, kind="bad"))
    assert call("ls", "r1") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1].split()[:5] == ["u8", "8", "2", "whole", "nonfinite"]
    assert len(lines) == 6  # `bad` does not contain a checkpoint
    assert call("verify", str(record / "bad" / "u8")) == 0
    assert "bad/u8 is intact" in capsys.readouterr().out
    assert call("show", str(record / "bad" / "u8")) == 0
    assert "update 8, epoch 2, bad" in capsys.readouterr().out


def test_show(record: Path, capsys: Any) -> None:
    assert call("show", "r1") == 0
    out = capsys.readouterr().out
    assert out.startswith("r1/state/u7: update 7, epoch 1, whole,")
    assert "model  1.num_batches_tracked  int64    []      7\n" in out
    assert call("show", "r1/state/best", "--json") == 0
    shown = json.loads(capsys.readouterr().out)
    weights = read_tensors(record / "state" / "best" / "model.safetensors")
    (row,) = [row for row in shown["tensors"] if (row["file"], row["name"]) == ("model", "0.weight")]
    assert row["norm"] == pytest.approx(float(weights["0.weight"].norm()))
    assert row["shape"] == [4, 3]
    assert shown["counters"] == {"checkpoints": {"monitor": "dev/f1"}}


def test_verify(record: Path, capsys: Any) -> None:
    assert call("verify", "r1") == 0
    assert capsys.readouterr().out.count(" is intact: ") == 6  # four checkpoints and two links
    path = record / "state" / "u6" / "optim.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    assert call("verify", "r1") == 1
    lines = capsys.readouterr().out.splitlines()
    said = "the content of optim.safetensors has changed: its hash does not match the manifest"
    assert f"state/u6 is damaged: {said}" in lines
    assert call("verify", "r1/state/u7") == 0
    assert call("verify", "r1/state/u6") == 1


def test_listing_needs_no_torch(record: Path) -> None:
    script = """if True:
        import sys
        from alchemy.cli import main
        assert main(["checkpoint", "ls", "r1"]) == main(["checkpoint", "verify", "r1"]) == 0
        assert "torch" not in sys.modules
    """
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("words", "updates"),
    [
        (["r1", "--last", "2"], [6, 7]),
        (["r1", "--best", "3"], [2, 3, 6]),
        (["r1/state/u3", "r1/state/best", "r1/state/u2"], [3, 3, 2]),
    ],
)
def test_average(record: Path, words: list[str], updates: list[int], capsys: Any) -> None:
    assert call("average", *words, "--to", "out") == 0
    states = [read_tensors(record / "state" / f"u{update}" / "model.safetensors") for update in updates]
    mean = read_tensors(Path("out/model.safetensors"))
    assert set(mean) == set(states[0])
    for name in ("0.weight", "1.running_mean"):
        expected = torch.stack([state[name].double() for state in states]).mean(0).float()
        assert torch.equal(mean[name], expected)
    assert int(mean["1.num_batches_tracked"]) == updates[-1]
    assert verify("out") == ""
    assert read_manifest(Path("out")).why == ["average"]
    assert "load it with [model] model_path = 'out'" in capsys.readouterr().out


def test_the_least_can_be_the_best(record: Path) -> None:
    for name in ("u2", "u3", "u6", "u7"):
        manifest = read_manifest(record / "state" / name)
        manifest.mode = "min"
        (record / "state" / name / "manifest.json").write_text(manifest.text())
    assert call("average", "r1", "--best", "2", "--to", "out") == 0
    assert read_manifest(Path("out")).update == 7


def test_an_average_of_saved_models_can_be_loaded(tmp_path: Path) -> None:
    with Run(config()):
        models = [Line(), Line(), Line()]
        for number, model in enumerate(models[:2]):
            nn.init.constant_(model.module[0].weight, number)
            model.save(tmp_path / str(number))
        assert call("average", str(tmp_path / "0"), str(tmp_path / "1"), "--to", str(tmp_path / "out")) == 0
        models[2].load(tmp_path / "out")
    assert models[2].module[0].weight.item() == 0.5


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["ls", "nowhere"], "record not found: 'nowhere'"),
        (["ls", "r2"], "r2 has no checkpoints; checkpoints may be disabled ([checkpoint] enabled = false)"),
        (["show", "r2/nothing"], "record not found: 'r2/nothing'"),
        (["verify", "r2"], "r2 has no checkpoints"),
        (
            ["average", "r1", "--last", "9", "--to", "out"],
            "r1 has only 4 checkpoints; set [checkpoint] last = 9 to keep more",
        ),
        (["average", "r1", "--best", "0", "--to", "out"], "averaging needs at least two folders"),
        (["average", "r1", "--best", "-1", "--to", "out"], "need exactly one record and N > 0"),
        (["average", "r1/state/u2", "r1/none", "--to", "out"], "folder not found: 'r1/none'"),
        (["average", "r1/state/u2", "r1", "--to", "out"], "contains no weights: model.safetensors is missing"),
        (["average", "r1/state/u2", "r1/state/u3", "--to", "r1"], "r1 already exists; choose another --to"),
        (["import", "none.pt", "--to", "out"], "file not found: 'none.pt'"),
        (["shw"], "'shw' is not a valid ACTION; did you mean 'show'?"),
    ],
)
def test_a_mistake_is_one_clear_error(record: Path, words: list[str], message: str, capsys: Any) -> None:
    assert call(*words) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.err.count("\n") == 1
    assert not Path("out").exists()


def test_weights_that_differ_have_no_mean(record: Path, tmp_path: Path, capsys: Any) -> None:
    for name, module in (("one", nn.Linear(2, 2)), ("two", nn.Linear(2, 3)), ("three", nn.ReLU())):
        torch.save(module.state_dict(), f"{name}.pt")
    assert call("import", "one.pt", "--to", "one") == call("import", "two.pt", "--to", "two") == 0
    assert call("average", "one", "two", "--to", "out") == 2
    assert "the shapes of bias differ: [2] in one and [3] in two" in capsys.readouterr().err
    assert call("average", "one", "r1/state/u2", "--to", "out") == 2
    assert "differ in their tensors" in capsys.readouterr().err
    (record / "state" / "u2" / "optim.safetensors").unlink()
    assert call("average", "r1", "--best", "3", "--to", "out") == 2
    assert "r1/state/u2 is damaged: optim.safetensors is missing" in capsys.readouterr().err


class Net(nn.Module):
    """A network that old scripts pickle as a whole object."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Linear(2, 2)
        self.two = nn.Linear(2, 2)
        self.two.weight = self.one.weight


def imported(content: Any, *words: str) -> dict[str, torch.Tensor]:
    torch.save(content, "old.pth.tar")
    assert call("import", "old.pth.tar", "--to", "out", *words) == 0
    assert verify("out") == ""
    return read_tensors(Path("out/model.safetensors"))


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    "wrap",
    [
        lambda state: state,
        lambda state: {"epoch": 3, "state_dict": state, "best_prec1": 0.7},
        lambda state: {"epoch": 3, "weights_of_it": state},
        lambda state: {"model": {f"module.{name}": value for name, value in state.items()}},
        lambda state: {f"module._orig_mod.{name}": value for name, value in state.items()},
    ],
)
def test_import_of_state_dicts(here: Path, wrap: Any) -> None:
    net, again = Net(), Net()
    tensors = imported(wrap(net.state_dict()))
    assert sorted(tensors) == ["one.bias", "one.weight", "two.bias"]  # tied weights count once
    from safetensors.torch import load_model

    load_model(again, "out/model.safetensors")
    assert all(torch.equal(value, again.state_dict()[name]) for name, value in net.state_dict().items())


def test_what_stood_beside_the_weights_is_told(here: Path, capsys: Any) -> None:
    imported({"epoch": 3, "state_dict": Net().state_dict(), "arch": "net"})
    out = capsys.readouterr().out
    assert "wrote 4 tensors from 'state_dict' to out" in out
    assert "other values in the file: epoch = 3, arch = 'net'" in out


def test_a_whole_network_is_read_only_when_asked(here: Path, capsys: Any) -> None:
    torch.save({"model": Net()}, "old.pth.tar")
    assert call("import", "old.pth.tar", "--to", "out") == 2
    error = capsys.readouterr().err
    assert "old.pth.tar contains Python objects, and loading them can run arbitrary code" in error
    assert "pass --allow-pickle" in error
    assert sorted(imported({"model": Net()}, "--allow-pickle")) == ["one.bias", "one.weight", "two.bias"]
    assert "warning: unpickling old.pth.tar may run arbitrary code" in capsys.readouterr().err


class Trap:
    """A pickle that executes code when it is loaded."""

    def __reduce__(self) -> Any:
        return Path.touch, (Path("sprung"),)


def test_no_code_is_run_unasked(here: Path, capsys: Any) -> None:
    torch.save({"state_dict": {"a": torch.ones(1)}, "trap": Trap()}, "trap.pth.tar")
    assert call("import", "trap.pth.tar", "--to", "out") == 2
    assert not Path("sprung").exists()
    assert "--allow-pickle" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "words", "message"),
    [
        ({"a": {"x": torch.ones(1)}, "b": {"x": torch.ones(1)}}, [], "choose one of a, b with --key"),
        ({"a": {"x": torch.ones(1)}, "b": 3}, ["--key", "c"], "has no key 'c'; it has a, b"),
        ({"a": {"x": torch.ones(1)}, "b": 3}, ["--key", "b"], "expected weights under 'b' in old.pt, got int"),
        ([1, 2], [], "expected weights in old.pt, got list"),
        ({"x": torch.ones(2).to_sparse()}, [], "tensors that safetensors does not support: x (torch.float32"),
    ],
)
def test_a_file_that_is_not_understood(here: Path, content: Any, words: list[str], message: str, capsys: Any) -> None:
    torch.save(content, "old.pt")
    assert call("import", "old.pt", "--to", "out", *words) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("words", [[], ["--allow-pickle"]])
@pytest.mark.parametrize("content", [b"nothing of the kind", b"", b"cos\nsystem\n(S'true'\ntR."])
def test_a_file_that_torch_did_not_write(here: Path, content: bytes, words: list[str], capsys: Any) -> None:
    Path("old.pt").write_bytes(content)
    assert call("import", "old.pt", "--to", "out", *words) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.endswith("old.pt is not a torch.save file")


def test_a_file_that_breaks_off_has_a_reason(here: Path, capsys: Any) -> None:
    Path("old.pt").write_bytes(b"\x80\x02")
    assert call("import", "old.pt", "--to", "out") == 2
    assert "old.pt is not a torch.save file: EOFError" in capsys.readouterr().err
