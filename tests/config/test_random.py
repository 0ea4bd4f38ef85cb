"""Random configs: loading returns a document that can be written and read back, or raises an error."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from alchemy.config import dumps
from alchemy.config.formats import parse
from alchemy.config.load import diff, prepare_cfg
from alchemy.errors import AlchemyError

WORDS = st.sampled_from(
    [
        "base",
        "variant",
        "v",
        "seed",
        "plugins",
        "type",
        "dyn",
        "delete",
        "sched",
        "lr_warmup_steps",
        "0",
        "low",
        "name",
        "sweep",
        "x",
    ]
)
VALUES = st.recursive(
    st.sampled_from(
        [
            1,
            0.5,
            True,
            "x",
            "a.Seeding",
            "others",
            "uniform",
            "env",
            "choice",
            "",
            "v",
            None,
            "nowhere.toml",
            "\0",
            "${x}",
            "${seed}",
        ]
    ),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=10,
)
SPLIT = st.dictionaries(
    st.sampled_from(["like", "pipes", "x", "delete"]),
    st.sampled_from(["train", "dev", "others", "${x}", "${task.datasets.dev}", "$${x}", False, [{"type": "src.A"}], 3])
    | st.dictionaries(
        st.sampled_from(["A", "x", "delete", "type"]), st.sampled_from([False, True, "src.B", {"delete": True}])
    ),
    max_size=3,
)
SPLITS = st.fixed_dictionaries(
    {"task": st.fixed_dictionaries({"datasets": st.dictionaries(st.sampled_from(["train", "dev", "x"]), SPLIT)})}
)
SETS = st.lists(
    st.sampled_from(
        [
            "plugins.0.x=1",
            "task.datasets.dev.pipes.A=false",
            "x=${v}",
            "~task.datasets.dev.x",
            "v=2",
            "x.dyn=uniform",
            "~x",
            "seed=1",
            "variant.v.x=1",
        ]
    ),
    max_size=2,
)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(WORDS, VALUES, max_size=5), SPLITS, SETS, st.sampled_from([None, "v", "v+x"]))
def test_no_config_ends_in_a_traceback(data, splits, overrides, variant):
    data = {**data, **splits}
    try:
        doc = prepare_cfg(data, overrides=overrides, variant=variant)
    except AlchemyError:
        return
    assert parse(dumps(doc), ".toml", "t").data == doc
    assert diff(doc, prepare_cfg(doc)).startswith("identical")
