"""A client's connection to sessions: what all of its session objects share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sandstream_bus.bus import Bus
from sandstream_bus.wire.sessions import SessionState
from sandstream_bus.wire.subjects import SHARED, RunId

from sandstream._inspect.rows import Approval, ChildCall, RunTree
from sandstream._inspect.summaries import read_known, read_last
from sandstream._inspect.trees import address_of, read_logs, tree_of
from sandstream._wire.asks import Asks
from sandstream.approvals import ApprovalNotFound, OpenApproval, decide, open_approval
from sandstream.sessions.requests import Requests
from sandstream.sessions.views import SessionInfo, info_of


class SessionLink:
    """Reads and asks for one client.

    Args:
        bus: The bus of the client.
        asks: The requests of the client's user; ``None``: it works for no particular user.
    """

    def __init__(self, bus: Bus, asks: Asks | None) -> None:
        self.bus = bus
        self.requests = Requests(bus, asks.user if asks else SHARED)
        self._asks = asks

    async def info(self, state: SessionState) -> SessionInfo:
        """The view of a state, with what its turn at work waits for."""
        return (await self.infos([state]))[0]

    async def infos(self, states: Sequence[SessionState]) -> list[SessionInfo]:
        """The views of several states. Only runs that have ever waited are read."""
        runs = {it.active.run for it in states if it.active is not None}
        waits = await read_last(self.bus, [self.bus.subjects.waiting(run) for run in sorted(runs)])
        waited = {self.bus.subjects.parse_run(it.subject).run for it in waits}
        questions = {str(run): len(await self.approvals(run)) for run in sorted(waited)}
        return [
            info_of(it, questions=questions.get(it.active.run, 0) if it.active else 0)
            for it in states
        ]

    async def approvals(self, run: str) -> list[OpenApproval]:
        """The calls of a run, and of runs below it, that wait for people; oldest first."""
        events = await read_known(self.bus, self.bus.subjects.run_all(run))
        tree = tree_of(run, await read_logs(self.bus, run, events))
        return sorted(_open(tree, run), key=lambda it: it.since)

    async def decide(
        self,
        session: str,
        waiting: Sequence[OpenApproval],
        named: OpenApproval | str | None,
        *,
        approve: bool,
        always: bool,
        by: str,
        message: str | None = None,
    ) -> OpenApproval:
        """Decide on one of the calls that wait."""
        found = _chosen(session, waiting, named)
        run, call = await address_of(self.bus, found.root_run, found.run_id, found)
        await decide(
            self.bus,
            RunId(run),
            call,
            approve=approve,
            always=always,
            by=by,
            message=message,
            asks=self._asks,
        )
        return found


def _open(tree: RunTree, root: str) -> Iterator[OpenApproval]:
    if tree.summary.is_over:
        return
    for step in tree.steps:
        if isinstance(step, Approval) and step.decision == "waiting" and not step.asked.run:
            yield open_approval(tree.summary.run_id, root, step.asked, step.time)
        elif isinstance(step, ChildCall) and step.run is not None:
            yield from _open(step.run, root)


def _chosen(
    session: str, waiting: Sequence[OpenApproval], named: OpenApproval | str | None
) -> OpenApproval:
    if isinstance(named, OpenApproval):
        return named
    found = [it for it in waiting if named is None or named in (it.call, it.call_id)]
    if len(found) == 1:
        return found[0]
    which = "" if named is None else f" {named!r}"
    if not found:
        raise ApprovalNotFound(f"no call{which} of session {session} waits for a person")
    names = ", ".join(f"{it.call} of run {it.run_id} ({it.tool})" for it in found)
    raise ApprovalNotFound(
        f"{len(found)} calls{which} of session {session} wait; pass one of approvals(): {names}"
    )
