"""The life of a session with every operation, and the check that each had its effect once."""

from __future__ import annotations

from chaos.evidence import Outcome
from chaos.sessions.fleet import AGENT, SessionFleet
from sandstream_bus.wire.messages import RunDone, RunStarted
from sandstream_bus.wire.sessions import (
    ConfigureSession,
    CreateSession,
    DestroySession,
    ForkSession,
    InterruptSession,
    PauseSession,
    RewindSession,
    SendMessage,
    SessionTurn,
    SwitchProvider,
    WakeSession,
)
from sandstream_bus.wire.subjects import RunId


async def live(outcome: Outcome, fleet: SessionFleet, key: str) -> None:
    """Send, fork, switch, interrupt, rewind, sleep, wake, destroy."""
    outcome.runs += 1
    fork = f"{key}-f"
    sessions = fleet.client.bus.sessions
    await fleet.ask(key, CreateSession(agent=AGENT, input="count 1", take="one", idle_s=None))
    for number in (2, 3):
        await sessions.request(key, SendMessage(input=f"count {number}", id=f"c{number}"))
    await fleet.ask(key, SendMessage(input="count again", id="c3"))  # the same id: no new message
    await fleet.idle(key)
    forked = await fleet.ask(fork, ForkSession(source=key, input="count f"))
    source = await fleet.tree_of(key, 3)
    base = forked.workspace.base if forked.workspace else ""
    outcome.check(base == source, f"{key}: the fork begins with {base}, not with {source}")
    await fleet.ask(key, SwitchProvider(provider=fleet.provider))
    await fleet.ask(key, SendMessage(input="count 4"))
    await fleet.idle(key)
    await fleet.ask(key, SendMessage(input="hang"))
    await fleet.command_begins(key)
    await fleet.ask(key, InterruptSession(reason="enough"))
    await fleet.idle(key)
    await fleet.ask(key, RewindSession(turn=2))
    await fleet.ask(key, ConfigureSession(idle_s=0.3))
    await fleet.ask(key, SendMessage(input="count 6"))
    await fleet.idle(key)
    await fleet.box_is(key, "asleep")
    await fleet.ask(key, ConfigureSession(idle_s=None))
    await fleet.ask(key, WakeSession())
    await fleet.ask(key, SendMessage(input="count 7"))
    await fleet.idle(key)
    await fleet.ask(key, PauseSession())
    await fleet.box_is(key, "asleep")
    await fleet.idle(fork)
    await _judge(outcome, fleet, key)
    for session in (key, fork):
        await fleet.ask(session, DestroySession())
        await fleet.life_is(session, "destroyed")


async def _judge(outcome: Outcome, fleet: SessionFleet, key: str) -> None:
    turns = await fleet.client.bus.sessions.turns(key)
    said = [message.input for turn in turns for message in turn.input]
    expected = [*(f"count {n}" for n in (1, 2, 3, 4)), "hang", "count 6", "count 7"]
    outcome.check(said == expected, f"{key}: its turns answer {said}")
    ends = ["completed"] * 4 + ["cancelled"] + ["completed"] * 2
    outcome.check([it.status for it in turns] == ends, f"{key}: {[it.status for it in turns]}")
    counts = [await fleet.counted(turn.tree) for turn in turns]
    outcome.effects += counts[-1] if counts else 0
    # after the rewind to turn 2 the workspace has two lines again
    outcome.check(counts == [1, 2, 3, 4, 4, 3, 4], f"{key}: the commands that ran: {counts}")
    items = [turn.items for turn in turns]
    outcome.check(items[:4] == [4, 8, 12, 16], f"{key}: the history has {items}")
    outcome.check(items[5:] == [12, 16], f"{key}: the history after the rewind has {items}")
    [first] = await fleet.client.bus.sessions.turns(f"{key}-f") and [
        it for it in await fleet.client.bus.sessions.turns(f"{key}-f") if it.number == 1
    ]
    outcome.check(await fleet.counted(first.tree) == 4, f"{key}: the fork counted otherwise")
    for turn in [*turns, first]:
        await _judge_run(outcome, fleet, turn)
    state = await fleet.state(key)
    refused = [(it.kind, it.error.message) for it in state.refused]
    outcome.check(refused == [], f"{key}: refused {refused}")
    parked = [it for it in await fleet.client.parked() if key in it.parked.subject]
    outcome.check(not parked, f"{key}: messages were parked: {parked}")


async def _judge_run(outcome: Outcome, fleet: SessionFleet, turn: SessionTurn) -> None:
    events = [it.event for it in await fleet.client.bus.log.read(RunId(turn.run))]
    starts = sum(isinstance(it, RunStarted) for it in events)
    dones = sum(isinstance(it, RunDone) for it in events)
    outcome.check((starts, dones) == (1, 1), f"{turn.run}: {starts} starts, {dones} ends")
