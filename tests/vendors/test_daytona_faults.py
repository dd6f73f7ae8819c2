"""Faults of the local Daytona server, and what the real SDK makes of them."""

from __future__ import annotations

import asyncio

import pytest
from daytona import (
    AsyncDaytona,
    CreateSandboxFromSnapshotParams,
    DaytonaAuthenticationError,
    DaytonaConflictError,
    DaytonaConnectionError,
    DaytonaError,
    DaytonaForbiddenError,
    DaytonaNotFoundError,
    DaytonaRateLimitError,
    DaytonaTimeoutError,
    SessionExecuteRequest,
)
from daytona.common.errors import DaytonaInternalServerError, DaytonaServiceUnavailableError
from vendors.daytona_stories import Stage, box_named
from vendors.faults import Fault

EXECUTE = "POST /toolbox/process/execute"


def test_a_lost_answer_leaves_a_box_that_is_found_by_name(stage: Stage) -> None:
    stage.vendor.add_fault(Fault("POST /sandbox", "lost"))

    async def story(client: AsyncDaytona) -> None:
        with pytest.raises(DaytonaConnectionError):
            await box_named(client, "lost")
        with pytest.raises(DaytonaConflictError):
            await box_named(client, "lost")
        assert (await client.get("lost")).id == stage.vendor.boxes()[0].id

    stage.tell(story)
    assert stage.calls("POST /sandbox") == [None, 409]


def test_a_dropped_request_has_no_effect(stage: Stage) -> None:
    stage.vendor.add_fault(Fault("POST /sandbox", "drop"))

    async def story(client: AsyncDaytona) -> None:
        with pytest.raises(DaytonaConnectionError):
            await box_named(client, "dropped")
        with pytest.raises(DaytonaNotFoundError):
            await client.get("dropped")
        await box_named(client, "dropped")

    stage.tell(story)


def test_only_requests_that_may_be_repeated_are(stage: Stage) -> None:
    async def story(client: AsyncDaytona) -> None:
        box = await box_named(client)
        stage.vendor.add_fault(Fault("GET /sandbox/{box}", "lost", times=2))
        await box.refresh_data()
        stage.vendor.add_fault(Fault("DELETE /toolbox/files", "lost"))
        await box.fs.upload_file(b"x", "file")
        with pytest.raises(DaytonaNotFoundError):
            await box.fs.delete_file("file")  # the first request had deleted it
        stage.vendor.add_fault(Fault(EXECUTE, "lost"))
        with pytest.raises(DaytonaConnectionError):
            await box.process.exec("echo ran >> log")
        assert (await box.process.exec("cat log")).result == "ran\n"

    stage.tell(story)
    assert stage.calls(EXECUTE) == [None, 200]


def test_a_hanging_request_ends_with_the_clients_patience(stage: Stage) -> None:
    async def story(client: AsyncDaytona) -> None:
        box = await box_named(client)
        stage.vendor.add_fault(Fault("GET /sandbox/{box}", "hang", times=None))
        with pytest.raises(DaytonaTimeoutError):
            await box.refresh_data(request_timeout=1)
        stage.vendor.clear_faults()
        stage.vendor.add_fault(Fault("POST /sandbox/{box}/autostop/{interval}", "hang", after=True))
        with pytest.raises(DaytonaTimeoutError):
            await box.set_autostop_interval(99, request_timeout=1)
        await box.refresh_data()
        assert box.auto_stop_interval == 99

    stage.tell(story)


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (401, DaytonaAuthenticationError),
        (403, DaytonaForbiddenError),
        (429, DaytonaRateLimitError),
        (500, DaytonaInternalServerError),
        (503, DaytonaServiceUnavailableError),
    ],
)
def test_a_status_is_answered_instead(stage: Stage, status: int, error: type[DaytonaError]) -> None:
    fault = Fault("POST /sandbox", "status", status=status, headers={"Retry-After": "7"}, skip=1)
    stage.vendor.add_fault(fault)

    async def story(client: AsyncDaytona) -> None:
        await box_named(client, "passes")
        with pytest.raises(error) as caught:
            await box_named(client, "refused")
        assert type(caught.value) is error
        assert caught.value.headers["Retry-After"] == "7"
        await box_named(client, "passes again")

    stage.tell(story)
    assert stage.calls("POST /sandbox") == [200, status, 200]


