"""What people are told a running run is at."""

from __future__ import annotations

import pytest
from sandstream_actors.run.state import RunState
from sandstream_bus.wire.messages import CallKind, CallRequested
from support.scripted_log import RUN, begin

from sandstream._inspect.summaries import current_step


@pytest.mark.parametrize(
    ("kind", "sandbox", "step"),
    [("prepare", "", "prepare (your code)"), ("open", "r_1234abcd", "open (sandbox)")],
)
def test_a_call_without_a_result_says_who_is_waited_for(
    kind: CallKind, sandbox: str, step: str
) -> None:
    state = RunState(RUN)
    state.apply(1, begin())
    asked = CallRequested(
        call="t1", kind=kind, turn=1, agent="a", reply_pool="main", sandbox=sandbox
    )
    state.apply(2, asked)
    assert current_step(state) == step
