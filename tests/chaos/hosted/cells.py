"""Where the sandbox actor dies in the life of one box at a vendor, and what the vendor's network
does at the same time.

A point is a crash point of the actor (``sandbox.after_create``), or a call to the vendor
(``vendor.create.before``: the actor dies while it waits for the answer, and the vendor has not done
it; ``after``: the vendor has done it; ``late``: it does it a while later, when the replica has
looked for the box in vain and has ordered it again).
"""

from __future__ import annotations

from typing import Literal, get_args

import msgspec
from vendors.faults import Fault

Operation = Literal["create", "exec", "checkpoint", "pause", "wake", "close", "restore", "delete"]
"""In the order of a life: ``wake`` is a command in a paused box, ``close`` saves it and lets it go,
``restore`` opens the closed one again.
"""
OPERATIONS: tuple[Operation, ...] = get_args(Operation)
Trouble = Literal["", "own", "next"]
"""The answers to the operation's call are lost: to the actor before it dies, or to its successor.
For a command: the stream of the successor's terminal breaks.
"""
Account = Literal["daytona", "daytona_vm", "e2b", "e2b_keyless", "e2b_lagging"]
"""``daytona``: boxes that cannot be paused, only stopped. ``e2b_keyless``: an engine that ignores
idempotency keys; ``e2b_lagging``: it also lists new boxes late.
"""
ACCOUNTS: tuple[Account, ...] = get_args(Account)
_DELAYS: dict[str, object] = {
    "start_delay_s": 0.3,
    "stop_delay_s": 0.2,
    "destroy_delay_s": 0.2,
    "list_lag_s": 0.5,
}
SETTINGS: dict[Account, dict[str, object]] = {
    "daytona": _DELAYS,
    "daytona_vm": {**_DELAYS, "sandbox_class": "linux-vm"},
    "e2b": {"create_seconds": 0.3, "list_lag_s": 0.5},
    "e2b_keyless": {"idempotency": False},
    "e2b_lagging": {"idempotency": False, "create_seconds": 0.3, "list_lag_s": 2.0},
}
"""What the vendor's server is told."""

_DAYTONA_CALLS = {
    "create": "POST /sandbox",
    "exec": "WS /toolbox/process/pty/create-connect",
    "pause": "POST /sandbox/{box}/stop",
    "wake": "POST /sandbox/{box}/start",
    "remove": "DELETE /sandbox/{box}",
}
_E2B_CALLS = {
    "create": "POST /v2/sandboxes",
    "exec": "POST /process.Process/Start",
    "pause": "POST /sandboxes/{box}/pause",
    "wake": "POST /v2/sandboxes/{box}/connect",
    "remove": "DELETE /sandboxes/{box}",
}
CALLS: dict[Account, dict[str, str]] = {
    "daytona": _DAYTONA_CALLS,
    "daytona_vm": {**_DAYTONA_CALLS, "pause": "POST /sandbox/{box}/pause"},
    "e2b": _E2B_CALLS,
    "e2b_keyless": _E2B_CALLS,
    "e2b_lagging": _E2B_CALLS,
}
"""As the vendor's journal names them."""
_CALL_OF: dict[Operation, str] = {
    "create": "create",
    "exec": "exec",
    "pause": "pause",
    "wake": "wake",
    "close": "remove",
    "restore": "create",
    "delete": "remove",
}
_CUT_AFTER = 3
"""Messages on a terminal, most of which belong to its beginning."""
_LATE_S = (10.0, 14.0)
"""When the orders of the dead actor and of the replica take effect. The replica takes over after
five seconds, on a machine that is not busy.
"""


