"""Durable alarms of a run: its time budget, and the time limits of approvals."""

from __future__ import annotations

import time

from sandstream_bus.bus import Bus
from sandstream_bus.wire.messages import ApprovalDecided, ApprovalRequested, CancelRequested

from sandstream_actors.run.state import RunState


class Alarms:
    """Arms them; each is a message to a subject that the harness consumes anyway."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus

    async def arm_deadline(self, state: RunState) -> None:
        """Stop the run when its time is over. Its children end with it; they need an alarm only if
        they have less time.
        """
        budget = state.options.budget
        assert state.started is not None
        if budget is None or budget.deadline is None:
            return
        if budget.seconds is None and state.started.parent is not None:
            return
        seconds = "" if budget.seconds is None else f": {budget.seconds:g} s"
        await self._bus.timers.arm(
            state.run,
            "budget",
            self._bus.subjects.cancel(state.run),
            CancelRequested(code="budget", reason=f"the budget's time is over{seconds}"),
            delay_s=max(0.0, budget.deadline - time.time()),
            msg_id=f"{state.run}:deadline{state.past.retries or ''}",
        )

    async def arm_expiry(self, state: RunState, approval: ApprovalRequested) -> None:
        """Decide an approval that no person has decided in time."""
        if approval.expires_s is None:
            return
        outcome = state.options.approval_expiry
        await self._bus.timers.arm(
            state.run,
            f"approval-{approval.call}",
            self._bus.subjects.approval_decided(state.run),
            ApprovalDecided(
                call=approval.call,
                approve=outcome == "approve",
                by="timer",
                message=None if outcome == "approve" else "The request for approval has expired.",
                expired=True,
            ),
            delay_s=approval.expires_s,
            msg_id=f"{state.run}:{approval.call}:expiry{state.past.attempts[approval.call] or ''}",
        )
