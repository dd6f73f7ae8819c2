"""Where files may come from, on every way in: what an operator does not allow is not fetched. The
forbidden server is real, and counts its connections.
"""

from __future__ import annotations

import asyncio
import logging
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from actors.sandbox.yard import Yard, yard
from sandstream_actors.sandbox.policy import Policy
from sandstream_bus.bus import Bus
from sandstream_bus.logs.sandboxes import new_op
from sandstream_bus.wire.sandboxes import (
    ApplyPlan,
    Checkpoint,
    Checkpointed,
    Close,
    GrantSpec,
    Open,
    PlanFile,
    PlanRepo,
    ReadFile,
    SandboxAction,
    SandboxFailure,
    SandboxReply,
    SandboxRequest,
    SandboxSpec,
    WorkspacePlan,
)
from support.git_server import GitServer, git_server, make_repository
from support.nats_server import NatsServer

REFUSED = "sandbox_config_invalid"
STRICT = Policy.of([])
SECRET = "t0psecret"


@pytest.fixture
def forbidden() -> Iterator[GitServer]:
    """A git server on loopback, with a repository that every user can read."""
    with tempfile.TemporaryDirectory(prefix="sandstream-forbidden-") as path:
        Path(path).chmod(0o755)
        make_repository(Path(path) / "r", {"hello": "hello\n"})
        with git_server(Path(path)) as server:
            yield server


def plan(url: str, *, ephemeral: bool = False) -> WorkspacePlan:
    return WorkspacePlan(repos=[PlanRepo(path="r", url=url, ref="main", ephemeral=ephemeral)])


async def ask(bus: Bus, sandbox: str, action: SandboxAction) -> SandboxReply:
    request = SandboxRequest(op=new_op(), action=action)
    return await bus.sandboxes.request(sandbox, request, provider="local")


async def refused(bus: Bus, sandbox: str, action: SandboxAction) -> SandboxFailure:
    reply = await ask(bus, sandbox, action)
    assert reply.error is not None, action
    return reply.error


async def done(bus: Bus, sandbox: str, action: SandboxAction) -> SandboxReply:
    reply = await ask(bus, sandbox, action)
    assert reply.error is None, reply.error
    return reply


def addresses(port: int) -> list[str]:
    """Spellings of this machine."""
    hosts = ["127.0.0.1", "localhost", "2130706433", "0x7f.1", "0177.0.0.1", "127.1", "0", "[::1]"]
    hosts += ["good.org@127.0.0.1", f"u:{SECRET}@127.0.0.1", "[::ffff:127.0.0.1]", "0.0.0.0"]
    return [f"http://{host}:{port}/r" for host in hosts]


def test_no_spelling_of_loopback_is_fetched_on_either_way_in(
    nats_server: NatsServer, tmp_path: Path, forbidden: GitServer
) -> None:
    async def story() -> None:
        async with yard(nats_server, tmp_path / "home") as it:
            await it.actor(policy=STRICT)
            bus = await it.bus()
            await done(bus, "open", Open(spec=SandboxSpec()))
            for number, url in enumerate(addresses(forbidden.port)):
                opening = Open(spec=SandboxSpec(plan=plan(url)))
                for sandbox, action in (
                    (f"s{number}", opening),
                    ("open", ApplyPlan(plan=plan(url))),
                ):
                    error = await refused(bus, sandbox, action)
                    assert error.code == REFUSED, (url, error)
                    assert "SANDSTREAM_SANDBOX_ALLOW=private-sources" in error.message
                    assert f":{forbidden.port}/r" in error.message
                    assert SECRET not in str(error)
                assert await bus.sandboxes.read(f"s{number}") == []
            assert len(list((it.home / "sandboxes").glob("[!.]*"))) == 1

    asyncio.run(story())
    assert forbidden.connections == 0


def test_other_sources_on_either_way_in(nats_server: NatsServer, tmp_path: Path) -> None:
    cases = {
        "file:///etc": (REFUSED, "=grants"),
        "git://127.0.0.1/r": (REFUSED, "=grants"),
        "git@127.0.0.1:r": (REFUSED, "=grants"),
        f"ssh://git:{SECRET}@github.com/r": (REFUSED, "=grants"),
        "/etc": ("git_clone_error", "neither a URL"),
        "ext::sh -c true": ("git_clone_error", "blanks"),
        "--upload-pack=true": ("git_clone_error", "neither a URL"),
        "http://169.254.169.254/latest": (REFUSED, "link-local"),
        "https://10.0.0.1/r": (REFUSED, "private"),
        "https://[fd00:ec2::254]/r": (REFUSED, "private"),
        "https://name.invalid/r": ("git_clone_error", "name.invalid is not known"),
    }

    async def story() -> None:
        async with yard(nats_server, tmp_path / "home") as it:
            await it.actor(policy=STRICT)
            bus = await it.bus()
            await done(bus, "open", Open(spec=SandboxSpec()))
            for url, (code, why) in cases.items():
                for sandbox in ("new", "open"):
                    action = ApplyPlan(plan=plan(url))
                    asked = Open(spec=SandboxSpec(plan=plan(url))) if sandbox == "new" else action
                    error = await refused(bus, sandbox, asked)
                    assert error.code == code, (url, error)
                    assert why in error.message, (url, error)
                    assert SECRET not in str(error)
            grant = GrantSpec(path="/data", host_path="/srv")
            error = await refused(bus, "new", Open(spec=SandboxSpec(grants=[grant])))
            assert "SANDSTREAM_SANDBOX_ALLOW=grants" in error.message

    asyncio.run(story())


