"""`alchemy new`: create a small project that trains on your data or on sample data."""

from __future__ import annotations

import argparse
import json
import os
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from alchemy.cli.options import Command
from alchemy.cli.starter.gan import gan_project
from alchemy.cli.starter.samples import LABELS, data_files, points
from alchemy.errors import AlchemyError, printable

if TYPE_CHECKING:
    from alchemy.data.sniff.finding import Finding, Hints

__all__ = ["COMMAND", "LABELS", "points", "project"]

EXAMPLES = """examples:
  alchemy new demo                     # with sample data
  alchemy new news --data news.csv --text title --label topic
  alchemy new names --kind ner --data train.txt dev.txt test.txt
  alchemy new en-de --kind translation --data train.en train.de
  alchemy new photos --kind image --data photos
  alchemy new digits --kind gan --data mnist"""

TEMPLATE = Path(__file__).with_name("template")
# some packagers leave out files whose names start with a dot
RENAMED = {"gitignore": ".gitignore"}
KINDS = {
    "points": "rows of numbers with a label; the network is in src/",
    "text": "text with a label",
    "ner": "words or characters with tags",
    "pairs": "pairs of texts with a label",
    "translation": "sentences and their translations",
    "image": "images with a label",
    "segmentation": "images with masks",
    "gan": "images to generate more of; the networks are in src/",
}
# options that name a column, and the kinds they apply to
COLUMNS = {
    "text": ("text", "pairs"),
    "pair": ("pairs",),
    "label": ("text", "pairs", "points", "image"),
    "source": ("translation",),
    "target": ("translation",),
}


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("project", metavar="PROJECT", help="folder to create or write to")
    # extra arguments: most likely data files passed without --data
    parser.add_argument("left_over", nargs="*", default=[], help=argparse.SUPPRESS)
    text = "; ".join(f"{kind}: {what}" for kind, what in KINDS.items())
    parser.add_argument(
        "--kind", choices=list(KINDS), help=f"{text} (default: detected from the files; points without --data)"
    )
    parser.add_argument(
        "--data",
        nargs="+",
        metavar="FILE",
        help="your files, or a folder with train, dev and test files or images; read in place, never copied",
    )
    for name, kinds in COLUMNS.items():
        text = f"column of the {name}, by name or number ({', '.join(kinds)})"
        parser.add_argument(f"--{name}", metavar="COLUMN", default="", help=text)
    parser.add_argument("--encoding", default="", help="encoding of the files (default: detected)")
    parser.add_argument("--force", action="store_true", help="overwrite existing files with the same names")


def _main(args: argparse.Namespace) -> int:
    if not args.project.strip():
        raise AlchemyError(
            "the project name is empty", hint="run 'alchemy new demo', or 'alchemy new .' for this folder"
        )
    if args.left_over:
        command = shlex.join(["alchemy", "new", args.project, "--data", *args.left_over, *(args.data or [])])
        raise AlchemyError(f"unexpected argument {args.left_over[0]!r}", hint=f"for data files, run {command}")
    if os.path.isfile(args.project):
        command = shlex.join(["alchemy", "new", "FOLDER", "--data", args.project])
        raise AlchemyError(f"{args.project} is a file, expected a folder", hint=f"for data files, run {command}")
    folder, kind = Path(args.project), args.kind or (_guess_kind(args) if args.data else "points")
    _check_options(args, kind)
    if kind == "points" and not args.data:
        files = project(folder.resolve().name or "demo")
        _write(folder, files, force=args.force)
        _print_next(args.project, ["alchemy run train.toml"])
        return 0
    if kind in ("image", "segmentation"):
        return _start_images(args, kind, folder)
    if kind == "gan":
        _write(folder, gan_project(folder, args.data or []), force=args.force)
        _print_next(args.project, ["alchemy run train.toml"])
        return 0
    files = _source_files(kind) | ({} if args.data else data_files(kind))
    _check_free(folder, ["train.toml", *files], force=args.force)
    if not args.data:
        _write(folder, files, force=True)
        files = {}
    finding = _inspect(kind, [Path(path) for path in args.data or [folder / "data"]], args, folder)
    from alchemy.cli.starter.config import render_config

    _write(folder, files | {"train.toml": render_config(kind, finding)}, force=True)
    _print_next(args.project, _next_commands(kind, finding))
    return 0


def _start_images(args: argparse.Namespace, kind: str, folder: Path) -> int:
    """Create an image project; sample images are drawn by code."""
    from alchemy.cli.starter.image_samples import CLASSES, image_files
    from alchemy.cli.starter.images import inspect_images, next_commands, render_image_config

    files = _source_files(kind)
    _check_free(folder, ["train.toml", *files, *([] if args.data else ["data"])], force=args.force)
    if not args.data:
        _write_images(folder, list(image_files(kind)))
    found = inspect_images(kind, args.data or [str(folder / "data")], folder, args.label)
    if kind == "segmentation" and not args.data:
        found.task["labels"] = list(CLASSES)
    print(printable("\n".join(found.shown)))
    _write(folder, {**files, "train.toml": render_image_config(kind, found)}, force=True)
    _print_next(args.project, next_commands(found))
    return 0


def _write_images(folder: Path, files: list[tuple[str, bytes]]) -> None:
    try:
        for name, content in files:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)
    except OSError as error:
        raise AlchemyError(f"cannot write {folder / name}: {error.strerror or error}") from error
    print(f"wrote {len(files)} images to {folder / 'data'}")


