"""Generate the table of recipes: summarize records in one JSON file per recipe, and write the table to two pages.

In the folder of the recipes, after runs with `--test`:

    python table.py collect ../runs/recipes   # records -> results/<tag>.json
    python table.py show                      # results/<tag>.json -> the table in README.md and docs/recipes.md
"""

from __future__ import annotations

import json
import statistics
import sys
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).parent
PAGES = (HERE / "README.md", HERE.parent / "docs" / "recipes.md")
BEGIN, END = "<!-- table -->", "<!-- end of table -->"


class Recipe(NamedTuple):
    """The config file of a recipe, its metric, and the published result with its training data.

    Scores are multiplied by `scale`; `more` describes further steps after the run, if any.
    """

    file: str
    metric: str
    published: str
    scale: float = 100.0
    more: str = ""

    def command(self, seeds: str) -> str:
        if self.more:
            return f"`alchemy run {self.file}`, then {self.more}"
        return f"`alchemy run {self.file} --seeds {seeds} --test`"


RECIPES = {
    "thucnews-fasttext": Recipe("thucnews/fasttext.toml", "accuracy", "92.23, all 180 k titles"),
    "thucnews-textcnn": Recipe("thucnews/textcnn.toml", "accuracy", "91.22, all 180 k titles and Sogou vectors"),
    "thucnews-bilstm": Recipe("thucnews/bilstm.toml", "accuracy", "91.12, all 180 k titles and Sogou vectors"),
    "thucnews-bilstm-attention": Recipe(
        "thucnews/bilstm_attention.toml", "accuracy", "90.90, all 180 k titles and Sogou vectors"
    ),
    "thucnews-rcnn": Recipe("thucnews/rcnn.toml", "accuracy", "91.54, all 180 k titles and Sogou vectors"),
    "thucnews-dpcnn": Recipe("thucnews/dpcnn.toml", "accuracy", "91.25, all 180 k titles and Sogou vectors"),
    "thucnews-transformer": Recipe(
        "thucnews/transformer.toml", "accuracy", "89.91, all 180 k titles and Sogou vectors"
    ),
    "trec-textcnn": Recipe("trec/textcnn.toml", "accuracy", "91.2 (Kim 2014), replicated 88.2"),
    "sst2-textcnn": Recipe("sst2/textcnn.toml", "accuracy", "82.7, trained on phrases (Kim 2014)"),
    "sst2-minilm": Recipe("sst2/minilm.toml", "accuracy", "none with these weights"),
    "semeval-rbert": Recipe("semeval/rbert.toml", "f1", "88.29 with BERT-base (R-BERT)"),
    "resume-bilstm-crf": Recipe("resume_ner/bilstm_crf.toml", "f1", "94.46 (Lattice LSTM)"),
    "resume-small-bert-crf": Recipe("resume_ner/small_bert_crf.toml", "f1", "none without pretraining"),
    "resume-bert-crf": Recipe("resume_ner/bert_crf.toml", "f1", "95.82 on dev with BERT-base (bertorch)"),
    "multi30k-tiny": Recipe("multi30k/tiny.toml", "bleu_words", "41.02 (Revisit-MMT)", 1.0, "average its checkpoints"),
}


