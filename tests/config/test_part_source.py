"""Parts are found by reading source: aliases, re-exports, inherited constructors, and nothing imported."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from alchemy.config import module_files
from alchemy.config.part_source import Gap, Part, find, look, parts

PROJECT = str(Path(__file__).parent / "project")


def read(tmp_path: Path, **files: str) -> list[str]:
    for name, text in files.items():
        path = tmp_path / f"{name.replace('_', '/').replace('INIT', '__init__')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
    return [str(tmp_path)]


def part(dotted: str, roots: list[str]) -> Part:
    found = look(dotted, roots)
    assert isinstance(found, Part), found
    return found


def gap(dotted: str, roots: list[str]) -> Gap:
    found = look(dotted, roots)
    assert isinstance(found, Gap), found
    return found


def test_alias_wins_over_attribute():
    found = part("src.models.Tagger", [PROJECT])
    assert found.name == "AlchemyTagger"
    assert found.bare
    assert found.old_style
    assert found.where.endswith("models.py:22")


def test_signature_is_read_with_types_and_defaults():
    found = part("src.models.Mlp", [PROJECT])
    assert not found.old_style
    assert found.doc == "A new model: the signature is the schema."
    assert [p.name for p in found.params if p.required] == ["hidden"]
    assert str(found.param("act")) == "act: Literal['relu', 'gelu'] = 'relu'"


def test_inherited_constructor():
    found = part("src.models.Wide", [PROJECT])
    assert found.param("hidden") is not None
    assert found.bases[0] == "src.models.Mlp"


def test_dataclass_fields_are_parameters():
    found = part("src.pipes.Options", [PROJECT])
    assert [(p.name, p.required) for p in found.params] == [("depth", True), ("width", False)]


def test_fields_of_a_named_tuple_are_parameters():
    found = part("alchemy.generate.Limits", ["."])
    assert str(found.param("max_length")) == "max_length: int[>=1, <=1000000000] = 256"
    assert found.readable and not found.takes_kwargs


def test_constructor_of_torch_through_its_packages():
    found = part("torch.optim.AdamW", ["."])
    assert {"params", "lr", "betas", "weight_decay"} <= {p.name for p in found.params}
    assert "torch.optim.adam.Adam" in found.bases


@pytest.mark.parametrize("path", ["pkg.Z", "pkg.Typed", "pkg.Same", "pkg.stars.Y", "pkg.Late"])
def test_reexports(tmp_path, path):
    init = """
        from typing import TYPE_CHECKING
        from .x import Y as Z
        if TYPE_CHECKING:
            from pkg.x import Y as Typed
        try:
            from .fast import Y as Late
        except ImportError:
            from .x import Y as Late
        Same = Z
        """
    roots = read(
        tmp_path,
        pkg_INIT=init,
        pkg_x="class Y:\n    def __init__(self, *, size: int): ...",
        pkg_stars="from .x import *",
        pkg_fast="from .x import Y",
    )
    found = part(path, roots)
    assert found.module == "pkg.x"
    assert found.param("size")


def test_alias_counts_only_in_its_own_module(tmp_path):
    roots = read(
        tmp_path,
        pkg_INIT="from .x import Net",
        pkg_x="""
        class Net:
            def __init__(self, a): ...
        @Base.register('Net')
        class Other:
            def __init__(self, b): ...
        """,
    )
    assert part("pkg.x.Net", roots).param("b")
    assert part("pkg.Net", roots).param("a")


def test_equal_aliases_of_two_bases(tmp_path):
    text = "@One.register('P')\nclass A: ...\n@pkg.Two.register(alias='P')\nclass B: ...\nThree.register('Q')(A)"
    roots = read(tmp_path, mod=text)
    found = [look("mod.P", roots, base=base) for base in ("Two", "One")]
    assert [row.name for row in found if isinstance(row, Part)] == ["B", "A"]
    assert part("mod.Q", roots).name == "A"


def test_diamond_takes_pythons_order(tmp_path):
    text = """
        class Base:
            def __init__(self, base): ...
        class Left(Base): ...
        class Right(Base):
            def __init__(self, right): ...
        class Bottom(Left, Right): ...
        """
    assert part("mod.Bottom", read(tmp_path, mod=text)).param("right")


def test_namespace_package_and_function(tmp_path):
    roots = read(tmp_path, space_inner_mod="def make(a: int, *, b=2): ...")
    found = part("space.inner.mod.make", roots)
    assert found.function
    assert [p.name for p in found.params] == ["a", "b"]


def test_nearest_of_overloads_and_new(tmp_path):
    text = """
        from typing import overload
        class A:
            @overload
            def __init__(self, x): ...
            def __init__(self, y): ...
        class B:
            def __new__(cls, z): ...
        """
    roots = read(tmp_path, mod=text)
    assert part("mod.A", roots).param("y")
    assert part("mod.B", roots).param("z")


@pytest.mark.parametrize(
    ("path", "reason", "hint"),
    [
        ("src.modls.Mlp", "module", "did you mean 'src.models'?"),
        ("src.models.Mpl", "name", "did you mean 'Mlp'?"),
        ("sroc.models.Mlp", "module", "did you mean 'src'?"),
        ("src.models", "form", "write 'src.models.Class'"),
        ("Mlp", "form", "package.module.Class"),
        ("src..Mlp", "form", "package.module.Class"),
        ("__main__.Mlp", "name", ""),
        ("sys.Mlp", "unreadable", ""),
    ],
)
def test_gaps(path, reason, hint):
    found = gap(path, [PROJECT])
    assert found.reason == reason
    assert hint in found.hint
    assert find(path, [PROJECT]) is None


def test_file_that_does_not_parse(tmp_path):
    found = gap("bad.X", read(tmp_path, bad="import os\n\ndef broken(:\n"))
    assert found.reason == "syntax"
    assert found.where.endswith("bad.py:3")


def test_binary_and_cyclic_modules_do_not_hang(tmp_path):
    roots = read(tmp_path, a="from b import X", b="from a import X", selfish="class A(A): ...")
    (tmp_path / "blob.py").write_bytes(b"\x00\xff\xfe")
    assert gap("a.X", roots).reason == "unreadable"
    assert gap("blob.X", roots).reason == "syntax"
    assert part("selfish.A", roots).name == "A"


def test_lazy_module_without_declarations_is_left_alone(tmp_path):
    roots = read(tmp_path, lazy="def __getattr__(name): ...")
    assert gap("lazy.Anything", roots).reason == "unreadable"


def test_changed_file_is_read_again(tmp_path):
    roots = read(tmp_path, mod="class A:\n    def __init__(self, old): ...")
    assert part("mod.A", roots).param("old")
    read(tmp_path, mod="class A:\n    def __init__(self, newer): ...")
    assert part("mod.A", roots).param("newer")


def test_kinds_are_told_by_ancestors():
    assert part("src.models.Mlp", [PROJECT]).kinds == {"model"}
    assert part("src.pipes.Lines", [PROJECT]).kinds == {"data pipe"}
    assert part("src.pipes.EvalEpochEEPipeline", [PROJECT]).kinds == {"sched pipe"}


def test_parts_lists_plugins_under_their_short_names():
    listed = {p.path: p for p in parts("plugin")}
    assert "log_dir" in {p.name for p in listed["alchemy.plugins.FileLogger"].params}
    assert "alchemy.plugins.AlchemyPlugin" not in listed


def test_nothing_is_imported():
    code = f"""