def _check_options(args: argparse.Namespace, kind: str) -> None:
    given = [name for name in (*COLUMNS, "encoding") if getattr(args, name)]
    if given and not args.data:
        raise AlchemyError(f"--{given[0]} requires --data")
    for name, kinds in COLUMNS.items():
        if name in given and kind not in kinds:
            raise AlchemyError(f"--{name} applies to --kind {', '.join(kinds)}, not to {kind}")


def _guess_kind(args: argparse.Namespace) -> str:
    """Guess the kind from the training file: ner or points, otherwise text; column options imply text."""
    from alchemy.cli.starter.images import guess_kind as guess_image_kind
    from alchemy.data.sniff.files import find_splits
    from alchemy.data.sniff.layout import sniff_table
    from alchemy.data.sniff.points import looks_numeric
    from alchemy.data.sniff.tags import looks_tagged

    if any(getattr(args, name) for name in COLUMNS if name != "label"):
        return "text"
    if images := guess_image_kind(args.data):
        print(printable(f"{args.data[0]} has images: using --kind {images}"))
        return images
    splits, _ = find_splits([Path(path) for path in args.data])
    file = splits["train"][0]
    if not args.label and looks_tagged(file, args.encoding):
        kind, content = "ner", "a token and its tag on each line"
    elif looks_numeric(sniff_table(file, args.encoding), args.label):
        kind, content = "points", "numbers and a label"
    else:
        return "text"
    print(printable(f"{file} has {content}: using --kind {kind}"))
    return kind


def _source_files(kind: str) -> dict[str, str]:
    """Return the files of a project other than its config and data."""
    paths = {path.relative_to(TEMPLATE).as_posix(): path for path in sorted((TEMPLATE / "src").glob("*.py"))}
    paths = (paths if kind == "points" else {}) | {".gitignore": TEMPLATE / "gitignore"}
    return {name: path.read_text("utf-8") for name, path in paths.items()}


def project(name: str) -> dict[str, str]:
    """Return the files of the points project, keyed by path."""
    files = {}
    for path in sorted(path for path in TEMPLATE.rglob("*") if path.is_file() and "__pycache__" not in path.parts):
        place = path.relative_to(TEMPLATE)
        text = path.read_text(encoding="utf-8")
        # a JSON string is also a TOML string
        text = text.replace('"{{name}}"', json.dumps(name, ensure_ascii=False)).replace("{{name}}", name)
        files[place.with_name(RENAMED.get(place.name, place.name)).as_posix()] = text
    return files | data_files("points")


def _inspect(kind: str, paths: list[Path], args: argparse.Namespace, folder: Path) -> Finding:
    """Detect and print the format of the files; return it with paths relative to the project."""
    from alchemy.data.sniff.files import find_splits
    from alchemy.data.sniff.finding import Hints, relocate

    splits, left = find_splits(paths, sides=kind == "translation")
    hints = Hints(args.text, args.pair, args.label, args.source, args.target, args.encoding)
    finding = _sniffer(kind)(splits, hints)
    if left:
        finding.notes.append(f"not used: {', '.join(path.name for path in left)}")
    several = [f"  {split}: {_describe(split, finding)}" for split in finding.sizes] if len(finding.sizes) > 1 else []
    for line in (*finding.shown, *several):
        print(printable(line))
    for note in finding.notes:
        print(printable(f"  note: {note}"))
    return relocate(finding, folder)


def _describe(split: str, finding: Finding) -> str:
    path = finding.splits[split]["path"]
    return f"{path if isinstance(path, str) else ', '.join(path)}, {finding.format_size(split)}"


def _sniffer(kind: str) -> Callable[[dict[str, list[Path]], Hints], Finding]:
    from alchemy.data.sniff.parallel import sniff_parallel
    from alchemy.data.sniff.points import sniff_points
    from alchemy.data.sniff.tags import sniff_tags
    from alchemy.data.sniff.texts import sniff_pairs, sniff_texts

    return {
        "text": sniff_texts,
        "pairs": sniff_pairs,
        "ner": sniff_tags,
        "translation": sniff_parallel,
        "points": sniff_points,
    }[kind]


def _check_free(folder: Path, names: list[str], *, force: bool) -> None:
    existing = [name for name in names if os.path.lexists(folder / name)]
    if existing and not force:
        hint = "choose another folder, or use --force to overwrite"
        raise AlchemyError(f"{folder} already contains {', '.join(existing)}", hint=hint)


def _write(folder: Path, files: dict[str, str], *, force: bool) -> None:
    _check_free(folder, list(files), force=force)
    try:
        for name, text in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise AlchemyError(f"cannot write {folder / name}: {error.strerror or error}") from error
    print("\n".join(f"wrote {folder / name}" for name in files))


def _next_commands(kind: str, finding: Finding) -> list[str]:
    tested = "test" in finding.splits or "dev" not in finding.splits
    options = f"--text {shlex.quote(finding.question)}"
    if kind == "points":
        options = f"--split {'test' if tested else 'dev'} --out predictions.csv"
    options += f" --pair {shlex.quote(finding.other)}" if kind == "pairs" else ""
    return [
        "alchemy check train.toml",
        f"alchemy run train.toml{' --test' if tested else ''}",
        f"alchemy predict latest {options}",
    ]


def _print_next(folder: str, commands: list[str]) -> None:
    """Print the next commands, on one line if there are only two."""
    steps = [*([] if folder == "." else [f"cd {shlex.quote(folder)}"]), *commands]
    print(printable(f"next: {' && '.join(steps)}" if len(steps) < 3 else "\n  ".join(["next:", *steps])))


COMMAND = Command(_arguments, _main, EXAMPLES)
