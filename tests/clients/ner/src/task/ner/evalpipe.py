"""What happens with the predictions of a split: score, remember the best, save."""

import json
from pathlib import Path
from typing import Any, Dict, Optional

import numpy as np
from loguru import logger

from alchemy import AlchemyTrainScheduler, sym_tbl
from alchemy.pipeline import EvalPipeline
from alchemy.util.json import NpJsonEncoder


def spans(entities):
    return {(e["start"], e["end"], e["type"]) for e in entities}


@EvalPipeline.register("EvalNer")
class EvalNerPipe(EvalPipeline):
    def __init__(self, varname: str = "preds", store_history: bool = True, **kwargs) -> None:
        super().__init__()
        self.varname = varname
        self.store_history = store_history

    def begin_eval(self, split: str, **kwargs):
        # the same key at every evaluation: a global may be set again
        sym_tbl().set_global("eval_split", split)

    def __call__(self, split: str, **kwargs) -> Dict[str, Any]:
        preds = sym_tbl().pop_global(self.varname)
        hits = sum(len(spans(p["preds"]) & spans(p["entities"])) for p in preds)
        found, wanted = sum(len(p["preds"]) for p in preds), sum(len(p["entities"]) for p in preds)
        score = {"f1_micro": np.float64(2 * hits / max(found + wanted, 1)), "support": np.int64(wanted)}
        kwargs["preds"] = preds
        kwargs["ner_score"] = score

        save_dir: Optional[Path] = sym_tbl().try_get_global("record_dir")
        if self.store_history and save_dir is not None:
            with (save_dir / "evals.jsonl").open("a", encoding="utf8") as wf:
                row = {"step": sym_tbl().train_sched.cur_step, "split": split, "score": score}
                wf.write(json.dumps(row, cls=NpJsonEncoder) + "\n")
        return kwargs


@EvalPipeline.register("LogBest")
class LogBest(EvalPipeline):
    def __init__(self, metric: str = "f1_micro", **kwargs):
        super().__init__()
        self.metric = metric

    def begin_eval(self, split: str, **kwargs):
        sym_tbl().try_set_global("best_info", {"epoch": -1, "step": -1})

    def __call__(self, split: str, **kwargs) -> Dict[str, Any]:
        best_info = sym_tbl().get_global("best_info")
        score = float(kwargs["ner_score"][self.metric])
        kwargs["achieve_best"] = self.metric not in best_info or best_info[self.metric] < score
        sched: Optional[AlchemyTrainScheduler] = sym_tbl().train_sched
        if kwargs["achieve_best"]:
            best_info[self.metric] = score
            best_info["epoch"] = "unk" if sched is None else sched.cur_epoch
            best_info["step"] = "unk" if sched is None else sched.cur_step
            save_dir: Optional[Path] = sym_tbl().record_dir
            if save_dir is not None:
                with (save_dir / "best_info.json").open("w", encoding="utf8") as wf:
                    json.dump(best_info, wf, ensure_ascii=False)
        logger.info("[{}] current best = {}".format(split, best_info))
        return kwargs


@EvalPipeline.register("LogTensorboard")
class LogTensorboard(EvalPipeline):
    def __init__(self, varname: str = "summary_writer", **kwargs) -> None:
        super().__init__()
        self.varname = varname

    def __call__(self, split: str, **kwargs) -> Dict[str, Any]:
        writer = sym_tbl().try_get_global(self.varname)
        if writer is not None:
            step = sym_tbl().train_sched.cur_step
            writer.add_scalar(f"{split}/ner_f1_micro", float(kwargs["ner_score"]["f1_micro"]), step)
        return kwargs


@EvalPipeline.register("SaveExamples")
class SaveExamples(EvalPipeline):
    def __init__(self, save_dir: str = "detail_log", **kwargs):
        super().__init__()
        self.save_dir = save_dir

    def label(self, split: str) -> str:
        return split

    def __call__(self, split: str, **kwargs) -> Dict[str, Any]:
        record_dir: Optional[Path] = sym_tbl().try_get_global("record_dir")
        pbar = sym_tbl().try_get_global("pbar")  # there during training steps only
        if record_dir is not None:
            tid = None if pbar is None else pbar.add_task("Saving", total=len(kwargs["preds"]))
            (record_dir / self.save_dir).mkdir(exist_ok=True)
            with (record_dir / self.save_dir / f"{self.label(split)}.jsonl").open("w", encoding="utf8") as wf:
                for pred in kwargs["preds"]:
                    wf.write(json.dumps(pred) + "\n")
                    if pbar is not None:
                        pbar.update(tid, advance=1, description="Saving {}".format(pred["id"]))
            if pbar is not None:
                pbar.remove_task(tid)
        return kwargs


@EvalPipeline.register("SaveStepExamples")
class SaveStepExamples(SaveExamples):
    def label(self, split: str) -> str:
        return "{}_step{}".format(split, sym_tbl().train_sched.cur_step)


@EvalPipeline.register("SaveModel")
class SaveModel(EvalPipeline):
    def __init__(self, store_best: bool = False, **kwargs) -> None:
        super().__init__()
        self.store_best = store_best

    def __call__(self, split: str, **kwargs) -> Dict[str, Any]:
        checkpt_dir: Optional[Path] = sym_tbl().try_get_global("checkpt_dir")
        if checkpt_dir is not None and self.store_best and kwargs["achieve_best"]:
            logger.info('Saving best model at "{}"...'.format(checkpt_dir / "best"))
            sym_tbl().model.save(checkpt_dir / "best")
        return kwargs
