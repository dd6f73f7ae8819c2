"""What a harness can be told to do next."""

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
    """Nothing to do now; an event that is under way will wake the run."""


class AskModel(msgspec.Struct, frozen=True, tag=True):
    """Take a model turn. Only the holder of the trigger event does it."""

    turn: int
    beside: list[CallRequested] = []
    """What is to happen meanwhile: parallel guardrails of a host that does not announce them."""


class Ask(msgspec.Struct, frozen=True, tag=True):
    """Send these calls to who does them, and these questions to people; those that are in the log
    already are left out.
    """

    calls: list[CallRequested]
    approvals: list[ApprovalRequested] = []


class OpenConversation(msgspec.Struct, frozen=True, tag=True):
    """Take the run's place in its conversation on the bus."""


class HandOver(msgspec.Struct, frozen=True, tag=True):
    """Let the next agent go on."""

    turn: TurnRequested


class Pause(msgspec.Struct, frozen=True, tag=True):
    """Only people can go on now: say so."""

    waiting: RunWaiting


class RearmTimer(msgspec.Struct, frozen=True, tag=True):
    """The run waits for a rate limit: make sure that its timer is armed."""


Step = Wait | AskModel | Ask | OpenConversation | HandOver | Pause | RearmTimer | Finish
