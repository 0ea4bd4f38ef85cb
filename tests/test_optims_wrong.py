"""Several optimizers: invalid losses and unknown names."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

import alchemy
from alchemy.errors import AlchemyError, RunFailed
from alchemy.loss_observer import Loss
from alchemy.model import NotFinite
from tests.gan import config
from tests.gan_ready import SGD, batches, step, training, weights_of


@pytest.mark.parametrize("nonfinite", ["stop", "skip"])
def test_a_loss_that_is_not_finite_holds_its_own_optimizer_back(nonfinite: str) -> None:
    with training(backward={"nonfinite": nonfinite}) as run:
        updater, pair, start = run.updater, run.model.module, weights_of(run)
        loss = pair.discriminator(torch.ones(2, 1).double()).sum() * math.nan
        if nonfinite == "stop":
            with pytest.raises(NotFinite, match="the loss of 'discriminator' is not finite in update 1"):
                updater.accumulate(Loss(loss, 2), optim="discriminator")
        else:
            updater.accumulate(Loss(loss, 2), optim="discriminator")
            updater.accumulate(Loss(pair.generator(torch.ones(2, 2).double()).sum(), 2), optim="generator")
            updater.flush()
            assert (updater.skipped, updater.updates) == (1, 1)
            assert not torch.equal(weights_of(run, "generator")[0], start[0])
        torch.testing.assert_close(weights_of(run, "discriminator"), start[4:], rtol=0, atol=0)


def spoilt(*players: str) -> dict[str, Any]:
    return config(model={"type": "tests.gan.Spoilt", "players": list(players)}, backward={"nonfinite": "skip"})


def test_a_training_in_which_one_of_them_never_moves_still_ends_well() -> None:
    (result,) = alchemy.run([spoilt("discriminator")], device=[-1], raise_errors=True)
    assert result.status == "finished"


def test_a_training_in_which_none_of_them_ever_moves_fails() -> None:
    with pytest.raises(RunFailed, match="all 20 updates were skipped because they were not finite"):
        alchemy.run([spoilt("discriminator", "generator")], device=[-1], raise_errors=True)


def test_a_loss_that_does_not_reach_its_parameters_is_refused() -> None:
    with training() as run:
        pair = run.model.module
        fake = pair.generator(torch.ones(2, 2).double()).detach()
        with pytest.raises(
            AlchemyError,
            match="loss of 'generator' does not depend on its parameters; check whether part of the graph is detached",
        ):
            run.updater.accumulate(Loss(pair.discriminator(fake).sum(), 2), optim="generator")


def test_a_frozen_optimizer_waits() -> None:
    with training() as run:
        run.model.set_requires_grad(False, "generator")
        before = weights_of(run, "generator")
        step(run, batches(12)[0])
        torch.testing.assert_close(weights_of(run, "generator"), before, rtol=0, atol=0)
        assert run.train_sched.num_updates == 1


def test_names_that_nobody_has_are_refused() -> None:
    with training() as run:
        x = next(run.model.parameters()).sum()
        with pytest.raises(AlchemyError, match="there is no optimizer 'generater'; did you mean 'generator'"):
            run.updater.accumulate(Loss(x, 1), optim="generater")
    with training(optim=SGD) as run:
        x = next(run.model.parameters()).sum()
        with pytest.raises(
            AlchemyError,
            match=r"names the optimizer 'generator', but there is only one .*\[optim.generator\]",
        ):
            run.updater.accumulate(Loss(x, 1), optim="generator")


@pytest.mark.parametrize("same_batch", [True, False])
@pytest.mark.parametrize(("first", "second"), [("generator", ""), ("", "generator")])
def test_losses_with_and_without_a_name_do_not_mix(first: str, second: str, same_batch: bool) -> None:
    with training(backward={"period": 2}) as run:
        updater, weight = run.updater, next(run.model.parameters())
        updater.accumulate(Loss(weight.sum(), 1), optim=first)
        if not same_batch:
            updater.end_micro_batch()
        with pytest.raises(AlchemyError, match="name an optimizer for every loss"):
            updater.accumulate(Loss(weight.sum(), 1), optim=second)


def test_halves_of_a_step_with_named_losses_are_refused() -> None:
    with training() as run, pytest.raises(RunFailed, match="not split"), run.updater.merge_losses():
        step(run, batches(12)[0])


def test_a_handler_of_a_project_is_given_the_name() -> None:
    with training(backward={"type": "tests.gan.NotesNames"}) as run:
        step(run, batches(12)[0])
        assert run.model.backward.seen == ["discriminator", "generator"]
