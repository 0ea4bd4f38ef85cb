"""Strategies for `metrics.jsonl` files: valid, damaged and resumed ones."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

NAMES = ("loss", "lr", "dev/f1", "损失")
VALUES = st.one_of(
    st.floats(-1e6, 1e6),
    st.integers(-5, 5),
    st.sampled_from(["nan", "inf", "-inf", 1.7e308, -1.7e308, True, None, "x"]),
)
DAMAGED = st.sampled_from(
    ["", "{", "[1]", "null", "\x00", '{"update": 1', '{"update": "x", "values": {}}', '{"values": {"loss": 1}}',
     '{"update": 3}', '{"update": 1, "values": [1]}', '{"update": 1, "values": "loss"}',
     '{"update": true, "values": {"loss": 1}}',
     '{"update": 99999999999999999999, "values": {"loss": 1}}', '1},{"update": 1, "values": {"loss": 2}',
     '  {"update": 7, "epoch": 0, "values": {"loss": 0.5}}  ', '{"event": "note", "update": 5, "values": {"loss": 1}}',
     '{"event": "resume", "from_line": "x"}', '{"update": 1, "values": {"loss": ' + "9" * 5000 + "}}"]
)  # fmt: skip


@st.composite
def rows(draw: st.DrawFn, *, damaged: bool = True, resumed: bool = True) -> list[str]:
    """Draw the lines of a file, as a run writes them: updates and epochs increase, until it is resumed."""
    lines: list[str] = []
    update = epoch = 0
    for _ in range(draw(st.integers(0, 30))):
        kind = draw(st.integers(0, 9))
        if damaged and kind == 0:
            lines.append(draw(DAMAGED))
        elif resumed and kind == 1:
            lines.append(
                json.dumps(
                    {"event": "resume", "gen": 1, "from_update": 0, "from_line": draw(st.integers(-1, len(lines)))}
                )
            )
        else:
            update += draw(st.integers(0, 3))
            epoch += draw(st.sampled_from([0, 0, 1]))
            values = draw(st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=3))
            row: dict[str, Any] = {"update": update, "step": update, "epoch": epoch, "t": update / 3, "gen": 0}
            lines.append(json.dumps({**row, "values": values}, ensure_ascii=False))
    return lines
