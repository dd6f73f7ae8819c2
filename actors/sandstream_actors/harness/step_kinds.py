"""The steps that a harness can do next."""

from __future__ import annotations

import msgspec
from sandstream_bus.wire.messages import (
    ApprovalRequested,
    CallRequested,
    RunWaiting,
    TurnRequested,
)

from sandstream_actors.run.ends import Finish


class Wait(msgspec.Struct, frozen=True, tag=True):
    """Nothing to do now; a later event will wake the run."""


class AskModel(msgspec.Struct, frozen=True, tag=True):
    """Take a model turn. Only the holder of the trigger event does it."""

    turn: int
    beside: list[CallRequested] = []
    """Calls to send at the same time: parallel guardrails of a tool host that does not announce
    them.
    """


class Ask(msgspec.Struct, frozen=True, tag=True):
    """Send these calls to their actors, and these approval requests to people; those that are
    already in the log are omitted.
    """

    calls: list[CallRequested]
    approvals: list[ApprovalRequested] = []


class OpenConversation(msgspec.Struct, frozen=True, tag=True):
    """Join the run's conversation on the bus."""


class HandOver(msgspec.Struct, frozen=True, tag=True):
    """Let the next agent continue."""

    turn: TurnRequested


class Pause(msgspec.Struct, frozen=True, tag=True):
    """Only people can continue the run: record that it waits."""

    waiting: RunWaiting


class RearmTimer(msgspec.Struct, frozen=True, tag=True):
    """The run waits for a rate limit: make sure that its timer is armed."""


Step = Wait | AskModel | Ask | OpenConversation | HandOver | Pause | RearmTimer | Finish
