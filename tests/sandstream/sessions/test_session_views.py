"""What a session does now, as people see it: derived from its state."""

from __future__ import annotations

from typing import Any

import pytest
from sandstream_bus.wire.message_base import ErrorInfo
from sandstream_bus.wire.sessions import (
    ActiveTurn,
    PendingFork,
    PendingRewind,
    PendingSwitch,
    QueuedMessage,
    Refusal,
    SessionState,
    SessionWorkspace,
)

from sandstream.sessions.views import ACTIVITIES, info_of

TURN = ActiveTurn(number=3, run="s_t3-session")
STOPPING = ActiveTurn(number=3, run="s_t3-session", interrupted=True)
WAITING = [QueuedMessage(id="m1", input="hello")]
ASLEEP = SessionWorkspace(provider="local", generation=2, tree="abc", box="asleep")
SWITCH = PendingSwitch(request=1, generation=2, provider="docker")


@pytest.mark.parametrize(
    ("state", "questions", "activity", "doing"),
    [
        ({}, 0, "idle", ""),
        ({"workspace": ASLEEP}, 0, "sleeping", ""),
        ({"workspace": ASLEEP, "life": "paused"}, 0, "paused", ""),
        ({"workspace": ASLEEP, "life": "archived"}, 0, "archived", ""),
        ({"status": "failed", "said": "No luck."}, 0, "failed", "No luck."),
        ({"status": "budget", "said": "Used up."}, 0, "failed", "Used up."),
        ({"status": "cancelled"}, 0, "idle", ""),
        ({"status": "failed", "queue": WAITING}, 0, "waiting", "for a sessions actor"),
        ({"queue": WAITING, "life": "paused"}, 0, "paused", ""),
        ({"queue": WAITING, "trouble": "no box"}, 0, "waiting", "no box"),
        ({"trouble": "the files were not saved"}, 0, "idle", ""),
        ({"active": TURN}, 0, "working", "turn 3"),
        ({"active": TURN, "life": "paused"}, 0, "working", "turn 3"),
        ({"active": STOPPING}, 0, "working", "turn 3 stops"),
        ({"active": TURN}, 2, "needs you", "turn 3 asks for approval"),
        ({"active": TURN, "life": "destroying"}, 1, "destroyed", "ending"),
        ({"life": "destroyed"}, 0, "destroyed", ""),
        ({"switch": SWITCH}, 0, "working", "moves to docker"),
        (
            {"rewind": PendingRewind(request=1, generation=2, turn=1)},
            0,
            "working",
            "goes back to turn 1",
        ),
        ({"fork": PendingFork(request=1, source="other")}, 0, "working", "copies other"),
        ({"opening": 7}, 0, "working", "opens its workspace"),
    ],
)
def test_the_activity_follows_from_the_state(
    state: dict[str, Any], questions: int, activity: str, doing: str
) -> None:
    info = info_of(SessionState(session="s", agent="a", **state), questions=questions)
    assert (info.activity, info.doing) == (activity, doing)
    assert info.activity in ACTIVITIES


def test_a_view_has_the_workspace_and_the_last_refusal() -> None:
    refusals = [
        Refusal(request=n, kind="send", error=ErrorInfo(code="session.full", message=str(n)))
        for n in (1, 2)
    ]
    state = SessionState(
        session="s", agent="a", workspace=ASLEEP, switch=SWITCH, refused=refusals, turn=4, begun=5
    )
    info = info_of(state)
    assert (info.provider, info.box, info.sandbox) == ("local", "asleep", "s_w2")
    assert (info.checkpoint, info.switching_to, info.turn, info.begun) == ("abc", "docker", 4, 5)
    assert info.refusal == refusals[1] and not info.is_over