def collect(root: Path) -> None:
    """Summarize the records of all tests below a folder; the latest record of each seed counts."""
    found: dict[str, dict[int, dict[str, Any]]] = {}
    for record in sorted((root / "test").glob("*/record.json")):
        try:
            info = json.loads(record.read_text("utf-8"))
            row = read_seed(info, record.parent) if info["tag"] in RECIPES and info["status"] == "finished" else None
        except (OSError, ValueError, LookupError) as error:
            print(f"skipped: {record.parent}: {error}", file=sys.stderr)
            continue
        if row is not None and " --set " in row["command"]:
            print(f"skipped: {record.parent} was run with --set, which the table cannot show", file=sys.stderr)
        elif row is not None:
            found.setdefault(info["tag"], {})[info["seed"]] = row
    if not found:
        sys.exit(f"no finished test of a recipe in {root / 'test'}: run one with --test")
    for tag, seeds in found.items():
        rows = [seeds[seed] for seed in sorted(seeds)]
        lost = {row["seed"] for row in results(tag)} - seeds.keys()
        if lost:
            print(f"unchanged: {tag}, because seeds {sorted(lost)} are only in results/", file=sys.stderr)
            continue
        (HERE / "results").mkdir(exist_ok=True)
        text = json.dumps({"tag": tag, "metric": RECIPES[tag].metric, "seeds": rows}, ensure_ascii=False, indent=1)
        (HERE / "results" / f"{tag}.json").write_text(text + "\n", "utf-8")
        print(f"{tag}: {summary(tag)}, seeds {', '.join(str(row['seed']) for row in rows)}")


def read_seed(info: dict[str, Any], test: Path) -> dict[str, Any]:
    """Return the test score of one seed, and the curves of its training run."""
    metric = RECIPES[info["tag"]].metric
    cfg = tomllib.loads((test / "cfg.toml").read_text("utf-8"))
    train = (HERE / cfg["model"]["model_path"]).parent.parent  # relative to the folder of the recipes
    trained = json.loads((train / "record.json").read_text("utf-8"))
    return {
        "seed": info["seed"],
        "test": values(test, f"test/{metric}")[-1],
        "dev": values(train, f"dev/{metric}"),
        "seconds": round(seconds(train)),
        "command": " ".join(["alchemy", *trained["cmd"][1:]]),
        "date": trained["started"][:10],
        "versions": trained["versions"],
    }


def values(record: Path, name: str) -> list[float]:
    """Return all values of a metric, in logging order."""
    rows = map(json.loads, (record / "metrics.jsonl").read_text("utf-8").splitlines())
    return [row["values"][name] for row in rows if name in row.get("values", {})]


def seconds(record: Path) -> float:
    """Return the duration of a training run, without the time between an interruption and its resumption."""
    last: float = json.loads((record / "metrics.jsonl").read_text("utf-8").splitlines()[-1])["t"]
    return last


def results(tag: str) -> list[dict[str, Any]]:
    """Return the stored results of a recipe, one row per seed."""
    file = HERE / "results" / f"{tag}.json"
    rows: list[dict[str, Any]] = json.loads(file.read_text("utf-8"))["seeds"] if file.is_file() else []
    return rows


def summary(tag: str) -> str:
    scores = [RECIPES[tag].scale * row["test"] for row in results(tag)]
    spread = f" ± {statistics.stdev(scores):.2f}" if len(scores) > 1 else ""
    return f"{statistics.mean(scores):.2f}{spread}"


def table() -> str:
    lines = ["| recipe | command | time per seed | test | published |", "|---|---|---|---|---|"]
    for tag, recipe in RECIPES.items():
        rows = results(tag)
        command = recipe.command(",".join(str(row["seed"]) for row in rows) or "1,2,3")
        minutes = f"{statistics.median(row['seconds'] for row in rows) / 60:.0f} min" if rows else ""
        counted = "1 seed" if len(rows) == 1 else f"{len(rows)} seeds"
        result = f"{recipe.metric} {summary(tag)} ({counted})" if rows else "not run here"
        lines.append(f"| {tag} | {command} | {minutes} | {result} | {recipe.published} |")
    return "\n".join(lines)


def show() -> None:
    for page in PAGES:
        before, _, rest = page.read_text("utf-8").partition(BEGIN)
        after = rest.partition(END)[2]
        page.write_text(f"{before}{BEGIN}\n{table()}\n{END}{after}", "utf-8")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["collect", root]:
            collect(Path(root))
        case ["show"]:
            show()
        case _:
            sys.exit(__doc__)
