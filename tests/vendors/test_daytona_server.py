"""The control plane of the local Daytona server, driven by the real SDK."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from daytona import (
    AsyncDaytona,
    AsyncSandbox,
    CreateSandboxFromImageParams,
    CreateSandboxFromSnapshotParams,
    DaytonaAuthenticationError,
    DaytonaBadRequestError,
    DaytonaConfig,
    DaytonaConflictError,
    DaytonaError,
    DaytonaForbiddenError,
    DaytonaNotFoundError,
    DaytonaTimeoutError,
    DaytonaUnprocessableEntityError,
    ListSandboxesQuery,
    Resources,
)
from daytona_api_client_async import SandboxState
from vendors.daytona_stories import Stage, box_named
from vendors.process import VendorServer


async def names(client: AsyncDaytona, query: ListSandboxesQuery | None = None) -> list[str]:
    return sorted([box.name async for box in client.list(query)])


async def until_gone(client: AsyncDaytona, box_id: str) -> None:
    while True:
        try:
            await client.get(box_id)
        except DaytonaNotFoundError:
            return
        await asyncio.sleep(0.01)


def test_a_box_has_what_was_asked_for(stage: Stage) -> None:
    async def story(client: AsyncDaytona) -> None:
        made = await client.create(
            CreateSandboxFromSnapshotParams(
                name="named",
                labels={"owner": "me"},
                env_vars={"COLOR": "red"},
                auto_stop_interval=7,
                auto_delete_interval=30,
                ttl_minutes=90,
                snapshot="daytona-medium",
            )
        )
        for box in (made, await client.get("named"), await client.get(made.id)):
            assert box.state == SandboxState.STARTED
            assert (box.id, box.name, box.user) == (made.id, "named", "daytona")
            assert box.labels == {"owner": "me", "code-toolbox-language": "python"}
            assert box.env == {"COLOR": "red"}
            assert (box.cpu, box.memory, box.disk) == (2, 4, 8)
            assert (box.auto_stop_interval, box.auto_delete_interval) == (7, 30)
            assert box.auto_destroy_at is not None
        found = await made.process.exec("echo $COLOR")
        assert found.result == "red\n"

    stage.tell(story)
    (box,) = stage.vendor.boxes()
    assert (box.name, box.state, box.metadata["owner"]) == ("named", "started", "me")
    assert box.calls == len([call for call in stage.journal() if call.box == box.id])


def test_a_name_is_used_once_until_its_box_is_deleted(stage: Stage) -> None:
    async def story(client: AsyncDaytona) -> None:
        first = await box_named(client, "taken")
        with pytest.raises(DaytonaConflictError, match="Sandbox with name taken already exists"):
            await box_named(client, "taken")
        await first.delete()
        second = await box_named(client, "taken")
        assert second.id != first.id
        assert (await client.get("taken")).id == second.id
        await until_gone(client, first.id)

    stage.tell(story)


def test_resources_come_with_an_image_only(stage: Stage) -> None:
    async def story(client: AsyncDaytona) -> None:
        resources = Resources(cpu=2, memory=4, disk=8)
        box = await client.create(
            CreateSandboxFromImageParams(image="debian:12.9", resources=resources)
        )
        assert (box.cpu, box.memory, box.disk) == (2, 4, 8)
        assert box.build_info is not None
        assert box.build_info.dockerfile_content == "FROM debian:12.9\n"
        with pytest.raises(DaytonaBadRequestError, match="Snapshot nope not found"):
            await client.create(CreateSandboxFromSnapshotParams(snapshot="nope"))

    stage.tell(story)
    stage.vendor.configure(broken_images=["missing:1"])

    async def failing(client: AsyncDaytona) -> None:
        with pytest.raises(DaytonaError, match="BUILD_FAILED, error reason: failed to build"):
            await client.create(CreateSandboxFromImageParams(image="missing:1"))

    stage.tell(failing)


def test_a_build_can_be_watched(stage: Stage) -> None:
    stage.vendor.configure(start_delay_s=0.2)

    async def story(client: AsyncDaytona) -> None:
        said: list[str] = []
        box = await client.create(
            CreateSandboxFromImageParams(image="debian:12.9"), on_snapshot_create_logs=said.append
        )
        assert box.state == SandboxState.STARTED
        assert said == ["Building image..."]

    stage.tell(story)


def test_a_slow_start_is_seen(stage: Stage) -> None:
    stage.vendor.configure(start_delay_s=0.3)

    async def story(client: AsyncDaytona) -> None:
        making = asyncio.create_task(box_named(client, "slow"))
        while not stage.vendor.boxes():
            await asyncio.sleep(0.01)
        box = await client.get("slow")
        assert box.state == SandboxState.CREATING
        with pytest.raises(DaytonaBadRequestError, match="Is the Sandbox started"):
            await box.process.exec("true")
        with pytest.raises(DaytonaConflictError, match="state change in progress"):
            await box.delete()
        assert (await making).state == SandboxState.STARTED

    stage.tell(story)


def test_a_start_that_takes_too_long_tells_the_id(stage: Stage) -> None:
    stage.vendor.configure(start_delay_s=60)

    async def story(client: AsyncDaytona) -> None:
        with pytest.raises(DaytonaTimeoutError) as caught:
            await client.create(CreateSandboxFromSnapshotParams(name="late"), timeout=1)
        assert caught.value.sandbox_id == stage.vendor.boxes()[0].id

    stage.tell(story)


@pytest.mark.parametrize("events", [True, False])
def test_the_sdk_waits_with_and_without_events(stage: Stage, events: bool) -> None:
    stage.vendor.configure(events=events, start_delay_s=0.1)

    async def story(client: AsyncDaytona) -> None:
        assert (await box_named(client)).state == SandboxState.STARTED

    stage.tell(story)
    assert (101 in stage.calls("WS /socket.io/")) is events


def test_boxes_are_listed_by_labels_and_pages(stage: Stage) -> None:
    async def story(client: AsyncDaytona) -> None:
        for number in range(3):
            await client.create(
                CreateSandboxFromSnapshotParams(
                    name=f"n{number}", labels={"odd": str(number % 2), "mine": "yes"}
                )
            )
        assert await names(client) == ["n0", "n1", "n2"]
        assert await names(client, ListSandboxesQuery(labels={"odd": "0"})) == ["n0", "n2"]
        assert await names(client, ListSandboxesQuery(labels={"odd": "0", "mine": "no"})) == []
        assert await names(client, ListSandboxesQuery(limit=1)) == ["n0", "n1", "n2"]
        assert await names(client, ListSandboxesQuery(name="n1")) == ["n1"]
        (box,) = [box async for box in client.list(ListSandboxesQuery(name="n2"))]
        assert box.env is None
        await box.set_labels({"odd": "3"})
        assert await names(client, ListSandboxesQuery(labels={"odd": "3"})) == ["n2"]

    stage.tell(story)


def test_a_list_lags_behind(stage: Stage) -> None:
    stage.vendor.configure(list_lag_s=60)

    async def story(client: AsyncDaytona) -> None:
        box = await box_named(client, "fresh")
        assert await names(client, ListSandboxesQuery(name="fresh")) == []
        assert (await client.get("fresh")).id == box.id

    stage.tell(story)


def test_stopped_boxes_keep_files_and_lose_processes(stage: Stage) -> None:
    async def story(client: AsyncDaytona) -> None:
        box = await box_named(client)
        await box.process.exec("echo kept > file; sleep 600 > /dev/null 2>&1 &")
        await box.process.create_session("s")
        await box.stop()
        assert box.state == SandboxState.STOPPED
        with pytest.raises(DaytonaBadRequestError, match="Is the Sandbox started"):
            await box.process.exec("true")
        with pytest.raises(DaytonaBadRequestError, match="not in a stoppable state"):
            await box.stop()
        await box.start()
        assert (await box.process.exec("cat file; pgrep sleep")).result == "kept\n"
        assert await box.process.list_sessions() == []
        await box.start()

    stage.tell(story)


def test_only_virtual_machines_pause_and_fork(stage: Stage) -> None:
    async def story(client: AsyncDaytona) -> None:
        box = await box_named(client)
        with pytest.raises(DaytonaUnprocessableEntityError, match="Pausing is not supported"):
            await box.pause()
        with pytest.raises(DaytonaUnprocessableEntityError, match="Forking is not supported"):
            await box.fork()
        machine = await client.create(CreateSandboxFromSnapshotParams(snapshot="daytona-vm"))
        await machine.process.exec("sleep 600 > /dev/null 2>&1 & echo $! > pid")
        await machine.pause()
        assert machine.state == SandboxState.PAUSED
        with pytest.raises(DaytonaBadRequestError, match="Is the Sandbox started"):
            await machine.process.exec("true")
        await machine.start()
        assert (await machine.process.exec("kill -0 $(cat pid)")).exit_code == 0
        forked = await machine.fork(name="forked")
        assert (await forked.process.exec("test -s pid")).exit_code == 0
        with pytest.raises(DaytonaBadRequestError, match="active fork children"):
            await machine.delete()

    stage.tell(story)


def test_a_snapshot_keeps_the_files_of_its_time(stage: Stage) -> None:
    async def story(client: AsyncDaytona) -> None:
        box = await box_named(client)
        await box.fs.upload_file(b"then", "file")
        await box.create_snapshot("mine")
        assert box.state == SandboxState.STARTED
        await box.fs.upload_file(b"now", "file")
        with pytest.raises(DaytonaConflictError):
            await box.create_snapshot("mine")
        copy = await client.create(CreateSandboxFromSnapshotParams(snapshot="mine"))
        assert await copy.fs.download_file("file") == b"then"
        snapshot = await client.snapshot.get("mine")
        assert (snapshot.source_sandbox_id, snapshot.general) == (box.id, False)
        await client.snapshot.delete(snapshot)
        assert "mine" not in [it.name for it in (await client.snapshot.list()).items]

    stage.tell(story)


def test_intervals_and_network_are_changed(stage: Stage) -> None:
    async def story(client: AsyncDaytona) -> None:
        box = await box_named(client)
        await box.set_autostop_interval(3)
        await box.set_auto_archive_interval(4)
        await box.set_auto_delete_interval(5)
        await box.set_ttl(6)
        await box.set_public(True)
        await box.update_network_settings(network_block_all=True)
        await box.refresh_activity()
        await box.refresh_data()
        found = (box.auto_stop_interval, box.auto_archive_interval, box.auto_delete_interval)
        assert found == (3, 4, 5)
        assert (box.public, box.network_block_all) == (True, True)
        assert (await client.get(box.id)).auto_destroy_at is not None
        await box.set_ttl(0)
        assert (await client.get(box.id)).auto_destroy_at is None
        with pytest.raises(DaytonaUnprocessableEntityError):
            await box.set_auto_pause_interval(5)
        await box.resize(Resources(cpu=2, memory=2))
        assert (box.cpu, box.memory) == (2, 2)
        await box.stop()
        await box.archive()
        with pytest.raises(DaytonaNotFoundError):
            await box.process.exec("true")
        await box.start()

    stage.tell(story)


def test_idle_boxes_stop_and_are_deleted(stage: Stage) -> None:
    async def story(client: AsyncDaytona) -> None:
        box = await client.create(CreateSandboxFromSnapshotParams(auto_delete_interval=10))
        stage.vendor.expire(box.id)
        await box.refresh_data()
        assert box.state == SandboxState.STOPPED
        stage.vendor.expire(box.id)
        await until_gone(client, box.id)
        ephemeral = await client.create(CreateSandboxFromSnapshotParams(ephemeral=True))
        stage.vendor.expire(ephemeral.id)
        await until_gone(client, ephemeral.id)

    stage.tell(story)


def test_calls_of_the_toolbox_are_activity_and_those_of_the_control_plane_are_not(
    stage: Stage,
) -> None:
    async def story(client: AsyncDaytona) -> None:
        busy, idle = await box_named(client, "busy"), await box_named(client, "idle")
        stage.vendor.configure(minute_s=0.1)  # idle for 1.5 s
        while idle.state != SandboxState.STOPPED:
            await busy.process.exec("true")
            await asyncio.sleep(0.05)
            await idle.refresh_data()
        await busy.refresh_data()
        assert busy.state == SandboxState.STARTED

    stage.tell(story)


def test_a_box_deleted_underneath_is_gone(stage: Stage) -> None:
    async def story(client: AsyncDaytona) -> None:
        box = await box_named(client)
        running = asyncio.create_task(box.process.exec("sleep 600"))
        while not stage.calls("POST /toolbox/process/execute"):
            await asyncio.sleep(0.01)
        stage.vendor.delete(box.id)
        with pytest.raises(DaytonaError) as caught:
            await running
        assert caught.value.status_code == 502
        await until_gone(client, box.id)
        with pytest.raises(DaytonaNotFoundError):
            await box.process.exec("true")
        stage.vendor.configure(toolbox_forgets_deleted=True)
        with pytest.raises(DaytonaAuthenticationError):
            await box.process.exec("true")

    stage.tell(story)
    assert stage.vendor.boxes() == []


def test_a_start_may_lose_files(stage: Stage) -> None:
    async def story(client: AsyncDaytona) -> None:
        box = await box_named(client)
        for number in range(10):
            await box.fs.upload_file(b"x", f"kept/{number}")
        stage.vendor.lose_files(box.id, 0.5)
        await box.stop()
        await box.start()
        assert 0 < len(await box.fs.list_files("kept")) < 10

    stage.tell(story)


def test_limits_of_the_organization(stage: Stage) -> None:
    stage.vendor.configure(max_boxes=1)

    async def story(client: AsyncDaytona) -> None:
        box = await box_named(client, "first")
        with pytest.raises(DaytonaBadRequestError, match="Total CPU limit exceeded"):
            await box_named(client, "second")
        await box.delete(wait=True)
        await box_named(client, "second")
        stage.vendor.configure(suspended="unpaid")
        with pytest.raises(DaytonaForbiddenError, match="suspended: unpaid"):
            await box_named(client, "third")

    stage.tell(story)


def test_a_wrong_key_is_refused(stage: Stage) -> None:
    async def story(client: AsyncDaytona) -> None:
        box = await box_named(client)
        config = DaytonaConfig(api_key="wrong", api_url=stage.vendor.api_url, target="us")
        async with AsyncDaytona(config) as stranger:
            with pytest.raises(DaytonaAuthenticationError):
                await stranger.get(box.id)
            with pytest.raises(DaytonaAuthenticationError):
                await box_named(stranger, "more")

    stage.tell(story)
    assert len(stage.vendor.boxes()) == 1


async def served(box: AsyncSandbox, client: AsyncDaytona) -> int:
    """Serve the box's file ``page`` on a port."""
    await box.fs.upload_file(b"<p>hello</p>", "site/page")
    await box.process.exec(
        "cd site; python3 -u -m http.server --bind 127.0.0.1 0 > ../log 2>&1 < /dev/null &"
    )
    while not (log := (await box.process.exec("cat log")).result):
        await asyncio.sleep(0.02)
    return int(log.split("port ")[1].split()[0])