def test_a_plan_that_leads_out_fetches_nothing(
    nats_server: NatsServer, tmp_path: Path, forbidden: GitServer
) -> None:
    url = f"http://127.0.0.1:{forbidden.port}/r"
    out = msgspec.structs.replace(plan(url), files=[PlanFile(path="a/../../x")])

    async def story() -> None:
        async with yard(nats_server, tmp_path / "home") as it:
            await it.actor()
            bus = await it.bus()
            await done(bus, "open", Open(spec=SandboxSpec()))
            error = await refused(bus, "open", ApplyPlan(plan=out))
            assert error.code == "invalid_manifest_path"

    asyncio.run(story())
    assert forbidden.connections == 0


async def _made_before(it: Yard, bus: Bus, url: str) -> str:
    """Sandboxes that an actor has made which may fetch what it likes, and a snapshot of one."""
    actor = await it.actor()
    spec = SandboxSpec(plan=plan(url, ephemeral=True))
    for sandbox in ("stopped", "lost"):
        await done(bus, sandbox, Open(spec=spec))
    saved = await done(bus, "lost", Checkpoint())
    await done(bus, "stopped", Close())
    record = await actor.lifecycle.record("lost")
    await actor.stop()
    it.kill_box(record)
    await actor.provider.delete(record.key)
    return msgspec.json.decode(saved.result, type=Checkpointed).tree


def test_nor_when_a_sandbox_comes_back_or_is_forked(
    nats_server: NatsServer, tmp_path: Path, forbidden: GitServer
) -> None:
    url = f"http://localhost:{forbidden.port}/r"

    async def story() -> None:
        async with yard(nats_server, tmp_path / "home") as it:
            bus = await it.bus()
            tree = await _made_before(it, bus, url)
            before = forbidden.connections
            assert before > 0
            await it.actor(policy=STRICT)
            fork = SandboxSpec(base=tree, plan=plan(url, ephemeral=True))
            asked: list[tuple[str, SandboxAction]] = [
                ("stopped", Open()),
                ("stopped", ReadFile(path="r/hello")),
                ("lost", ReadFile(path="r/hello")),
                ("fork", Open(spec=fork)),
            ]
            for sandbox, action in asked:
                error = await refused(bus, sandbox, action)
                assert error.code == REFUSED, (sandbox, action, error)
                assert "=private-sources" in error.message
            assert forbidden.connections == before

    asyncio.run(story())


def test_a_name_that_changes_its_mind(
    nats_server: NatsServer, tmp_path: Path, forbidden: GitServer
) -> None:
    asked: list[str] = []

    async def rebinding(host: str, port: int) -> list[str]:
        asked.append(host)
        return ["1.2.3.4" if len(asked) == 1 else "127.0.0.1"]

    async def story() -> None:
        async with yard(nats_server, tmp_path / "home") as it:
            await it.actor(policy=STRICT, resolve=rebinding)
            bus = await it.bus()
            url = f"http://u:{SECRET}@rebinding.example:{forbidden.port}/r"
            error = await refused(bus, "s", Open(spec=SandboxSpec(plan=plan(url))))
            assert error.code == REFUSED, error
            assert "rebinding.example, which has a loopback address" in error.message
            assert "SANDSTREAM_SANDBOX_ALLOW=private-sources" in error.message
            assert SECRET not in str(error)
            assert not list((it.home / "sandboxes").glob("[!.]*"))

    asyncio.run(story())
    assert len(asked) > 1
    assert forbidden.connections == 0


@pytest.mark.parametrize("policy", [Policy.of(["private-sources"]), Policy()], ids=["word", "own"])
def test_what_is_allowed_is_fetched(
    nats_server: NatsServer, tmp_path: Path, forbidden: GitServer, policy: Policy
) -> None:
    async def story() -> None:
        async with yard(nats_server, tmp_path / "home") as it:
            await it.actor(policy=policy)
            bus = await it.bus()
            url = f"http://localhost:{forbidden.port}/r"
            await done(bus, "s", Open(spec=SandboxSpec(plan=plan(url))))
            await done(bus, "s", ReadFile(path="r/hello"))

    asyncio.run(story())
    assert forbidden.connections > 0


def test_no_credentials_in_what_is_said_of_a_failure(
    nats_server: NatsServer,
    tmp_path: Path,
    forbidden: GitServer,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)

    async def story() -> None:
        async with yard(nats_server, tmp_path / "home") as it:
            await it.actor()
            bus = await it.bus()
            for path, ref in (("missing", "main"), ("r", "no-such-branch"), ("r", "deadbeef")):
                url = f"http://user:{SECRET}@127.0.0.1:{forbidden.port}/{path}?token={SECRET}"
                repo = PlanRepo(path="r", url=url, ref=ref)
                asked = Open(spec=SandboxSpec(plan=WorkspacePlan(repos=[repo])))
                error = await refused(bus, f"s-{ref}", asked)
                assert f"http://127.0.0.1:{forbidden.port}/{path}" in error.message
                assert SECRET not in str(error), error
                last = (await bus.sandboxes.read(f"s-{ref}"))[-1].event
                assert SECRET not in str(last), last

    asyncio.run(story())
    assert SECRET not in caplog.text
