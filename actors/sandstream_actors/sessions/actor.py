"""The sessions actor: follows the requests to sessions, and does what their states ask for.

A request, the end of a run and a due timer are only hints. Each makes a replica advance the
session:

    read the state and the requests after it          bus.sessions
    apply the requests                                state.py
    decide what comes next                            steps.py
    renew what it refers to                           renewals.py
    commit the new state (compare-and-set)
    do the step, commit what follows from it, repeat  turns.py, forks.py, switches.py, …

A crash at any point is repaired by the redelivery of the hint: every step can be repeated. Two
replicas that advance the same session do the same steps under the same ids, and one of them wins
each commit.
"""

from __future__ import annotations

import argparse
import logging
from typing import Final, assert_never

from sandstream_bus.bus import Bus
from sandstream_bus.crashpoints import crashpoint
from sandstream_bus.errors import Drop, InvalidSubject, MessageError, UndecodableMessage
from sandstream_bus.logs.sessions import SessionMovedOn, StoredAsk
from sandstream_bus.nats.consumer import Delivery
from sandstream_bus.nats.fresh import leader_reaching
from sandstream_bus.nats.topology import ConsumerSpec
from sandstream_bus.wire import headers as h
from sandstream_bus.wire.sessions import CreateSession, SessionDue, SessionState
from sandstream_bus.wire.subjects import ANY, session_of_run, user_of
from sandstream_workspaces.store import WorkspaceStore

from sandstream_actors.base import Actor
from sandstream_actors.sessions.changes import Change
from sandstream_actors.sessions.forks import Forks
from sandstream_actors.sessions.leftovers import discard
from sandstream_actors.sessions.parked_requests import give_up
from sandstream_actors.sessions.renewals import Renewals
from sandstream_actors.sessions.rewinds import rewind
from sandstream_actors.sessions.sleep import Sleep
from sandstream_actors.sessions.state import KnownAgent, follow
from sandstream_actors.sessions.steps import Step, next_step, settled
from sandstream_actors.sessions.switches import Switches
from sandstream_actors.sessions.turns import Turns
from sandstream_actors.sessions.workspaces import Workspaces

logger = logging.getLogger(__name__)

CONSUMER: Final = "sessions"
MAX_IN_FLIGHT: Final = 256


def make(bus: Bus, arguments: argparse.Namespace) -> SessionsActor:
    """A replica for ``sandstream actor sessions``."""
    return SessionsActor(bus, max_in_flight=arguments.concurrency)


