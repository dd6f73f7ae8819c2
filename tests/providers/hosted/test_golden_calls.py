"""What each version of a vendor's SDK sends for the same story, as it was when it was last checked.

A new version of an SDK, or a change of ours, that sends something else fails here. If the new calls
are right, ``python tests/providers/hosted/test_golden_calls.py`` writes the files again; a new
version gets a file of its own.
"""

from __future__ import annotations

import json
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))

from providers.hosted.accounts import ROUTES, SETTINGS, Account, perform
from sandstream_providers.hosted.vendor import Vendor
from sandstream_providers.interface import BoxSpec
from vendors.journal import Call
from vendors.process import VendorServer

FOLDER = Path(__file__).parents[2] / "golden" / "vendors"
SHOWN = {"content-type", "connect-protocol-version", "e2b-sandbox-port", "sec-websocket-protocol"}
"""Headers whose values are the same each time."""
HIDDEN = {
    *("authorization", "x-api-key", "x-access-token", "idempotency-key", "e2b-sandbox-id"),
    *("x-daytona-source", "x-daytona-sdk-version", "user-agent"),
}
"""Headers that must be there; their values are secret, of one box, or of one version."""


def golden_file(name: str) -> Path:
    major, minor, *_ = version(name).split(".")
    return FOLDER / f"{name}-{major}.{minor}.json"


def test_the_calls_of_a_fixed_story(account: Account) -> None:
    recorded = json.loads(golden_file(account.name).read_text())
    assert _calls_of_the_story(account) == recorded


def _calls_of_the_story(account: Account) -> list[dict[str, Any]]:
    calls: list[dict[str, Any]] = []

    async def story(account: Account) -> None:
        vendor, another = account.vendor(), account.vendor()
        spec = account.spec("golden", labels={"owner": "golden"})
        for step in ("live", "sleep", "end"):
            seen = account.arrivals()
            if step == "live":
                box_id = await _live(vendor, spec)
            elif step == "sleep":
                await _sleep(vendor, box_id)
            else:
                await _end(another, spec, box_id)
            calls.extend(_normal(call) for call in seen.calls())
        await vendor.close()
        await another.close()

    perform(account, story)
    return calls


async def _live(vendor: Vendor, spec: BoxSpec) -> str:
    await vendor.check()
    box_id = (await vendor.create(spec)).id
    terminal = await vendor.terminal(box_id)
    await terminal.send(b"exit\n")
    while await terminal.receive():
        pass
    await terminal.close()
    await vendor.execute(box_id, "true", timeout_s=20)
    await vendor.address(box_id, 8000, {})
    return box_id


async def _sleep(vendor: Vendor, box_id: str) -> None:
    await vendor.pause(box_id)
    await vendor.look(box_id)
    await vendor.wake(box_id)
    await vendor.stop(box_id)
    await vendor.wake(box_id)


async def _end(vendor: Vendor, spec: BoxSpec, box_id: str) -> None:
    await vendor.find(spec)
    await vendor.list("golden")
    await vendor.keep(box_id)
    await vendor.delete(box_id)


def _normal(call: Call) -> dict[str, Any]:
    headers = {name: value for name, value in call.headers.items() if name in SHOWN}
    headers |= {name: "…" for name in call.headers if name in HIDDEN}
    return {
        "call": call.name,
        "query": sorted(call.query),
        "body": sorted(_paths(call.body))
        if isinstance(call.body, dict)
        else type(call.body).__name__,
        "headers": dict(sorted(headers.items())),
    }


def _paths(value: dict[str, Any], before: str = "") -> list[str]:
    """The names of all fields; those of an inner object follow a dot."""
    found: list[str] = []
    for name, inner in value.items():
        found += _paths(inner, f"{before}{name}.") if isinstance(inner, dict) else [before + name]
    return found


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in ROUTES:
        with (
            tempfile.TemporaryDirectory() as home,
            VendorServer.start(name, home=Path(home), **SETTINGS[name]) as server,
        ):
            calls = _calls_of_the_story(Account(name, server))
        text = json.dumps(calls, indent=1, ensure_ascii=False)
        golden_file(name).write_text(f"{text}\n")


if __name__ == "__main__":
    main()
