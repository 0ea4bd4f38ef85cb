"""Stop rules: when they apply, their messages, combinations, and the same stop after resuming."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alchemy.context import Progress, Run
from alchemy.errors import AlchemyError
from alchemy.pipeline import EndEpochPipeline, SchedPipeline
from alchemy.runner import run
from alchemy.stop import (
    Divergence,
    Epochs,
    MinLR,
    Patience,
    Rules,
    StopRule,
    Target,
    Time,
    Tokens,
    Updates,
    build_rules,
)
from tests.contracts.parts import each
from tests.logs import warned
from tests.toy import config

NAN = float("nan")


@SchedPipeline.register()
class Last(EndEpochPipeline):
    """Remember the update at which an epoch ended."""

    update = 0

    def __call__(self, **kwargs: Any) -> dict[str, Any]:
        Last.update = self.run.update
        return kwargs


def at(**values: Any) -> Any:
    """A run in the middle of its first epoch of four steps, with the attributes that rules read."""
    known: dict[str, Any] = {"update": 0, "tokens": 0, "elapsed": 0.0, "epoch_steps": 4, "lrs": [0.1]}
    known |= {"cur_epoch": 0, "epochs_done": 0, "cur_step_this_epoch": 0, "cur_step": 0, **values}
    sched = SimpleNamespace(**{key: known[key] for key in known if key.startswith(("cur", "epochs"))})
    optim = SimpleNamespace(param_groups=[{"lr": lr} for lr in known["lrs"]])
    progress = Progress(epoch_steps=known["epoch_steps"])
    return SimpleNamespace(**known, progress=progress, train_sched=sched, optim=optim, stop_together=str, stop=str)


REACHED = {
    "epochs": (Epochs(epochs=2), at(cur_epoch=1, epochs_done=2), "reached 2 epochs"),
    "a fraction": (Epochs(epochs=1.5), at(cur_epoch=1, epochs_done=1, cur_step_this_epoch=1), "reached 1.5 epochs"),
    "updates": (Updates(updates=10_000), at(update=10_000), "reached 10,000 updates"),
    "hours": (Time(hours=1.5, minutes=30), at(elapsed=7200.0), "reached the time limit of 2.0 hours"),
    "minutes": (Time(seconds=90), at(elapsed=90.5), "reached the time limit of 1.5 minutes"),
    "seconds": (Time(seconds=5), at(elapsed=5.0), "reached the time limit of 5.0 seconds"),
}
NOT_YET = {
    "epochs": (Epochs(epochs=2), at(cur_epoch=1, epochs_done=1, cur_step_this_epoch=2)),
    "no length": (Epochs(epochs=0.5), at(cur_step_this_epoch=9, epoch_steps=None)),
    "updates": (Updates(updates=10), at(update=9)),
    "time": (Time(hours=1), at(elapsed=3599.0)),
    "rate from the beginning": (MinLR(lr=0.1), at(lrs=[0.05])),
}


@pytest.mark.parametrize(("rule", "run", "reason"), REACHED.values(), ids=REACHED)
def test_a_rule_gives_its_reason_when_it_is_reached(rule, run, reason):
    assert Rules(any=[rule]).after_update(run) == reason


@pytest.mark.parametrize(("rule", "run"), NOT_YET.values(), ids=NOT_YET)
def test_a_rule_that_is_not_reached_says_nothing(rule, run):
    assert Rules(any=[rule], all=[rule]).after_update(run) == ""


@pytest.mark.parametrize("epochs", [0.1, 0.3, 0.7, 1.1, 2.3, 2.9])
def test_fractions_of_an_epoch_end_at_the_step_that_is_meant(epochs):
    rules, steps = Rules(any=[Epochs(epochs=epochs)]), 0
    for epoch in range(3):
        for step in range(10):
            steps += 1
            run = at(cur_epoch=epoch, epochs_done=epoch, cur_step_this_epoch=step, epoch_steps=10)
            if rules.after_update(run):
                assert steps == round(10 * epochs)
                return
    pytest.fail("it was never reached")


def test_the_rate_must_come_down_in_every_group_and_a_warm_up_does_not_count():
    rules = Rules(any=[MinLR(lr=0.1)])
    said = [rules.after_update(at(lrs=lrs)) for lrs in ([0.0, 0.05], [0.05, 0.2], [0.1, 0.11], [0.1, 0.05])]
    assert said == ["", "", "", "the learning rate has dropped to 0.1"]


def evaluations(rule: StopRule, *values: float, split: str = "dev", **scores: float) -> list[str]:
    rules = Rules(any=[rule])
    return [rules.after_eval(at(update=i), split, {"f1": value, **scores}) for i, value in enumerate(values)]


def test_patience_counts_evaluations_without_progress():
    said = evaluations(Patience(monitor="dev/f1", patience=3), 0.5, 0.91, 0.9, 0.91, 0.3)
    assert said == ["", "", "", "", "dev/f1 has not improved on 0.91 for 3 evaluations"]
    assert evaluations(Patience(monitor="dev/f1", patience=1), NAN)[-1] == "dev/f1 was never finite for 1 evaluations"


def test_patience_wants_a_gain_of_min_delta_in_its_direction():
    rule = Patience(monitor="dev/f1", mode="min", patience=1, min_delta=0.1)
    assert evaluations(rule, 0.5, 0.3, 0.25)[1:] == ["", "dev/f1 has not improved on 0.3 for 1 evaluations"]


@pytest.mark.parametrize("patience", [0, -1])
def test_no_patience_is_off(patience):
    assert set(evaluations(Patience(monitor="dev/f1", patience=patience), *[0.5] * 9)) == {""}


@pytest.mark.parametrize("rule", [Patience(monitor="dev/f1", patience=1), Target(monitor="dev/f1", value=0.1)])
def test_only_the_named_split_counts_and_its_score_must_be_there(rule):
    assert set(evaluations(rule, 0.5, 0.4, 0.3, split="test")) == {""}
    with pytest.raises(AlchemyError, match=r"monitor = 'dev/f1' is not among the scores of 'dev'; .* f2"):
        Rules(any=[rule]).after_eval(at(), "dev", {"f2": 1.0})


def test_a_target_is_reached_from_either_side_and_never_by_a_broken_model():
    assert evaluations(Target(monitor="dev/f1", value=0.9), 0.89, 0.95)[-1] == "dev/f1 is 0.95 and has reached 0.9"
    assert evaluations(Target(monitor="dev/f1", mode="min", value=0.1), 0.2, 0.1)[0] == ""
    assert evaluations(Target(monitor="dev/f1", mode="min", value=0.1), 0.2, 0.1)[1]
    assert evaluations(Target(monitor="dev/f1", value=0.9), 0.95, loss=NAN) == [""]


def rows(rule: StopRule, *values: float) -> list[str]:
    rules = Rules(any=[rule])
    return [rules.after_log(at(), {"train/loss": value, "train/lr": 0.1}) for value in values]


DIVERGES = {
    "nan": (Divergence(rows=2), [1.0, NAN, 2.0, NAN, NAN], "to nan for 2 log rows; the best value was 1"),
    "from the start": (Divergence(rows=1), [NAN], "to nan for 1 log rows"),
    "factor": (Divergence(factor=2.0, rows=1), [3.0, 1.0, 2.0, 2.1], "to 2.1 for 1 log rows; the best value was 1"),
    "limit": (Divergence(limit=5.0, rows=1), [-1.0, 4.0, 5.1], "to 5.1 for 1 log rows; the best value was -1"),
}


@pytest.mark.parametrize(("rule", "values", "reason"), DIVERGES.values(), ids=DIVERGES)
def test_divergence_is_what_goes_on_for_a_number_of_rows(rule, values, reason):
    *before, last = rows(rule, *values)
    assert set(before) <= {""}
    assert last == f"train/loss has diverged {reason}"


def test_tokens_are_counted_when_numbers_are_logged():
    rules = Rules(any=[Tokens(tokens=1e6)])
    assert rules.after_log(at(tokens=999_999), {}) == rules.after_update(at(tokens=1_000_100)) == ""
    assert rules.after_log(at(tokens=1_000_100), {}) == "reached 1,000,100 tokens"


def test_any_number_can_be_followed():
    assert rows(Target(monitor="train/loss", mode="min", value=0.1), 0.2, 0.1)[1] != ""
    assert rows(Patience(monitor="train/loss", mode="min", patience=1), 0.2, 0.2)[1].endswith("for 1 log rows")
    assert rows(Patience(monitor="dev/loss", patience=1), 0.2, 0.2) == ["", ""]
    assert evaluations(Divergence(monitor="dev/f1", rows=1), NAN)[0].endswith("to nan for 1 evaluations")


def test_a_number_that_the_log_does_not_have_is_told_of_once():
    with warned("DEBUG") as said:
        found = [rows(rule, 0.2, 0.1) for rule in (Target(monitor="train/los", value=0.0), Patience(monitor="dev/los"))]
    assert found == [["", ""], ["", ""]]
    assert said == ["Target monitors 'train/los', which is not a logged training metric; did you mean 'train/loss'?"]


def test_the_first_of_any_stops_and_its_reason_stands():
    rules = Rules(any=[Updates(updates=3), Updates(updates=2), Time(seconds=1)])
    assert rules.after_update(at(update=1)) == ""
    assert rules.after_update(at(update=3, elapsed=1.0)) == "reached 3 updates"


def test_all_must_have_been_reached_each_at_its_own_time():
    rules = Rules(all=[Target(monitor="dev/f1", value=0.9), Updates(updates=2)])
    assert rules.after_eval(at(), "dev", {"f1": 0.95}) == ""
    assert rules.after_eval(at(), "dev", {"f1": 0.1}) == ""
    assert rules.after_update(at(update=1)) == ""
    assert rules.after_update(at(update=2)) == "dev/f1 is 0.95 and has reached 0.9 and reached 2 updates"
    assert rules.after_log(at(), {}) != ""  # and keep applying


def test_either_list_can_stop():
    rules = Rules(any=[Updates(updates=9)], all=[Updates(updates=2), Time(seconds=5)])
    assert rules.after_update(at(update=2)) == ""
    assert rules.after_update(at(update=9)) == "reached 9 updates"
    assert (
        rules.after_update(at(update=3, elapsed=5.0)) == "reached 2 updates and reached the time limit of 5.0 seconds"
    )


def test_no_rules_never_stop():
    rules = Rules()
    assert rules.after_update(at(update=9)) == rules.after_log(at(), {"train/loss": NAN}) == ""
    assert rules.after_eval(at(), "dev", {"f1": 0.0}) == ""
    assert rules.state_dict() == {"rules": {}, "met": {}}


# -- state


def all_kinds() -> Rules:
    limits: list[StopRule] = [
        MinLR(lr=0.1),
        Patience(monitor="dev/f1", patience=3),
        Divergence(rows=2),
        Updates(updates=30),
    ]
    limits += [Time(seconds=25), Tokens(tokens=250)]
    return Rules(any=limits, all=[Target(monitor="dev/f1", value=0.8), Updates(updates=5), Epochs(epochs=1.25)])


def tell(rules: Rules, update: int, event: tuple[str, float]) -> str:
    kind, number = event
    run = at(update=update, cur_epoch=update // 4, epochs_done=update // 4, cur_step_this_epoch=update % 4 - 1)
    run.elapsed, run.tokens = float(update), 10 * update
    if kind == "update":
        run.optim.param_groups[0]["lr"] = number / 2
        return rules.after_update(run)
    if kind == "eval":
        return rules.after_eval(run, "dev", {"f1": number})
    return rules.after_log(run, {"train/loss": number if number < 0.95 else NAN})


def stopped(events: list[tuple[str, float]], cut: int | None) -> tuple[int, str] | None:
    """Return the event at which the rules stop, and their message, with a save and restore before event `cut`."""
    rules = all_kinds()
    for i, event in enumerate(events):
        if i == cut:
            state = json.loads(json.dumps(rules.state_dict()))
            rules = all_kinds()
            rules.load_state_dict(state)
        reason = tell(rules, i, event)
        if reason:
            return i, reason
    return None


EVENTS = st.lists(st.tuples(st.sampled_from(["update", "eval", "log"]), st.floats(0, 1)), max_size=40)


@given(EVENTS, st.integers(0, 39))
def test_a_resumed_run_stops_where_it_would_have(events, cut):
    assert stopped(events, cut) == stopped(events, None)


def test_another_rule_at_the_same_place_begins_afresh():
    old, new = Rules(any=[Patience(monitor="dev/f1")]), Rules(any=[Divergence()], all=[Updates(updates=1)])
    with warned("DEBUG") as said:
        new.load_state_dict(old.state_dict())
    assert said == ["[stop] no longer has any.0.Patience: its saved state is discarded"]
    assert new.after_log(at(), {"train/loss": 1.0}) == ""


# -- from a config


def test_rules_are_built_from_the_table():
    patience = {"type": "alchemy.stop.Patience", "monitor": "dev/score", "patience": 1}
    with Run(config(stop={"any": [{"type": "alchemy.stop.Updates", "updates": 2}], "all": [patience]})) as run:
        rules = build_rules(run)
    assert rules.after_update(at(update=2)) == "reached 2 updates"
    assert list(rules.state_dict()["rules"]) == ["all.0.Patience"]
    with Run(config()) as run:
        assert build_rules(run).after_update(run) == ""


WRONG = {
    "epochs": ({"type": "alchemy.stop.Epochs", "epochs": 0}, "epochs must be above 0, not 0"),
    "time": ({"type": "alchemy.stop.Time"}, "Time has no duration; set hours, minutes or seconds"),
    "no split": ({"type": "alchemy.stop.Patience", "monitor": "f1"}, "write it like 'dev/f1'"),
    "factor": ({"type": "alchemy.stop.Divergence", "factor": 1.0}, "factor must be above 1"),
    "mode": (
        {"type": "alchemy.stop.Target", "monitor": "dev/f1", "value": 1, "mode": "up"},
        "mode must be one of 'max'",
    ),
    "nan epochs": ({"type": "alchemy.stop.Epochs", "epochs": NAN}, "epochs must be above 0, not nan"),
    "nan hours": ({"type": "alchemy.stop.Time", "hours": NAN}, "hours must be at least 0, not nan"),
    "nan rate": ({"type": "alchemy.stop.MinLR", "lr": NAN}, "lr must be a number, not nan"),
    "nan target": ({"type": "alchemy.stop.Target", "monitor": "dev/f1", "value": NAN}, "value must be a number, not"),
    "nan gain": (
        {"type": "alchemy.stop.Patience", "monitor": "dev/f1", "min_delta": NAN},
        "min_delta must be at least 0, not nan",
    ),
    "nan factor": ({"type": "alchemy.stop.Divergence", "factor": NAN}, "factor must be above 1, not nan"),
    "nan limit": ({"type": "alchemy.stop.Divergence", "limit": NAN}, "limit must be a number, not nan"),
    "split alone": ({"type": "alchemy.stop.Patience", "monitor": "dev"}, "write it like 'dev/accuracy'"),
    "kind": ({"type": "alchemy.optim.AdamW"}, "is not a StopRule"),
}


@pytest.mark.parametrize(("table", "message"), WRONG.values(), ids=WRONG)
def test_a_rule_that_cannot_be_meant_is_refused(table, message):
    with Run(config(stop={"any": [table]})) as run, pytest.raises(AlchemyError, match=message) as error:
        build_rules(run)
    assert error.value.problem.section == "stop.any.0"


# -- in a training run: 4 epochs of 4 steps, metrics logged every 2 updates

STOPS: dict[str, dict[str, Any]] = {
    "a fraction": {"type": "Epochs", "epochs": 1.5, "ends": (6, "reached 1.5 epochs")},
    "whole epochs": {"type": "Epochs", "epochs": 2, "ends": (8, "reached 2 epochs")},
    "updates": {"type": "Updates", "updates": 5, "ends": (5, "reached 5 updates")},
    "tokens": {"type": "Tokens", "tokens": 20, "ends": (6, "reached 24 tokens")},
    "time": {"type": "Time", "seconds": 1e-9, "ends": (1, "reached the time limit of 0.0 seconds")},
    "target": {"type": "Target", "monitor": "dev/score", "value": 0.0, "ends": (4, "has reached 0")},
    "patience": {
        "type": "Patience",
        "monitor": "dev/score",
        "min_delta": 1e9,
        "patience": 1,
        "ends": (8, "for 1 evaluations"),
    },
    "divergence": {"type": "Divergence", "limit": 0.0, "rows": 2, "ends": (4, "has diverged to")},
    "rate": {"type": "MinLR", "lr": 0.05, "ends": (8, "the learning rate has dropped to 0.05")},
}
STOPS = {name: {**case, "type": f"alchemy.stop.{case['type']}"} for name, case in STOPS.items()}


@each("stop rule", STOPS)
def test_a_training_ends_where_its_rule_says(table):
    rule = {key: value for key, value in table.items() if key != "ends"}
    update, reason = table["ends"]
    pipes = [{"type": "alchemy.pipeline.sched.EvalEEPipeline"}, {"type": f"{__name__}.Last"}]
    sched = {"type": "alchemy.sched.LineWarmup", "epochs": 4, "pipes": pipes}
    (result,) = run([config(sched=sched, stop={"any": [rule]})], device=[-1], raise_errors=True)
    assert reason in result.reason
    assert (result.status, Last.update) == ("finished", update)


def test_rules_alone_may_say_how_long_to_train():
    table = {"any": [{"type": "alchemy.stop.Updates", "updates": 5}]}
    cfg = config(sched={"type": "alchemy.sched.Constant", "pipes": []}, stop=table)
    (result,) = run([cfg], device=[-1], raise_errors=True)
    assert result.reason == "reached 5 updates"
