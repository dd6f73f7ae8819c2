"""The control plane of the local E2B, driven by the vendor's SDK: boxes, time and pauses."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from e2b import (
    AsyncSandbox,
    AuthenticationException,
    NotFoundException,
    RateLimitException,
    SandboxException,
    SandboxNotFoundException,
    SandboxQuery,
    SandboxState,
)
from vendors.e2b_boxes import box, connection, in_loop, until
from vendors.process import VendorServer


@pytest.fixture(scope="module")
def vendor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VendorServer]:
    with VendorServer.start("e2b", home=tmp_path_factory.mktemp("e2b")) as started:
        yield started


@contextlib.contextmanager
def setting(vendor: VendorServer, name: str, value: object, normal: object) -> Iterator[None]:
    vendor.configure(**{name: value})
    try:
        yield
    finally:
        vendor.configure(**{name: normal})


@in_loop
async def test_a_box_is_created_described_and_killed(vendor: VendorServer) -> None:
    async with box(vendor, metadata={"owner": "us"}, timeout=1000) as sandbox:
        info = await sandbox.get_info()
        assert (info.metadata, info.name, info.state) == ({"owner": "us"}, "base", "running")
        assert round((info.end_at - info.started_at).total_seconds()) == 1000
        assert info.lifecycle == {"on_timeout": "kill", "auto_resume": False}
        assert await sandbox.is_running()
        [metric] = await sandbox.get_metrics()
        assert metric.cpu_count == 2
        [billed] = vendor.boxes()
        assert (billed.id, billed.metadata) == (sandbox.sandbox_id, {"owner": "us"})
        assert await sandbox.kill()
        assert not await sandbox.kill()
        assert not await sandbox.is_running()
        assert vendor.boxes() == []
        with pytest.raises(SandboxNotFoundException):
            await sandbox.get_info()


@in_loop
async def test_a_key_makes_one_box(vendor: VendorServer) -> None:
    async def create(**options: Any) -> AsyncSandbox:
        return await AsyncSandbox.create(
            template="base", idempotency_key="key-1", **connection(vendor), **options
        )

    first, again = await create(), await create()
    assert first.sandbox_id == again.sandbox_id
    assert (await again.commands.run("echo 1")).stdout == "1\n"
    with pytest.raises(SandboxException, match=r"422: .*different request") as other:
        await create(metadata={"a": "b"})
    assert other.value.status_code == 422
    await first.kill()
    with pytest.raises(SandboxException, match=r"409.*unknown") as dead:
        await create()
    assert dead.value.status_code == 409
    assert vendor.boxes() == []


@in_loop
async def test_a_key_in_progress_is_refused(vendor: VendorServer) -> None:
    async def create() -> AsyncSandbox:
        return await AsyncSandbox.create(idempotency_key="key-2", **connection(vendor))

    with setting(vendor, "create_seconds", 0.5, 0.0):
        results = await asyncio.gather(create(), create(), return_exceptions=True)
    assert sorted(type(result).__name__ for result in results) == [
        "AsyncSandbox",
        "SandboxException",
    ]
    assert len(vendor.boxes()) == 1


@in_loop
async def test_an_engine_may_ignore_keys(vendor: VendorServer) -> None:
    with setting(vendor, "idempotency", False, True):
        for _ in range(2):
            await AsyncSandbox.create(idempotency_key="key-3", **connection(vendor))
    assert len(vendor.boxes()) == 2


@in_loop
async def test_a_template_must_exist(vendor: VendorServer) -> None:
    with pytest.raises(SandboxException, match="404: template 'nothing' not found"):
        await AsyncSandbox.create("nothing", **connection(vendor))


@in_loop
async def test_a_template_may_lack_python(vendor: VendorServer) -> None:
    async with box(vendor, template="no-python") as sandbox:
        found = await sandbox.commands.run("command -v python3 python || ls /usr/bin/awk")
        assert found.stdout == "/usr/bin/awk\n"


@in_loop
async def test_time_runs_out_by_itself(vendor: VendorServer) -> None:
    async with box(vendor, timeout=1) as sandbox:
        await until(lambda: not vendor.boxes())
        with pytest.raises(SandboxNotFoundException):
            await sandbox.get_info()


@in_loop
async def test_time_can_be_set_and_lengthened(vendor: VendorServer) -> None:
    async with box(vendor, timeout=600) as sandbox:

        async def minutes() -> int:
            info = await sandbox.get_info()
            return round((info.end_at - info.started_at).total_seconds() / 60)

        await sandbox.set_timeout(1200)
        assert await minutes() == 20
        await sandbox.set_timeout(300)
        assert await minutes() == 5
        await sandbox.connect(timeout=60)
        assert await minutes() == 5
        await sandbox.connect(timeout=1800)
        assert await minutes() == 30
        with pytest.raises(SandboxException, match="400: Timeout cannot be greater than 24 hours"):
            await sandbox.connect(timeout=100_000)


@in_loop
async def test_the_end_kills_or_pauses(vendor: VendorServer) -> None:
    async with box(vendor) as killed, box(vendor, lifecycle={"on_timeout": "pause"}) as paused:
        for sandbox in (killed, paused):
            vendor.expire(sandbox.sandbox_id)
        assert [(left.id, left.state) for left in vendor.boxes()] == [(paused.sandbox_id, "paused")]
        assert (await paused.get_info()).state == SandboxState.PAUSED
        with pytest.raises(SandboxNotFoundException):
            await paused.set_timeout(60)


@in_loop
async def test_a_pause_keeps_processes(vendor: VendorServer) -> None:
    async with box(vendor) as sandbox:
        handle = await sandbox.commands.run(
            "echo $$ > pid; while sleep 0.05; do echo x >> beats; done", background=True, timeout=0
        )
        assert await sandbox.pause()
        assert not await sandbox.pause()
        assert not await sandbox.is_running()
        before = vendor.journal()[-1].number
        await sandbox.connect(timeout=100)
        [call] = [call for call in vendor.journal(before) if call.path.endswith("/connect")]
        assert call.status == 201
        assert [found.pid for found in await sandbox.commands.list()] == [handle.pid]
        count = "cat beats 2>/dev/null | wc -l"
        beats = (await sandbox.commands.run(count)).stdout
        while (await sandbox.commands.run(count)).stdout == beats:
            await asyncio.sleep(0.02)


@in_loop
async def test_a_pause_of_the_files_ends_processes(vendor: VendorServer) -> None:
    async with box(vendor) as sandbox:
        boot_id = "cat /proc/sys/kernel/random/boot_id"
        first = (await sandbox.commands.run(boot_id)).stdout
        await sandbox.commands.run("sleep 1000", background=True, timeout=0)
        await sandbox.files.write("kept", "text")
        assert await sandbox.pause(mode="filesystem")
        await sandbox.connect()
        assert await sandbox.commands.list() == []
        assert await sandbox.files.read("kept") == "text"
        second = (await sandbox.commands.run(boot_id)).stdout
        await sandbox.pause()
        await sandbox.connect(on_resume="reboot")
        assert len({first, second, (await sandbox.commands.run(boot_id)).stdout}) == 3


@in_loop
async def test_a_resume_can_lose_files(vendor: VendorServer) -> None:
    async with box(vendor) as sandbox:
        for number in range(4):
            await sandbox.files.write(f"file{number}", "x")
        vendor.lose_files(sandbox.sandbox_id, share=0.5)
        await sandbox.pause()
        await sandbox.connect()
        assert len(await sandbox.files.list("/home/user")) == 2


@in_loop
async def test_traffic_can_resume(vendor: VendorServer) -> None:
    lifecycle = {"on_timeout": "pause", "auto_resume": True}
    async with box(vendor, lifecycle=lifecycle) as sandbox:
        await sandbox.pause()
        assert (await sandbox.commands.run("echo 1")).stdout == "1\n"


@in_loop
async def test_lists_are_filtered_and_paged(vendor: VendorServer) -> None:
    odd = {"owner": "a b&c=d/é%20", "key with = and &": "+"}
    async with (
        box(vendor, metadata=odd) as first,
        box(vendor, metadata={"owner": "else"}) as second,
        box(vendor, metadata=odd, template="no-python") as third,
    ):
        await third.pause()

        async def ids(limit: int | None = None, **query: Any) -> list[str]:
            pages = AsyncSandbox.list(
                query=SandboxQuery(**query),
                limit=limit,
                order="asc",
                **connection(vendor),
            )
            found = []
            while pages.has_next:
                found += [info.sandbox_id for info in await pages.next_items()]
            return found

        everything = [first.sandbox_id, second.sandbox_id, third.sandbox_id]
        assert await ids() == everything
        assert await ids(limit=1) == everything
        assert await ids(limit=1, metadata=odd) == [first.sandbox_id, third.sandbox_id]
        assert await ids(state=[SandboxState.PAUSED]) == [third.sandbox_id]
        assert await ids(template="no-python") == [third.sandbox_id]
        newest = await AsyncSandbox.list(limit=1, **connection(vendor)).next_items()
        assert newest[0].sandbox_id == third.sandbox_id


@in_loop
async def test_lists_can_lag(vendor: VendorServer) -> None:
    with setting(vendor, "list_lag_s", 60.0, 0.0):
        async with box(vendor) as sandbox:
            assert await AsyncSandbox.list(**connection(vendor)).next_items() == []
            assert (await sandbox.get_info()).state == SandboxState.RUNNING


@in_loop
async def test_boxes_are_made_from_snapshots(vendor: VendorServer) -> None:
    async with box(vendor, metadata={"a": "b"}) as sandbox:
        await sandbox.files.write("file", "text")
        snapshot = await sandbox.create_snapshot(name="mine")
        assert snapshot.names == ["local-team/mine"]
        async with box(vendor, template=snapshot.snapshot_id) as copy:
            assert await copy.files.read("file") == "text"
        listed = await AsyncSandbox.list_snapshots(**connection(vendor)).next_items()
        assert [found.snapshot_id for found in listed] == [snapshot.snapshot_id]
        assert await AsyncSandbox.delete_snapshot(snapshot.snapshot_id, **connection(vendor))
        assert not await AsyncSandbox.delete_snapshot(snapshot.snapshot_id, **connection(vendor))
        with setting(vendor, "concurrent_sandboxes", 2, 100):
            fork, refused = await sandbox.fork(count=2)
        assert isinstance(fork, AsyncSandbox) and isinstance(refused, RateLimitException)
        assert await fork.files.read("file") == "text"
        assert (await fork.get_info()).metadata == {"a": "b"}


@in_loop
async def test_unknown_boxes(vendor: VendorServer) -> None:
    options = connection(vendor)
    with pytest.raises(SandboxNotFoundException):
        await AsyncSandbox.connect("inothing", **options)
    with pytest.raises(NotFoundException):
        await AsyncSandbox.pause("inothing", **options)
    assert not await AsyncSandbox.kill("inothing", **options)


@in_loop
async def test_a_box_can_be_deleted_underneath(vendor: VendorServer) -> None:
    async with box(vendor) as sandbox:
        vendor.delete(sandbox.sandbox_id)
        with pytest.raises(SandboxException, match="was not found"):
            await sandbox.commands.run("true")
        with pytest.raises(SandboxNotFoundException):
            await sandbox.connect()


@in_loop
async def test_the_key_of_the_account_is_checked(vendor: VendorServer) -> None:
    with pytest.raises(AuthenticationException, match="Invalid API key"):
        await AsyncSandbox.create(**connection(vendor, api_key="wrong"))


@in_loop
async def test_running_boxes_are_limited(vendor: VendorServer) -> None:
    with setting(vendor, "concurrent_sandboxes", 1, 100):
        async with box(vendor) as sandbox:
            with pytest.raises(RateLimitException, match="maximum number of concurrent"):
                await AsyncSandbox.create(**connection(vendor, retries=0))
            await sandbox.pause()
            async with box(vendor):
                with pytest.raises(RateLimitException):
                    await sandbox.connect(retries=0)


@in_loop
async def test_the_network_can_be_changed(vendor: VendorServer) -> None:
    async with box(vendor, network={"allow_out": ["8.8.8.8"]}) as sandbox:
        await sandbox.update_network({"deny_out": ["0.0.0.0/0"]})
        assert (await sandbox.get_info()).network == {"deny_out": ["0.0.0.0/0"]}


def test_mistakes_are_noted(vendor: VendorServer) -> None:
    headers = {"X-API-KEY": vendor.api_key}
    before = len(vendor.protocol_errors())
    with httpx.Client(base_url=vendor.api_url, headers=headers, trust_env=False) as client:
        made = client.post("/v2/sandboxes", json={"templateID": "base", "secure": True})
        assert made.status_code == 201
        wrong = client.post("/v2/sandboxes", json={"templateID": "base", "timeout": "1"})
        assert wrong.status_code == 400
        assert client.post("/v2/sandboxes", json={}).status_code == 400
        assert client.get("/v3/sandboxes").status_code == 404
        assert client.get("/v2/sandboxes", headers={"X-API-KEY": ""}).status_code == 401
    assert vendor.protocol_errors()[before:] == [
        "POST /v2/sandboxes: unknown field secure",
        "POST /v2/sandboxes: timeout must be int, not str",
        "POST /v2/sandboxes: templateID is required",
        "GET /{path}: no such route: GET /v3/sandboxes",
    ]
    vendor.delete(made.json()["sandboxID"])
