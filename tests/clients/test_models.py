"""Two patterns of old code: a runner used as a context manager, and a model whose `save` is a class method."""

import torch

from alchemy import AlchemyRunner, prepare_cfg, run, sym_tbl
from tests import toy


class SavesItsWay(toy.OldLine):
    @classmethod
    def save(cls, model, path, **kwargs):
        torch.save(model.state_dict(), path)


def test_the_last_weights_are_saved_whatever_save_takes(tmp_path):
    result = run([toy.config(tmp_path, model={"type": f"{__name__}.SavesItsWay"})], device=[-1])[0]
    assert result.exception is None, result.exception
    assert list((result.record_dir / "state/last").glob("*.safetensors"))


def test_a_runner_as_a_context_ends_its_run():
    cfg = prepare_cfg(toy.config(sched={"type": "alchemy.sched.Constant", "epochs": 1}))
    with AlchemyRunner.from_registry(cfg["runner"], cfg, {"device": "cpu"}, desc="d", debug=False) as runner:
        runner.run()
        assert sym_tbl().train_sched.cur_epoch == 0
        assert sym_tbl().get_global("desc") == runner.data["desc"] == "d"
    assert sym_tbl().cfg is None
