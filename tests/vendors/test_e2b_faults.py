"""Faults of the local E2B, each as the vendor's SDK meets it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import httpx
import pytest
from e2b import (
    AsyncSandbox,
    AuthenticationException,
    RateLimitException,
    SandboxException,
    TimeoutException,
)
from e2b.exceptions import SandboxUnreachableException, ServiceBusyException
from vendors.e2b_boxes import box, connection, in_loop, until
from vendors.faults import Fault
from vendors.process import VendorServer

CREATE = "POST /v2/sandboxes"
START = "POST /process.Process/Start"


@pytest.fixture(scope="module")
def vendor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VendorServer]:
    with VendorServer.start("e2b", home=tmp_path_factory.mktemp("e2b")) as started:
        yield started


def calls(vendor: VendorServer, name: str) -> list[int | None]:
    """The statuses of all calls of this name so far."""
    return [call.status for call in vendor.journal() if call.name == name]


@in_loop
async def test_a_lost_creation_is_found_by_its_key(vendor: VendorServer) -> None:
    vendor.add_fault(Fault(CREATE, "lost"))
    with pytest.raises(httpx.TransportError):
        await AsyncSandbox.create(idempotency_key="lost-1", **connection(vendor))
    [made] = vendor.boxes()
    again = await AsyncSandbox.create(idempotency_key="lost-1", **connection(vendor))
    assert again.sandbox_id == made.id


@in_loop
async def test_a_dropped_creation_makes_nothing(vendor: VendorServer) -> None:
    before = len(calls(vendor, CREATE))
    vendor.add_fault(Fault(CREATE, "drop"))
    with pytest.raises(httpx.TransportError):
        await AsyncSandbox.create(**connection(vendor))
    assert vendor.boxes() == []
    assert calls(vendor, CREATE)[before:] == [None]


@in_loop
async def test_a_creation_that_hangs(vendor: VendorServer) -> None:
    vendor.add_fault(Fault(CREATE, "hang"))
    with pytest.raises(httpx.TimeoutException):
        await AsyncSandbox.create(**connection(vendor, request_timeout=0.2))
    assert vendor.boxes() == []


@in_loop
async def test_a_creation_that_takes_effect_and_hangs(vendor: VendorServer) -> None:
    vendor.add_fault(Fault(CREATE, "hang", after=True))
    with pytest.raises(httpx.TimeoutException):
        await AsyncSandbox.create(**connection(vendor, request_timeout=0.5))
    await until(lambda: len(vendor.boxes()) == 1)


@in_loop
async def test_statuses_that_the_sdk_retries(vendor: VendorServer) -> None:
    for status, headers in (
        (429, {"Retry-After": "1"}),
        (429, {}),
        (502, {}),
        (503, {}),
        (504, {}),
    ):
        before = len(calls(vendor, CREATE))
        vendor.add_fault(Fault(CREATE, "status", status=status, headers=headers))
        await AsyncSandbox.create(**connection(vendor))
        assert calls(vendor, CREATE)[before:] == [status, 201]


@in_loop
async def test_statuses_that_reach_the_caller(vendor: VendorServer) -> None:
    for status, kind in (
        (429, RateLimitException),
        (503, ServiceBusyException),
        (500, SandboxException),
        (403, SandboxException),
        (401, AuthenticationException),
    ):
        vendor.add_fault(Fault(CREATE, "status", status=status, message="no luck"))
        with pytest.raises(kind, match=f"{status}: .*no luck"):
            await AsyncSandbox.create(**connection(vendor, retries=0))
    assert vendor.boxes() == []


@in_loop
async def test_a_retry_can_be_forbidden(vendor: VendorServer) -> None:
    headers = {"Should-Retry": "false"}
    vendor.add_fault(Fault(CREATE, "status", status=429, headers=headers, times=None))
    before = len(calls(vendor, CREATE))
    with pytest.raises(RateLimitException):
        await AsyncSandbox.create(**connection(vendor))
    assert calls(vendor, CREATE)[before:] == [429]


@in_loop
async def test_a_lost_start_runs(vendor: VendorServer) -> None:
    async with box(vendor) as sandbox:
        vendor.add_fault(Fault(START, "lost", containing="touch here"))
        with pytest.raises(SandboxUnreachableException):
            await sandbox.commands.run("touch here")
        while not await sandbox.files.exists("here"):
            await asyncio.sleep(0.01)
        [call] = [call for call in vendor.journal() if (call.name, call.fault) == (START, "lost")]
        assert call.body["process"]["args"] == ["-l", "-c", "touch here"]


@in_loop
async def test_a_dropped_start_does_not_run(vendor: VendorServer) -> None:
    async with box(vendor) as sandbox:
        before = len(calls(vendor, START))
        vendor.add_fault(Fault(START, "drop"))
        with pytest.raises(SandboxUnreachableException):
            await sandbox.commands.run("touch here")
        assert not await sandbox.files.exists("here")
        assert len(calls(vendor, START)) == before + 1


@in_loop
async def test_a_start_that_hangs(vendor: VendorServer) -> None:
    async with box(vendor) as sandbox:
        vendor.add_fault(Fault(START, "hang"))
        with pytest.raises(TimeoutException, match="the stream didn't open"):
            await sandbox.commands.run("true", request_timeout=0.2)


@in_loop
async def test_statuses_of_a_start(vendor: VendorServer) -> None:
    async with box(vendor) as sandbox:
        for status, kind in (
            (429, RateLimitException),
            (401, AuthenticationException),
            (500, SandboxException),
            (503, SandboxUnreachableException),
        ):
            before = len(calls(vendor, START))
            vendor.add_fault(Fault(START, "status", status=status, message="no luck"))
            with pytest.raises(kind, match="no luck"):
                await sandbox.commands.run("true")
            assert calls(vendor, START)[before:] == [status]


@in_loop
async def test_a_stream_that_is_cut(vendor: VendorServer) -> None:
    async with box(vendor) as sandbox:
        vendor.add_fault(Fault(START, "cut", messages=2))
        handle = await sandbox.commands.run(
            "echo one; sleep 0.1; echo two; exec sleep 1000", background=True, timeout=0
        )
        with pytest.raises(SandboxUnreachableException):
            await handle.wait()
        assert handle.stdout == "one\n"
        assert [found.pid for found in await sandbox.commands.list()] == [handle.pid]


@in_loop
async def test_a_download_that_is_cut(vendor: VendorServer) -> None:
    async with box(vendor) as sandbox:
        await sandbox.commands.run("head -c 1000000 /dev/urandom > file")
        vendor.add_fault(Fault("GET /files", "cut", messages=2))
        with pytest.raises(httpx.TransportError):
            await sandbox.files.read("file", format="bytes")


@in_loop
async def test_other_calls_are_lost_too(vendor: VendorServer) -> None:
    async with box(vendor) as sandbox:
        vendor.add_fault(Fault("DELETE /sandboxes/{box}", "lost"))
        with pytest.raises(httpx.TransportError):
            await sandbox.kill()
        assert not await sandbox.kill()
    async with box(vendor) as sandbox:
        vendor.add_fault(Fault("POST /sandboxes/{box}/pause", "lost", box=sandbox.sandbox_id))
        with pytest.raises(httpx.TransportError):
            await sandbox.pause()
        assert not await sandbox.pause()
        vendor.add_fault(Fault("POST /v2/sandboxes/{box}/connect", "slow", seconds=0.1))
        await sandbox.connect()
        vendor.add_fault(Fault("POST /files", "lost"))
        with pytest.raises(httpx.TransportError):
            await sandbox.files.write("file", "x")
        assert await sandbox.files.read("file") == "x"
        vendor.add_fault(Fault("POST /process.Process/SendInput", "lost"))
        handle = await sandbox.commands.run("cat", background=True, stdin=True, timeout=0)
        with pytest.raises(SandboxUnreachableException):
            await handle.send_stdin("once\n")
        await handle.close_stdin()
        assert (await handle.wait()).stdout == "once\n"


@in_loop
async def test_a_far_vendor(vendor: VendorServer) -> None:
    vendor.set_latency(0.02)
    async with box(vendor) as sandbox:
        handle = await sandbox.commands.run("cat", background=True, stdin=True, timeout=0)
        async with sandbox.commands.stream_input(handle.pid) as stream:
            await stream.send("x\n")
        await handle.close_stdin()
        assert (await handle.wait()).stdout == "x\n"
