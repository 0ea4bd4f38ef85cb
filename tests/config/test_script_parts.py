"""Parts of a script or notebook are checked before a record is made, and may be passed as classes."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest
from torch import nn

from alchemy.config.check import check
from alchemy.config.load import prepare_cfg
from alchemy.errors import ConfigError


class Net(nn.Module):
    def __init__(self, size: int = 3) -> None:
        super().__init__()
        self.out = nn.Linear(2, size)


@pytest.fixture(autouse=True)
def script(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that defines Net in the script itself."""
    module = ModuleType("__main__")
    vars(module)["Net"] = Net
    monkeypatch.setattr(Net, "__module__", "__main__")
    monkeypatch.setitem(sys.modules, "__main__", module)


def problems(**model: Any) -> list[str]:
    plugins = [{"type": "alchemy.plugins.FileLogger", "log_dir": "records"}]
    return [
        str(row)
        for row in check(prepare_cfg({"tag": "a", "plugins": plugins, "model": model}))
        if "[model]" in str(row)
    ]


@pytest.mark.parametrize("kind", [Net, "__main__.Net"], ids=["class", "name"])
def test_a_part_of_the_script_is_found(kind: Any) -> None:
    (warning,) = problems(type=kind, size=4)
    assert "Net is defined in this script or notebook: commands such as resume and predict cannot find it" in warning


def test_its_keys_and_values_are_checked() -> None:
    assert "Net has no option 'sise'; did you mean 'size'?" in problems(type=Net, sise=4)[0]
    assert "size must be an integer, not the string '4'" in problems(type=Net, size="4")[0]


def test_one_that_is_not_there_is_told() -> None:
    assert "the running script does not define 'Nett'; did you mean 'Net'?" in problems(type="__main__.Nett")[0]


def test_a_class_inside_a_function_has_no_name() -> None:
    class Inner(nn.Module):
        pass

    with pytest.raises(ConfigError, match="Inner is defined inside a function, so a config cannot name it"):
        prepare_cfg({"model": {"type": Inner}})