def test_a_gateway_gives_up_on_a_call_that_took_effect(stage: Stage) -> None:
    stage.vendor.add_fault(Fault("POST /sandbox", "status", status=504, after=True))

    async def story(client: AsyncDaytona) -> None:
        with pytest.raises(DaytonaTimeoutError):
            await box_named(client, "made")
        assert (await client.get("made")).name == "made"

    stage.tell(story)


def test_a_slow_answer_is_an_answer(stage: Stage) -> None:
    stage.vendor.add_fault(Fault("POST /sandbox", "slow", seconds=0.2))

    async def story(client: AsyncDaytona) -> None:
        await box_named(client)

    stage.tell(story)
    (call,) = [call for call in stage.journal() if call.name == "POST /sandbox"]
    assert (call.fault, call.status) == ("slow", 200)


def test_faults_choose_calls_by_box_and_content(stage: Stage) -> None:
    async def story(client: AsyncDaytona) -> None:
        one, two = await box_named(client, "one"), await box_named(client, "two")
        stage.vendor.add_fault(Fault(EXECUTE, "status", times=None, box=one.id))
        stage.vendor.add_fault(Fault("POST /toolbox/*", "status", times=None, containing="evil"))
        with pytest.raises(DaytonaInternalServerError):
            await one.process.exec("true")
        assert (await two.process.exec("true")).exit_code == 0
        with pytest.raises(DaytonaInternalServerError):
            await two.process.exec("echo evil")

    stage.tell(story)


def test_streams_are_cut(stage: Stage) -> None:
    async def story(client: AsyncDaytona) -> None:
        box = await box_named(client)
        await box.process.create_session("s")
        request = SessionExecuteRequest(command="echo one; read a; echo two", run_async=True)
        started = await box.process.execute_session_command("s", request)
        stage.vendor.add_fault(Fault("WS *logs", "cut", messages=1))
        out: list[str] = []
        with pytest.raises(DaytonaError, match="closed unexpectedly"):
            following = asyncio.create_task(
                box.process.get_session_command_logs_async(
                    "s", started.cmd_id, out.append, out.append
                )
            )
            while "one\n" not in out:
                await asyncio.sleep(0.01)
            await box.process.send_session_command_input("s", started.cmd_id, "go")
            await following
        out.clear()
        follow = box.process.get_session_command_logs_async
        await follow("s", started.cmd_id, out.append, out.append)
        assert "".join(out) == "one\ngo\ntwo\n"
        stage.vendor.add_fault(Fault("WS /toolbox/process/pty/create-connect", "cut", messages=1))
        terminal = await box.process.create_pty_session("t", bytearray().extend)
        assert (await terminal.wait()).exit_code is None
        assert [it.id for it in await box.process.list_pty_sessions()] == ["t"]
        await box.fs.upload_file(b"x" * 500_000, "large")
        stage.vendor.add_fault(Fault("POST /toolbox/files/bulk-download", "cut", messages=3))
        with pytest.raises(DaytonaError):
            await box.fs.download_file("large")

    stage.tell(story)


def test_an_upload_is_lost_after_it_was_stored(stage: Stage) -> None:
    async def story(client: AsyncDaytona) -> None:
        box = await box_named(client)
        stage.vendor.add_fault(Fault("POST /toolbox/files/bulk-upload", "lost"))
        with pytest.raises(DaytonaConnectionError):
            await box.fs.upload_file(b"stored", "file")
        assert await box.fs.download_file("file") == b"stored"

    stage.tell(story)


def test_latency_delays_requests_and_messages_without_changing_them(stage: Stage) -> None:
    async def story(client: AsyncDaytona) -> None:
        box = await box_named(client)
        stage.vendor.set_latency(0.03)
        assert (await box.process.exec("echo out")).result == "out\n"
        seen = bytearray()
        terminal = await box.process.create_pty_session("t", seen.extend)
        for number in range(20):
            await terminal.send_input(f"echo {number}:$(({number} * 2))\n")
        await terminal.send_input("exit 0\n")
        assert (await terminal.wait()).exit_code == 0
        found = [seen.find(f"{number}:{number * 2}\r\n".encode()) for number in range(20)]
        assert -1 not in found and found == sorted(found)

    stage.tell(story)


def test_ephemeral_boxes_vanish_when_they_stop(stage: Stage) -> None:
    async def story(client: AsyncDaytona) -> None:
        box = await client.create(CreateSandboxFromSnapshotParams(ephemeral=True))
        await box.stop()
        with pytest.raises(DaytonaNotFoundError):
            await client.get(box.id)

    stage.tell(story)