import sys
from alchemy.config.part_source import find
for path in ("src.models.Tagger", "src.tasks.Ner", "torch.optim.AdamW", "torch.nn.CrossEntropyLoss"):
    assert find(path, [{PROJECT!r}]), path
assert not {{"torch", "src", "src.models"}} & set(sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_the_hint_lists_what_a_module_defines_or_exports(tmp_path):
    roots = read(
        tmp_path,
        nets="""
        from pathlib import Path
        from typing import Any, Protocol as Shown
        __all__ = ["Shown"]
        def build(): ...
        class Small: ...
        """,
        pkg_INIT="from pathlib import Path\nfrom pkg.x import Y",
        pkg_x="\n".join(["class Y: ...", *(f"class C{i}: ..." for i in range(9))]),
    )
    assert gap("nets.Transformer", roots).hint == "it has Shown, Small, build"
    assert gap("pkg.Transformer", roots).hint == "it has Y"
    assert gap("pkg.x.Transformer", roots).hint == "it has Y, C0, C1, C2, C3, C4, C5, C6, ..."


LAZY = """
    from typing import TYPE_CHECKING
    from .loading import _LazyModule
    NAMES = ["RuntimeOnly"]
    if TYPE_CHECKING:
        from .vit import *
        from .other import *
    else:
        import sys
        sys.modules[__name__] = _LazyModule(__name__, NAMES)
"""


def test_only_the_star_import_that_contains_a_name_is_parsed(tmp_path):
    roots = read(
        tmp_path,
        big_INIT=LAZY,
        big_other="class Other: ...\nthis is not Python",
        big_vit="class ViTNet:\n    def __init__(self, *, width: int): ...\n",
    )
    assert [p.name for p in part("big.ViTNet", roots).params] == ["width"]


def test_a_misspelled_name_of_a_lazy_package_is_an_error_and_others_may_exist(tmp_path):
    roots = read(
        tmp_path,
        big_INIT=LAZY,
        big_other="__all__ = ['Tokens']\nclass Hidden: ...\nclass Tokens: ...\n",
        big_vit="class ViTNet: ...\n",
    )
    found = gap("big.VitNet", roots)
    assert (found.message, found.hint) == ("module 'big' has no 'VitNet'", "did you mean 'ViTNet'?")
    assert gap("big.Tokns", roots).hint == "did you mean 'Tokens'?"
    for name in ("RuntimeOnly", "TokensFast", "Hiden", "Unlike"):
        assert gap(f"big.{name}", roots).reason == "unreadable", name


def test_a_class_of_transformers_is_found_without_parsing_the_others():
    pytest.importorskip("transformers", reason="the extra `text` is not installed")
    before = set(module_files._read)
    assert part("transformers.ViTForImageClassification", []).param("config") is not None
    parsed = [file for file in set(module_files._read) - before if not file.endswith("__init__.py")]
    assert len(parsed) < 30


@pytest.mark.slow  # a small package stands for it above
def test_names_that_transformers_does_not_have():
    pytest.importorskip("transformers", reason="the extra `text` is not installed")
    assert gap("transformers.VitForImageClassification", []).hint == "did you mean 'ViTForImageClassification'?"
    assert gap("transformers.Mxfp4Config", []).reason == "unreadable"
