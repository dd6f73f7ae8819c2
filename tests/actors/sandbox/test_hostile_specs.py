"""Whatever a spec asks for, its sender gets a typed answer, and no box is left of what failed."""

from __future__ import annotations

import asyncio
from pathlib import Path

from actors.sandbox.yard import yard
from sandstream_bus.logs.sandboxes import new_op
from sandstream_bus.wire.sandboxes import (
    EnvironmentValue,
    GrantSpec,
    LimitSpec,
    Open,
    PlanFile,
    PlanRepo,
    PlanTree,
    SandboxRequest,
    SandboxSpec,
    WorkspacePlan,
)
from support.nats_server import NatsServer

INVALID, START = "sandbox_config_invalid", "workspace_start_error"


def specs(home: Path) -> list[tuple[str, SandboxSpec]]:
    """What is asked for, and the code of the refusal."""
    grants = [
        GrantSpec(path="/", host_path="/srv"),
        GrantSpec(path="/proc", host_path="/srv"),
        GrantSpec(path="/granted", host_path="/proc/self"),
        GrantSpec(path="/granted", host_path=str(home / "sandboxes")),
        GrantSpec(path="/granted", host_path=str(home.parent), read_only=True),
        GrantSpec(path="/.sandstream", host_path="/srv"),
        GrantSpec(path="/granted/../etc", host_path="/srv"),
        GrantSpec(path="granted", host_path="srv"),
    ]
    repo = PlanRepo(path="r", url="https://example.org/\0x", ref="")
    return [
        *((START, SandboxSpec(root=root)) for root in ("/", "//", "//etc", "/proc/1", "here")),
        *((START, SandboxSpec(grants=[grant])) for grant in grants),
        (INVALID, SandboxSpec(ports=[0])),
        (INVALID, SandboxSpec(ports=[65_536])),
        (INVALID, SandboxSpec(ports=list(range(1, 10_000)))),
        (INVALID, SandboxSpec(grants=[GrantSpec(path="/g", host_path="/srv")] * 1000)),
        (INVALID, SandboxSpec(limits=LimitSpec(memory_mb=0))),
        (INVALID, SandboxSpec(limits=LimitSpec(cpus=-1.0))),
        (INVALID, SandboxSpec(environment={"A": EnvironmentValue(secret="unknown")})),
        ("snapshot_restore_error", SandboxSpec(base="ab" * 32)),
        ("snapshot_restore_error", SandboxSpec(plan=WorkspacePlan(trees=[PlanTree(tree="x")]))),
        (
            "invalid_manifest_path",
            SandboxSpec(plan=WorkspacePlan(files=[PlanFile(path="../../etc/x")])),
        ),
        ("git_clone_error", SandboxSpec(plan=WorkspacePlan(repos=[repo]))),
    ]


def test_what_cannot_be_made_is_refused_and_leaves_nothing(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async def story() -> None:
        async with yard(nats_server, tmp_path / "home") as it:
            await it.actor()
            bus = await it.bus()
            for number, (code, spec) in enumerate(specs(it.home)):
                request = SandboxRequest(op=new_op(), action=Open(spec=spec))
                reply = await bus.sandboxes.request(f"s{number}", request, provider="local")
                assert reply.error is not None, spec
                assert reply.error.code == code, (spec, reply.error)
                assert not list((it.home / "sandboxes").iterdir()), spec

    asyncio.run(story())
