"""What an operator does not allow is refused, before anything is made."""

from __future__ import annotations

import asyncio

import pytest
from sandstream_actors.sandbox.failures import Refused
from sandstream_actors.sandbox.policy import Policy
from sandstream_actors.sandbox.sources import Sources
from sandstream_actors.sandbox.specs import check_spec
from sandstream_bus.wire.sandboxes import (
    GrantSpec,
    LimitSpec,
    PlanRepo,
    SandboxSpec,
    WorkspacePlan,
)


def with_repo(url: str) -> SandboxSpec:
    return SandboxSpec(plan=WorkspacePlan(repos=[PlanRepo(path="r", url=url, ref="main")]))


ASKED = {
    "grants": [
        SandboxSpec(grants=[GrantSpec(path="/data")]),
        *(with_repo(it) for it in ("file:///srv/r", "git://host/r", "git@host:r")),
    ],
    "network": [SandboxSpec(network="host")],
    "unlimited": [
        SandboxSpec(limits=LimitSpec(memory_mb=None)),
        SandboxSpec(limits=LimitSpec(processes=None)),
    ],
    "private-sources": [with_repo("http://10.0.0.1/r"), with_repo("https://[::1]:8443/r")],
}


async def public(host: str, port: int) -> list[str]:
    return [host if host[0] in "1:" else "93.184.216.34"]


def check(spec: SandboxSpec, *allowed: str) -> None:
    sources = Sources(policy=Policy.of(allowed), resolve=public)
    asyncio.run(check_spec(spec, sources))


@pytest.mark.parametrize("name", ASKED)
def test_each_power_has_to_be_allowed(name: str) -> None:
    for spec in ASKED[name]:
        with pytest.raises(Refused, match=f"SANDSTREAM_SANDBOX_ALLOW={name}"):
            check(spec, *(set(ASKED) - {name}))
        check(spec, name)


def test_an_ordinary_sandbox_needs_no_permission() -> None:
    repo = PlanRepo(path="r", url="https://example.com/r.git", ref="main")
    check(SandboxSpec(plan=WorkspacePlan(repos=[repo]), ports=[80]))


def test_an_unknown_name_is_said() -> None:
    with pytest.raises(ValueError, match="'root' cannot be allowed"):
        Policy.of(["grants", "root"])
