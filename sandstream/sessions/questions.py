"""The questions of a session to people: calls of its turn at work that wait for a decision."""

from __future__ import annotations

from sandstream_bus.wire.sessions import SessionState

from sandstream.approvals import OpenApproval
from sandstream.sessions.link import SessionLink


class SessionQuestions:
    """The part of a session that asks people.

    Args:
        link: The client's connection to sessions.
        id: The id of the session.
    """

    def __init__(self, link: SessionLink, id: str) -> None:
        self._link = link
        self.id = id

    async def _state(self) -> SessionState:
        return await self._link.requests.state(self.id)

    async def approvals(self) -> list[OpenApproval]:
        """List the calls of the turn at work, and of runs below it, that wait for a person.

        Returns:
            The calls, oldest first.

        Example:
            for waiting in await session.approvals():
                await session.approve(waiting, by="ann")
        """
        active = (await self._state()).active
        return await self._link.approvals(active.run) if active is not None else []

    async def approve(
        self, approval: OpenApproval | str | None = None, *, always: bool = False, by: str = ""
    ) -> OpenApproval:
        """Allow a call that waits.

        Args:
            approval: The call, or its id. It may be left out if only one call waits.
            always: Also allow later calls of this tool by this agent.
            by: The person who decides, for the log.

        Returns:
            The call that was allowed.

        Raises:
            ApprovalNotFound: No such call waits, or several do and ``approval`` names none.
        """
        return await self._link.decide(
            self.id, await self.approvals(), approval, approve=True, always=always, by=by
        )

    async def reject(
        self,
        approval: OpenApproval | str | None = None,
        *,
        message: str | None = None,
        always: bool = False,
        by: str = "",
    ) -> OpenApproval:
        """Refuse a call that waits.

        Args:
            approval: The call, or its id. It may be left out if only one call waits.
            message: What the model is told; ``None`` is a default text.
            always: Also refuse later calls of this tool by this agent.
            by: The person who decides, for the log.

        Returns:
            The call that was refused.

        Raises:
            ApprovalNotFound: No such call waits, or several do and ``approval`` names none.
        """
        return await self._link.decide(
            self.id,
            await self.approvals(),
            approval,
            approve=False,
            always=always,
            by=by,
            message=message,
        )