def fetched(url: str, **headers: str) -> tuple[int, bytes]:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers)) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


def test_a_preview_leads_to_a_port(stage: Stage) -> None:
    async def story(client: AsyncDaytona) -> None:
        box = await box_named(client)
        port = await served(box, client)
        link = await box.get_preview_link(port)
        page = f"{link.url}/page"
        assert fetched(page)[0] == 401
        header = {"X-Daytona-Preview-Token": link.token}
        assert fetched(page, **header) == (200, b"<p>hello</p>")
        assert fetched(page, Authorization=f"Bearer {stage.vendor.api_key}")[0] == 200
        assert fetched(f"{link.url}/missing", **header)[0] == 404
        signed = await box.create_signed_preview_url(port, expires_in_seconds=600)
        assert fetched(f"{signed.url}/page") == (200, b"<p>hello</p>")
        await box.expire_signed_preview_url(port, signed.token)
        assert fetched(f"{signed.url}/page")[0] == 401
        brief = await box.create_signed_preview_url(port, expires_in_seconds=1)
        while fetched(f"{brief.url}/page")[0] != 401:
            await asyncio.sleep(0.1)
        await box.process.exec("pkill -f http.server")
        assert fetched(page, **header)[0] == 502
        await box.stop()
        assert fetched(page, **header)[0] == 400

    stage.tell(story)
    assert 200 in stage.calls("GET /preview")


