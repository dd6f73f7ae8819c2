"""What a session does next. Pure: ``settled`` changes the state, ``next_step`` names the effect.

The order of the steps is their priority. Every step can be repeated: the ids of runs, of operations
and of turn records derive from the state.
"""

from __future__ import annotations

from enum import Enum

import msgspec
from sandstream_bus.wire.sessions import ActiveTurn, SessionDue, SessionState
from sandstream_bus.wire.subjects import session_run

from sandstream_actors.sessions.state import has_begun

replace = msgspec.structs.replace


class Step(Enum):
    """An effect, and the module that has it."""

    FORK = "copy the source"  # forks
    TURN = "start, stop or record the turn at work"  # turns
    DISCARD = "delete sandboxes that are not needed any more"  # leftovers
    SLEEP = "checkpoint the workspace and end its box"  # sleep
    REWIND = "restore an earlier turn"  # rewinds
    SWITCH = "move the workspace to another provider"  # switches
    OPEN = "open the workspace ahead of the next message"  # sleep
    TIMER = "arm the timer after which the workspace sleeps"  # sleep


def settled(state: SessionState, due: SessionDue | None = None) -> SessionState:
    """The state after all changes that need no effect. ``due``: the timer that has fired."""
    if not has_begun(state):
        return state
    if state.life == "destroying" and state.active is None and not state.leftovers:
        return replace(state, life="destroyed")
    is_due = due is not None and due.begun == state.begun
    if state.life != "open" and state.life != "destroying":
        if _is_open(state) and state.active is None and not _is_moving(state):
            return _closing(state) if is_due or not state.trouble else state
        return state
    if _may_begin(state):
        return _with_turn(state)
    if is_due and _is_idle(state) and _is_open(state):
        return _closing(state) if state.idle_s is not None else state
    return state


def next_step(state: SessionState) -> Step | None:
    """The next effect; None: the session waits for a request, for a run or for a timer."""
    if not has_begun(state):
        return None
    if state.fork is not None:
        return Step.FORK
    if state.active is not None:
        return Step.TURN
    if state.leftovers:
        return Step.DISCARD
    space = state.workspace
    if space is not None and space.box == "closing":
        return Step.SLEEP
    if state.rewind is not None:
        return Step.REWIND
    if state.switch is not None:
        return Step.SWITCH
    if space is None or state.life in ("destroying", "destroyed"):
        return None
    if state.opening:
        return Step.OPEN
    # a paused one that is open could not be put to sleep: that is tried again
    is_to_sleep = state.idle_s is not None or state.life != "open"
    return Step.TIMER if space.box == "open" and is_to_sleep else None


def _with_turn(state: SessionState) -> SessionState:
    """The state in which the next turn is at work; its run does not exist yet."""
    count = 1 if state.take == "one" else len(state.queue)
    number = state.begun + 1
    space = state.workspace
    return replace(
        state,
        active=ActiveTurn(
            number=number,
            run=session_run(state.session, number),
            messages=state.queue[:count],
        ),
        queue=state.queue[count:],
        begun=number,
        workspace=replace(space, box="open") if space is not None else None,
        opening=0,
        trouble="",
    )


def _closing(state: SessionState) -> SessionState:
    space = state.workspace
    assert space is not None
    return replace(state, workspace=replace(space, box="closing", sleeps=space.sleeps + 1))


def _may_begin(state: SessionState) -> bool:
    return (
        state.life == "open"
        and bool(state.queue)
        and state.active is None
        and not _is_moving(state)
        and (state.workspace is None or state.workspace.box != "closing")
    )


def _is_idle(state: SessionState) -> bool:
    return state.active is None and not state.queue and not _is_moving(state)


def _is_moving(state: SessionState) -> bool:
    return not (state.fork is None and state.switch is None and state.rewind is None)


def _is_open(state: SessionState) -> bool:
    return state.workspace is not None and state.workspace.box == "open"
