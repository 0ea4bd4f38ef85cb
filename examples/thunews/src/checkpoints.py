"""Write and read the checkpoint-N folders."""

import json
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from alchemy import evaluate
from alchemy.errors import AlchemyError
from alchemy.files import replace_folder
from alchemy.models.pretrained import Pretrained
from alchemy.pipeline import EndEpochPipeline, EndStepPipeline, SchedPipeline
from alchemy.pipeline.sched import is_last_epoch
from src.former import forget

HEAD = "head.safetensors"


@SchedPipeline.register()
class Steps(EndStepPipeline, EndEpochPipeline):
    """Write checkpoint-N every `save_steps` updates and at the end, and evaluate every `eval_steps`; 0 means never."""

    def __init__(self, *, output_dir: str, save_steps: int = 0, eval_steps: int = 0) -> None:
        super().__init__()
        self.output_dir, self.save_steps, self.eval_steps = Path(output_dir), save_steps, eval_steps
        self.done = self.saved = 0  # the last update seen, and the last one written

    def __call__(self, *outputs: Any, **kwargs: Any) -> dict[str, Any]:
        run, update = self.run, self.run.update
        new = update != self.done and not run.mid_window
        if new and not self.done and run.group.is_main:
            forget(self.output_dir)
        at_end = not outputs and is_last_epoch(run)  # outputs exist only at the end of a step
        if update != self.saved and (at_end or (new and is_due(update, self.save_steps))):
            self.saved = update
            if run.group.is_main:
                write(checkpoint_folder(self.output_dir, update), run.model.module, run.task.tokenizer)
        if new and is_due(update, self.eval_steps):
            evaluate("dev")
        self.done = update if new else self.done
        return kwargs

    def state_dict(self) -> dict[str, int]:
        return {"done": self.done, "saved": self.saved}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.done, self.saved = state["done"], state["saved"]


def is_due(update: int, every: int) -> bool:
    return bool(every) and update % every == 0


def checkpoint_folder(output_dir: Path, update: int) -> Path:
    return output_dir / f"checkpoint-{update}"


def checkpoints(output_dir: Path) -> list[Path]:
    """Return all checkpoints of a folder, oldest first."""
    found = [path for path in output_dir.glob("checkpoint-*") if path.name.partition("-")[2].isdecimal()]
    return sorted(found, key=lambda path: int(path.name.partition("-")[2]))


def write(folder: Path, net: Any, tokenizer: Any) -> None:
    """Write encoder and tokenizer in the format of transformers, and all other weights to a separate file."""

    def save(new: Path) -> None:
        net.encoder.save_pretrained(new)
        for name, content in tokenizer_files(tokenizer).items():
            (new / name).write_bytes(content)
        head = {name: value for name, value in net.state_dict().items() if not name.startswith("encoder.")}
        save_file({name: value.contiguous() for name, value in head.items()}, new / HEAD)

    replace_folder(folder, save)


def tokenizer_files(tokenizer: Any) -> dict[str, bytes]:
    """Return the files of the tokenizer, with the lower-case setting of the flags."""
    files = dict(tokenizer.contents())
    if tokenizer.lower is None:
        return files
    settings = json.loads(files.get("tokenizer_config.json", b"{}")) | {"do_lower_case": tokenizer.lower}
    files["tokenizer_config.json"] = json.dumps(settings, ensure_ascii=False, indent=2).encode()
    if "tokenizer.json" in files:
        whole = json.loads(files["tokenizer.json"])
        whole["normalizer"]["lowercase"] = tokenizer.lower
        files["tokenizer.json"] = json.dumps(whole, ensure_ascii=False, indent=2).encode()
    return files


def read(folder: Path, net: Any, tokenizer: Any, kind: str) -> None:
    """Load the weights of a checkpoint into a net."""
    device = next(net.parameters()).device
    net.encoder = Pretrained(str(folder), tokenizer=tokenizer, kind=kind).to(device)
    try:
        missing, strange = net.load_state_dict(load_file(folder / HEAD, device=str(device)), strict=False)
        wrong = [name for name in (*missing, *strange) if not name.startswith("encoder.")]
    except (OSError, SafetensorError, RuntimeError) as error:
        wrong = [str(error)]
    if wrong:
        hint = "use the same --model_type and head flags as in training: see config.toml"
        raise AlchemyError(f"the head does not match: {', '.join(wrong)}", where=str(folder / HEAD), hint=hint)
