"""A live sandbox as an actor uses it."""

from __future__ import annotations

import contextlib
import time

import msgspec
from sandstream_bus.wire.sandboxes import Opened
from sandstream_providers.interface import Box, BoxGone, Provider, ResolveRule

from sandstream_actors.run.sandbox_record import SandboxRecord


class Live(msgspec.Struct):
    """A sandbox that can be worked in now."""

    record: SandboxRecord
    box: Box
    rule: ResolveRule
    env: dict[str, str]
    notice: str = ""
    """A notice for the next answer: the workspace was restored or reset."""
    is_new: bool = False
    """Its box was just created, and the files of its memories are not written yet."""
    used_at: float = msgspec.field(default_factory=time.monotonic)
    """Finding it is a use, too."""
    epoch: int = 0
    """The connection under which it was found. After a disconnect another node may own the sandbox.
    """

    def opened(self, provider: str, *, created: bool) -> Opened:
        """The state reported to the opener."""
        return Opened(
            sandbox=self.record.sandbox,
            provider=provider,
            node=self.record.node,
            generation=self.record.generation,
            root=self.record.root,
            created=created,
            restored=self.record.base,
            notice=self.notice,
            box_id=self.record.box_id,
        )

    def may_have_run(self, sequence: int, *, fresh: bool) -> bool:
        """Can a request at ``sequence`` have begun in an earlier box?"""
        return not fresh and sequence < self.record.ended_at

    def is_idle(self, now: float) -> bool:
        """Was it unused for so long that it must be paused?"""
        idle_s = self.record.spec.idle_s
        return self.record.state == "ready" and idle_s is not None and now - self.used_at > idle_s


def restored_notice(reason: str) -> str:
    return (
        f"The sandbox was lost ({reason}) and restored from its last checkpoint. Running "
        "commands and later changes to files are gone."
    )


def remade_notice(reason: str) -> str:
    return (
        f"The sandbox was lost ({reason}) and had no checkpoint: it was made again as it was at "
        "first. Files that commands had created are gone."
    )


def vendor_id_of(box: Box | None) -> str:
    """The vendor's own id of the box; empty if the box is not at a vendor."""
    return str(getattr(box, "vendor_id", ""))


async def awake(provider: Provider, record: SandboxRecord) -> Box | None:
    """Its box if there is one, woken if it was paused."""
    if record.state == "paused":
        with contextlib.suppress(BoxGone):  # the rest of it is looked for next
            await provider.resume(record.key)
    return await provider.get(record.key)