class HostedCell(msgspec.Struct, frozen=True):
    """Kill the actor when ``point`` is reached in the operation. A replica lives on."""

    account: Account
    operation: Operation
    point: str
    trouble: Trouble = ""

    @property
    def name(self) -> str:
        trouble = f"-{self.trouble}" if self.trouble else ""
        return f"{self.account}-{self.operation}-{self.point}{trouble}"

    @property
    def vendor(self) -> str:
        return self.account.partition("_")[0]

    @property
    def call(self) -> str:
        """The vendor's call that the operation is about."""
        return CALLS[self.account][_CALL_OF[self.operation]]

    @property
    def is_call(self) -> bool:
        return self.point.startswith("vendor.")

    def faults(self) -> list[Fault]:
        """What the vendor's network does. The first one is certain to be met."""
        if self.point.endswith(".late"):
            return [Fault(self.call, "slow", seconds=it) for it in _LATE_S]
        if self.is_call:
            return [Fault(self.call, "hang", after=self.point.endswith(".after"))]
        if not self.trouble:
            return []
        if self.operation == "exec":
            return [Fault(self.call, "cut", messages=_CUT_AFTER)]
        return [Fault(self.call, "lost", times=2)]


_MADE = ("received", "before_intent", "after_intent", "after_create", "before_ready", "after_ready")
_SAVED = ("before_snapshot", "after_snapshot", "after_checkpoint")
_OPERATED = ("received", "before_operation", "after_operation", "before_reply")
_POINTS: dict[Operation, tuple[str, ...]] = {
    "create": (*_MADE, "before_reply"),
    "exec": _OPERATED,
    "checkpoint": (*_SAVED, "before_reply"),
    "pause": ("received", *_SAVED, "before_pause", "after_pause", "before_reply"),
    "wake": _OPERATED,
    "close": (*_SAVED, "before_delete", "before_reply"),
    "restore": (*_MADE, "after_restore", "before_reply"),
    "delete": ("received", "before_delete", "before_reply"),
}
_LOST: tuple[tuple[Operation, str, Trouble], ...] = (
    ("create", "before_intent", "next"),
    ("create", "after_intent", "next"),
    ("create", "after_create", "own"),
    ("create", "before_ready", "own"),
    ("exec", "before_operation", "next"),
    ("exec", "after_operation", "next"),
    ("pause", "before_pause", "next"),
    ("pause", "after_pause", "own"),
    ("pause", "after_pause", "next"),
    ("wake", "received", "next"),
    ("wake", "before_operation", "own"),
    ("close", "before_delete", "next"),
    ("close", "before_reply", "own"),
    ("restore", "after_intent", "next"),
    ("restore", "after_create", "own"),
    ("delete", "before_delete", "next"),
    ("delete", "before_reply", "own"),
)
_WHEN = ("before", "after")
_ORDERS: tuple[Operation, ...] = ("create", "restore")


def hosted_cells() -> list[HostedCell]:
    cells = [it for account in ("daytona", "e2b") for it in _all_of(account)]
    cells += [it for it in _all_of("daytona_vm") if it.operation in ("pause", "wake")]
    for account in ("e2b_keyless", "e2b_lagging"):
        orders = [it for it in _all_of(account) if it.operation in _ORDERS]
        cells += [it for it in orders if it.is_call or it.trouble or "create" in it.point]
    return cells


def _all_of(account: Account) -> list[HostedCell]:
    cells = [HostedCell(account, it, f"sandbox.{at}") for it in OPERATIONS for at in _POINTS[it]]
    cells += [HostedCell(account, it, f"sandbox.{at}", trouble) for it, at, trouble in _LOST]
    cells += [
        HostedCell(account, it, f"vendor.{_CALL_OF[it]}.{when}")
        for it in OPERATIONS
        if it not in ("exec", "checkpoint")
        for when in _WHEN
    ]
    cells += [HostedCell(account, it, "vendor.create.late") for it in _ORDERS]
    return cells


def compact_cells() -> list[HostedCell]:
    """One cell for each way to lose a box or to get a second one."""
    return [
        HostedCell("daytona", "create", "vendor.create.after"),
        HostedCell("daytona", "create", "sandbox.after_intent", "next"),
        HostedCell("daytona", "exec", "sandbox.after_operation"),
        HostedCell("daytona", "delete", "vendor.remove.before"),
        HostedCell("daytona_vm", "pause", "sandbox.after_pause", "own"),
        HostedCell("e2b", "create", "vendor.create.after"),
        HostedCell("e2b", "wake", "vendor.wake.after"),
        HostedCell("e2b", "checkpoint", "sandbox.after_snapshot"),
        HostedCell("e2b_keyless", "restore", "sandbox.after_create", "own"),
    ]
