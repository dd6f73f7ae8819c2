"""What an operator does not allow is refused, before anything is made."""

from __future__ import annotations

import pytest
from sandstream_actors.sandbox.failures import Refused
from sandstream_actors.sandbox.specs import Policy, check_spec
from sandstream_bus.sandbox_messages import (
    GrantSpec,
    LimitSpec,
    PlanRepo,
    SandboxSpec,
    WorkspacePlan,
)

REPO = WorkspacePlan(repos=[PlanRepo(path="r", url="file:///srv/r", ref="main")])
ASKED = {
    "grants": [SandboxSpec(grants=[GrantSpec(path="/data")]), SandboxSpec(plan=REPO)],
    "network": [SandboxSpec(network="host")],
    "unlimited": [
        SandboxSpec(limits=LimitSpec(memory_mb=None)),
        SandboxSpec(limits=LimitSpec(processes=None)),
    ],
}


@pytest.mark.parametrize("name", ASKED)
def test_each_power_has_to_be_allowed(name: str) -> None:
    for spec in ASKED[name]:
        with pytest.raises(Refused, match=f"SANDSTREAM_SANDBOX_ALLOW={name}"):
            check_spec(spec, Policy.of(set(ASKED) - {name}))
        check_spec(spec, Policy.of([name]))


def test_an_ordinary_sandbox_needs_no_permission() -> None:
    repo = PlanRepo(path="r", url="https://example.com/r.git", ref="main")
    check_spec(SandboxSpec(plan=WorkspacePlan(repos=[repo]), ports=[80]), Policy.of([]))


def test_an_unknown_name_is_said() -> None:
    with pytest.raises(ValueError, match="'root' cannot be allowed"):
        Policy.of(["grants", "root"])