class SessionsActor(Actor):
    """One replica.

    Args:
        bus: The bus.
        max_in_flight: How many hints one replica works on at a time.
    """

    def __init__(self, bus: Bus, *, max_in_flight: int = MAX_IN_FLIGHT) -> None:
        super().__init__(CONSUMER, bus=bus, max_in_flight=max_in_flight)
        workspaces = Workspaces(bus)
        self._workspaces = workspaces
        self._turns = Turns(bus, workspaces)
        self._sleep = Sleep(bus, workspaces)
        self._forks = Forks(bus, workspaces)
        store = WorkspaceStore(bus)
        self._switches = Switches(bus, workspaces, store)
        self._renewals = Renewals(bus, store)
        self._busy: dict[tuple[str, Step], bool] = {}
        """Steps that this process does now, and whether another hint came meanwhile. That hint
        need not wait: the task that does the step looks again."""
        subjects, topology = bus.subjects, bus.topology
        # no session has a run that is older than this consumer
        self.reads(ConsumerSpec(name=CONSUMER, filters=[subjects.done(ANY)], only_new=True))
        self.reads(
            ConsumerSpec(
                name=f"{CONSUMER}-asks",
                stream=topology.requests,
                filters=subjects.session_asks(),
            )
        )
        self.reads(
            ConsumerSpec(
                name=f"{CONSUMER}-timers",
                stream=topology.timers,
                filters=subjects.due_for("session"),
            )
        )

    async def handle(self, delivery: Delivery) -> None:
        """Advance the session that the message is about."""
        crashpoint("sessions.received")
        match self._bus.subjects.split(delivery.subject).family:
            case "run":
                await self._on_end(delivery)
            case "ask":
                await self._on_ask(delivery)
            case _:
                await self._on_due(delivery)

    async def on_parked(self, delivery: Delivery, reason: str) -> None:
        """Give up what the parked request has begun, so that the session goes on."""
        if self._bus.subjects.split(delivery.subject).family != "ask":
            return
        try:
            session = self._bus.subjects.parse_session_ask(delivery.subject).session
        except InvalidSubject:
            return  # it has begun nothing
        state = (await self._bus.sessions.read(session)).state
        change = give_up(state, delivery.sequence, reason) if state is not None else None
        if change is not None:
            await self._commit(session, change)
            await self.advance(session)

    async def _on_end(self, delivery: Delivery) -> None:
        found = session_of_run(self._bus.subjects.parse_run(delivery.subject).run)
        if found is None:
            return
        await self._reached(self._bus.topology.log, delivery)
        try:
            await self.advance(found[0])
        except InvalidSubject as error:
            raise Drop(str(error)) from error

    async def _on_ask(self, delivery: Delivery) -> None:
        ask = self._bus.subjects.parse_session_ask(delivery.subject)
        if any(name in delivery.headers for name in (h.STREAM, h.SEQUENCE, h.SUBJECT)):
            raise UndecodableMessage("this is a copy of a stored message, sent by the server")
        owner = user_of(ask.session)
        if owner != ask.user:
            raise UndecodableMessage(
                f"session {ask.session} belongs to the user {owner}, so {ask.user} may not "
                "change it"
            )
        await self._reached(self._bus.topology.requests, delivery)
        await self.advance(ask.session)

    async def _on_due(self, delivery: Delivery) -> None:
        if h.SCHEDULER not in delivery.headers:
            raise UndecodableMessage("no timer has sent this")
        session = self._bus.subjects.parse_session_idle(delivery.subject)
        due = await self._bus.codec.session_message(delivery.data)
        if not isinstance(due, SessionDue):
            raise UndecodableMessage("this is not the timer of a session")
        await self.advance(session, due)

    async def _reached(self, stream: str, delivery: Delivery) -> None:
        """What is read from now on includes the message: else it would be acknowledged, and its
        effect lost.
        """
        await leader_reaching(self._bus.connection, stream, delivery.sequence)

    # --- advancing -----------------------------------------------------------------------------

    async def advance(self, session: str, due: SessionDue | None = None) -> None:
        """Do everything that the session can do now.

        Args:
            session: The id of the session.
            due: The timer that has fired, if that is why.
        """
        while True:
            state = await self._followed(session, due)
            due = None
            step = next_step(state) if state is not None else None
            if state is None or step is None:
                return
            key = (session, step)
            if key in self._busy:
                self._busy[key] = True
                return
            self._busy[key] = False
            try:
                change = await self._do(step, state)
            finally:
                is_hinted = self._busy.pop(key)
            if change is not None:
                await self._commit(session, change)
            elif not is_hinted:
                return

    async def _followed(self, session: str, due: SessionDue | None) -> SessionState | None:
        """The state after all requests, committed."""
        while True:
            stored = await self._bus.sessions.read(session)
            state = stored.state
            after = state.through if state is not None else 0
            asks = await self._bus.sessions.unapplied(session, after=after)
            new = follow(state, session, asks, await self._agents_in(asks))
            if new is None:
                return None
            new = settled(new, due)
            if new == state:
                return state
            await self._renewals.renew(new)
            crashpoint("sessions.before_commit")
            try:
                await self._bus.sessions.write(new, after=stored.sequence)
            except SessionMovedOn:
                continue
            crashpoint("sessions.after_commit")
            return new

    async def _agents_in(self, asks: list[StoredAsk]) -> dict[str, KnownAgent]:
        """The agents that requests name, as far as they are deployed."""
        found: dict[str, KnownAgent] = {}
        for ask in asks:
            if not isinstance(ask.request, CreateSession):
                continue
            name = ask.request.agent
            try:
                registered = await self._bus.agents.find(name)
            except MessageError as error:
                # it is no name of an agent, or the registration is of another version
                logger.warning("no session can begin with an agent: %s", error)
                continue
            if registered is not None:
                sandbox = registered.graph.agents[registered.graph.start].sandbox
                found[name] = KnownAgent(sandbox.spec.provider if sandbox else "")
        return found

    async def _commit(self, session: str, change: Change) -> None:
        """Apply what follows from a step to the newest state."""
        while True:
            stored = await self._bus.sessions.read(session)
            new = change(stored.state) if stored.state is not None else None
            if new is None:
                return
            await self._renewals.renew(new)
            crashpoint("sessions.before_outcome")
            try:
                await self._bus.sessions.write(new, after=stored.sequence)
            except SessionMovedOn:
                continue
            crashpoint("sessions.after_outcome")
            return

    async def _do(self, step: Step, state: SessionState) -> Change | None:
        match step:
            case Step.TURN:
                return await self._turns.work(state)
            case Step.FORK:
                return await self._forks.fork(state)
            case Step.DISCARD:
                return await discard(self._workspaces, state)
            case Step.SLEEP:
                return await self._sleep.sleep(state)
            case Step.OPEN:
                return await self._sleep.open(state)
            case Step.SWITCH:
                return await self._switches.switch(state)
            case Step.REWIND:
                return await rewind(self._bus, state)
            case Step.TIMER:
                await self._sleep.arm(state)
                return None
            case _:
                assert_never(step)