def test_a_preview_leads_to_a_websocket(stage: Stage) -> None:
    async def story(client: AsyncDaytona) -> None:
        box = await box_named(client)

        async def upper(request: web.Request) -> web.WebSocketResponse:
            socket = web.WebSocketResponse()
            await socket.prepare(request)
            async for message in socket:
                await socket.send_str(message.data.upper())
            return socket

        app = web.Application()
        app.router.add_get("/echo", upper)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()  # boxes share our network
        signed = await box.create_signed_preview_url(runner.addresses[0][1])
        async with (
            aiohttp.ClientSession() as session,
            session.ws_connect(f"{signed.url}/echo") as socket,
        ):
            await socket.send_str("hello")
            assert await socket.receive_str() == "HELLO"
        await runner.cleanup()

    stage.tell(story)


def test_what_an_sdk_would_not_send_is_noted(stage: Stage) -> None:
    vendor = stage.vendor
    body = json.dumps({"name": "raw", "colour": "red"}).encode()
    key = {"Authorization": f"Bearer {vendor.api_key}", "Content-Type": "application/json"}
    with urllib.request.urlopen(
        urllib.request.Request(f"{vendor.api_url}/sandbox", data=body, headers=key)
    ) as answer:
        assert answer.status == 200
    assert fetched(f"{vendor.api_url}/nowhere", **key)[0] == 404
    wrong = json.dumps({"name": 7, "cpu": "two"}).encode()
    request = urllib.request.Request(f"{vendor.api_url}/sandbox", data=wrong, headers=key)
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(request)
    with caught.value as error:
        assert error.code == 400
        assert "name must be a string, cpu must be a number" in json.load(error)["message"]
    noted = vendor.protocol_errors()
    assert "POST /sandbox: unknown field colour" in noted
    assert "POST /sandbox: header X-Daytona-SDK-Version is missing" in noted
    assert "GET /nowhere: no such route: GET /api/nowhere" in noted


def test_the_server_ends_with_its_boxes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mark = "daytona-mark-of-this-test"
    with VendorServer.start("daytona", home=tmp_path) as vendor:

        async def story(client: AsyncDaytona) -> None:
            box = await box_named(client)
            await box.process.exec(f"exec -a {mark} sleep 600 > /dev/null 2>&1 &")
            while not running(mark):
                await asyncio.sleep(0.01)

        Stage(vendor, monkeypatch).tell(story)
    assert not running(mark)


def running(mark: str) -> bool:
    """Whether a process of this machine has the text in its command line."""
    for found in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if mark.encode() in found.read_bytes().split(b"\0")[0]:
                return True
        except OSError:
            continue
    return False
