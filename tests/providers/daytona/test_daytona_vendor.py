"""The adapter for Daytona against the local vendor: boxes come, sleep, wake and go."""

from __future__ import annotations

import asyncio
import json
import signal
import urllib.request

import msgspec
import pytest
from daytona_api_client_async import SandboxListItem, SandboxState
from providers.daytona.daytona_boxes import (
    OWNER,
    Requests,
    configured,
    in_loop,
    new_box,
    new_spec,
    vendor_at,
)
from sandstream_providers.daytona import vendor as adapter
from sandstream_providers.daytona.boxes import box_of, is_gone
from sandstream_providers.daytona.errors import DaytonaRefused
from sandstream_providers.daytona.options import name_of
from sandstream_providers.hosted.errors import (
    BoxAsleep,
    CannotPause,
    NameTaken,
    NoRoot,
    NoSuchBox,
    VendorBusy,
    VendorSilent,
)
from sandstream_providers.hosted.vendor import PortAddress
from sandstream_providers.interface import ProviderError
from support.waiting import until
from vendors.faults import Fault
from vendors.process import VendorServer

# --- making and finding boxes ---------------------------------------------------------------------


@in_loop
async def test_a_box_is_made_with_our_labels(server: VendorServer) -> None:
    async with vendor_at(server) as vendor:
        spec, requests = new_spec(labels={"team": "a"}), Requests(server)
        box = await vendor.create(spec)
        assert (box.state, box.name) == ("running", spec.key)
        assert box.created_at > 1.7e9
        assert requests.names() == ["POST /sandbox"]
        sent = requests.last().body
        assert sent == {
            "name": spec.key,
            "labels": {
                "team": "a",
                "sandstream.owner": OWNER,
                "sandstream.sandbox": spec.labels["sandbox"],
                "sandstream.generation": "1",
                "sandstream.run": "r1",
                "sandstream.key": spec.key,
            },
            "target": "us",
            "networkBlockAll": True,
            "autoStopInterval": 15,
            "autoDeleteInterval": 7 * 24 * 60,
        }
        assert box.labels == sent["labels"]
        assert await vendor.find(spec) == await vendor.look(box.id) == box


@in_loop
async def test_options_reach_the_vendor(server: VendorServer) -> None:
    async with vendor_at(server) as vendor:
        requests = Requests(server)
        spec = new_spec(
            image="python:3.13-slim",
            resources={"cpu": 2, "memory": 4},
            name="mine",
            auto_stop_interval=1,
            ttl_minutes=600,
            start_timeout=90,
            snapshot=None,
        )
        await vendor.create(msgspec.structs.replace(spec, network="host"))
        sent = requests.last().body
        assert sent["name"] == "mine"
        assert sent["buildInfo"] == {"dockerfileContent": "FROM python:3.13-slim\n"}
        assert (sent["cpu"], sent["memory"], sent["autoStopInterval"]) == (2, 4, 1)
        assert sent["ttlMinutes"] == 600
        assert sent["labels"]["sandstream.start_timeout"] == "90"
        assert {"disk", "snapshot", "networkBlockAll"}.isdisjoint(sent)
        assert vendor.keep_s == 20.0  # a third of the minute after which the vendor would stop it


def test_later_generations_have_other_names() -> None:
    named, unnamed = new_spec(name="mine"), new_spec()
    later = {**named.labels, "generation": "2"}
    assert name_of(named) == "mine"
    assert name_of(msgspec.structs.replace(named, labels=later)) == "mine-2"
    assert name_of(unnamed) == unnamed.key


@in_loop
async def test_a_slow_start_is_waited_for(server: VendorServer) -> None:
    with configured(server, start_delay_s=(0.4, 0.0)):
        async with vendor_at(server) as vendor:
            requests = Requests(server)
            box = await vendor.create(new_spec())
            assert box.state == "running"
            assert requests.names()[0] == "POST /sandbox"
            assert set(requests.names()[1:]) == {"GET /sandbox/{box}"}


@in_loop
async def test_a_start_that_takes_longer_is_not_waited_for(server: VendorServer) -> None:
    with configured(server, start_delay_s=(60.0, 0.0)):
        async with vendor_at(server) as vendor:
            box = await vendor.create(new_spec(create_timeout=1.0))
            assert box.state == "starting"
            assert await vendor.look(box.id) == box


@in_loop
async def test_trouble_while_it_starts_is_waited_out(server: VendorServer) -> None:
    with configured(server, start_delay_s=(0.3, 0.0)):
        server.add_fault(Fault("GET /sandbox/{box}", "status", status=429))
        server.add_fault(Fault("GET /sandbox/{box}", "status", status=504))
        async with vendor_at(server) as vendor:
            assert (await vendor.create(new_spec())).state == "running"


@in_loop
async def test_a_build_that_fails(server: VendorServer) -> None:
    with configured(server, broken_images=(["no/such:image"], [])):
        async with vendor_at(server) as vendor:
            box = await vendor.create(new_spec(image="no/such:image"))
            assert (box.state, box.reason) == (
                "failed",
                "failed to build image no/such:image: not found",
            )


@in_loop
async def test_a_name_is_given_once(server: VendorServer) -> None:
    async with vendor_at(server) as vendor:
        spec = new_spec()
        made = await vendor.create(spec)
        with pytest.raises(NameTaken, match="already exists"):
            await vendor.create(spec)
        assert [box.id for box in server.boxes()] == [made.id]


@in_loop
async def test_a_box_whose_maker_heard_no_answer_is_found(server: VendorServer) -> None:
    async with vendor_at(server) as vendor:
        spec = new_spec()
        server.add_fault(Fault("POST /sandbox", "lost"))
        with pytest.raises(VendorSilent, match="create a box"):
            await vendor.create(spec)
        found = await vendor.find(spec)
        assert found is not None and found.labels["sandstream.key"] == spec.key
        assert [box.id for box in server.boxes()] == [found.id]


@in_loop
async def test_a_request_that_never_arrived_leaves_no_box(server: VendorServer) -> None:
    async with vendor_at(server) as vendor:
        spec = new_spec()
        server.add_fault(Fault("POST /sandbox", "drop"))
        with pytest.raises(VendorSilent):
            await vendor.create(spec)
        assert await vendor.find(spec) is None


@in_loop
async def test_a_silent_vendor_is_given_up(server: VendorServer) -> None:
    async with vendor_at(server) as vendor, vendor_at(server, call_s=0.3) as hasty:
        server.add_fault(Fault("POST /sandbox", "hang", after=True))
        spec = new_spec(create_timeout=0.5)
        with pytest.raises(VendorSilent, match="create a box: no answer within"):
            await hasty.create(spec)
        await until(lambda: len(server.boxes()) == 1)
        found = await vendor.find(spec)
        assert found is not None
        server.add_fault(Fault("GET /sandbox/{box}", "hang"))
        with pytest.raises(VendorSilent, match="describe the box"):
            await hasty.look(found.id)


@in_loop
async def test_boxes_are_listed_page_by_page(server: VendorServer) -> None:
    async with vendor_at(server) as vendor:
        made = {(await new_box(vendor)).id for _ in range(3)}
        other = msgspec.structs.replace(new_spec(), labels={"owner": "others"})
        await vendor.create(other)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(adapter, "_PAGE", 2)
            requests = Requests(server)
            listed = await vendor.list(OWNER)
        assert {box.id for box in listed} == made
        assert requests.names() == ["GET /sandbox", "GET /sandbox"]
        assert json.loads(requests.last().query["labels"]) == {"sandstream.owner": OWNER}


# --- sleeping and waking --------------------------------------------------------------------------


@in_loop
async def test_stop_keeps_files_and_wake_brings_them_back(server: VendorServer) -> None:
    delays = {"stop_delay_s": (0.2, 0.0), "start_delay_s": (0.2, 0.0)}
    async with vendor_at(server) as vendor:
        box = await new_box(vendor)
        await vendor.execute(box.id, "echo kept >file", timeout_s=5)
        with configured(server, **delays):
            await vendor.stop(box.id)
            seen = await vendor.look(box.id)
            assert seen is not None and seen.state == "stopped"
            await vendor.stop(box.id)
            await vendor.wake(box.id)
            await vendor.wake(box.id)
        assert await vendor.execute(box.id, "cat file", timeout_s=5) == "kept\n"


@in_loop
async def test_pause_freezes_processes(server: VendorServer) -> None:
    async with vendor_at(server) as vendor:
        box = await new_box(vendor, snapshot="daytona-vm")
        start = "sleep 1000 >/dev/null 2>&1 & echo $! | tee pid"
        pid = await vendor.execute(box.id, start, timeout_s=5)
        with configured(server, stop_delay_s=(0.2, 0.0)):
            await vendor.pause(box.id)
            seen = await vendor.look(box.id)
            assert seen is not None and seen.state == "paused"
            await vendor.pause(box.id)
        await vendor.wake(box.id)
        assert await vendor.execute(box.id, "kill -0 $(cat pid) && cat pid", timeout_s=5) == pid


@in_loop
async def test_not_every_box_can_be_paused(server: VendorServer) -> None:
    async with vendor_at(server) as vendor:
        box = await new_box(vendor)
        with pytest.raises(CannotPause):
            await vendor.pause(box.id)
        server.add_fault(Fault("POST /sandbox/{box}/pause", "status", status=404))
        with pytest.raises(CannotPause):  # an engine that has no such call
            await vendor.pause(box.id)


@in_loop
async def test_a_box_that_does_not_wake_in_time(server: VendorServer) -> None:
    async with vendor_at(server) as vendor:
        box = await new_box(vendor, start_timeout=0.3)
        await vendor.stop(box.id)
        with configured(server, start_delay_s=(60.0, 0.0)):
            with pytest.raises(VendorSilent, match="start the box"):
                await vendor.wake(box.id)
            with pytest.raises(VendorBusy, match="state change in progress"):
                await vendor.wake(box.id)
            with pytest.raises(VendorBusy, match="state change in progress"):
                await vendor.stop(box.id)


@in_loop
async def test_a_box_that_goes_while_it_wakes(server: VendorServer) -> None:
    async with vendor_at(server) as vendor:
        box = await new_box(vendor)
        await vendor.stop(box.id)
        with configured(server, start_delay_s=(30.0, 0.0)):
            waking = asyncio.create_task(vendor.wake(box.id))
            await until(lambda: [it.state for it in server.boxes()] == ["starting"])
            server.delete(box.id)
            with pytest.raises(NoSuchBox):
                await waking


@in_loop
async def test_a_box_that_is_being_removed_is_gone(server: VendorServer) -> None:
    with configured(server, destroy_delay_s=(60.0, 0.0)):
        async with vendor_at(server) as vendor:
            spec = new_spec()
            box = await vendor.create(spec)
            await vendor.delete(box.id)
            assert await vendor.look(box.id) is None  # the vendor still says: destroying
            assert await vendor.find(spec) is None
            await vendor.delete(box.id)
            for call in (vendor.stop, vendor.pause, vendor.wake):
                with pytest.raises(NoSuchBox):
                    await call(box.id)


@in_loop
async def test_a_box_that_never_was(server: VendorServer) -> None:
    async with vendor_at(server) as vendor:
        await vendor.delete("no-such-box")
        assert await vendor.look("no-such-box") is None
        for call in (vendor.stop, vendor.pause, vendor.wake, vendor.keep, vendor.terminal):
            with pytest.raises(NoSuchBox):
                await call("no-such-box")


@in_loop
async def test_a_box_that_changes_is_not_deleted_yet(server: VendorServer) -> None:
    with configured(server, start_delay_s=(60.0, 0.0)):
        async with vendor_at(server) as vendor:
            box = await vendor.create(new_spec(create_timeout=1.0))
            with pytest.raises(VendorBusy, match="state change in progress"):
                await vendor.delete(box.id)


STATES = {
    "running": ["started"],
    "stopped": ["stopped", "archived"],
    "paused": ["paused"],
    "failed": ["error", "build_failed"],
    "gone": ["destroyed", "destroying"],
}


@pytest.mark.parametrize("state", SandboxState)
def test_every_state_of_the_vendor_is_known(state: SandboxState) -> None:
    found = SandboxListItem.model_construct(id="1", name="a", labels={}, state=state)
    ours = next((it for it, theirs in STATES.items() if state.value in theirs), "starting")
    assert ("gone" if is_gone(found) else box_of(found).state) == ours


# --- commands -------------------------------------------------------------------------------------


@in_loop
async def test_a_command_returns_its_standard_output(server: VendorServer) -> None:
    async with vendor_at(server) as vendor:
        box = await new_box(vendor)
        odd = (
            """printf '%s\\n' "it's" '"$HOME"' \\\\ '!x' '*'; echo no >&2; cat; echo end; exit 3"""
        )
        said = await vendor.execute(box.id, odd, timeout_s=5)
        assert said == 'it\'s\n"$HOME"\n\\\n!x\n*\nend\n'
        assert await vendor.execute(box.id, f"printf {'x' * 90_000} | wc -c", timeout_s=5) == (
            "90000\n"
        )


@in_loop
async def test_a_command_that_takes_too_long(server: VendorServer) -> None:
    async with vendor_at(server) as vendor:
        box = await new_box(vendor)
        with pytest.raises(VendorSilent, match="command execution timeout"):
            await vendor.execute(box.id, "sleep 30", timeout_s=0.5)


@in_loop
async def test_another_process_reaches_a_box_by_its_id(server: VendorServer) -> None:
    async with vendor_at(server) as vendor, vendor_at(server) as other:
        box = await new_box(vendor)
        requests = Requests(server)
        assert await other.execute(box.id, "echo 1", timeout_s=5) == "1\n"
        assert await other.execute(box.id, "echo 2", timeout_s=5) == "2\n"
        run = "POST /toolbox/process/execute"
        assert requests.names() == ["GET /sandbox/{box}", run, run]


@in_loop
async def test_commands_need_a_box_that_runs(server: VendorServer) -> None:
    async with vendor_at(server) as vendor:
        box = await new_box(vendor)
        await vendor.stop(box.id)
        for work in (vendor.execute(box.id, "true", timeout_s=5), vendor.terminal(box.id)):
            with pytest.raises(BoxAsleep, match="it is stopped"):
                await work
        archive = urllib.request.Request(
            f"{server.api_url}/sandbox/{box.id}/archive",
            method="POST",
            headers={
                "Authorization": f"Bearer {server.api_key}",
                "X-Daytona-Source": "test",
                "X-Daytona-SDK-Version": "0.226.1",
            },
        )
        await asyncio.to_thread(lambda: urllib.request.urlopen(archive).close())
        with pytest.raises(BoxAsleep):
            await vendor.execute(box.id, "true", timeout_s=5)


@pytest.mark.parametrize("forgets", [False, True])
def test_commands_in_a_box_that_is_gone(server: VendorServer, forgets: bool) -> None:
    @in_loop
    async def run(server: VendorServer) -> None:
        async with vendor_at(server) as vendor:
            box = await new_box(vendor)
            server.delete(box.id)
            await until(lambda: server.boxes() == [])
            await vendor.execute(box.id, "true", timeout_s=5)

    with (
        configured(server, toolbox_forgets_deleted=(forgets, False)),
        pytest.raises(NoSuchBox),
    ):
        run(server)


@in_loop
async def test_a_daemon_that_is_not_up_yet(server: VendorServer) -> None:
    async with vendor_at(server) as vendor:
        box = await new_box(vendor)
        server.add_fault(
            Fault("POST /toolbox/process/execute", "status", status=400, message=_NOT_STARTED)
        )
        with pytest.raises(VendorBusy, match="cannot be reached yet"):
            await vendor.execute(box.id, "true", timeout_s=5)
        server.add_fault(Fault("WS /toolbox/process/pty/create-connect", "status", status=400))
        with pytest.raises(VendorBusy, match="cannot be reached yet"):
            await vendor.terminal(box.id)
        assert await vendor.execute(box.id, "echo up", timeout_s=5) == "up\n"


_NOT_STARTED = "no IP address found. Is the Sandbox started?"


@in_loop
async def test_an_error_of_a_command_says_not_whether_it_ran(server: VendorServer) -> None:
    async with vendor_at(server) as vendor:
        box = await new_box(vendor)
        for fault in (
            Fault("POST /toolbox/process/execute", "status", status=502, after=True),
            Fault("POST /toolbox/process/execute", "lost"),
            Fault("POST /toolbox/process/execute", "drop"),
        ):
            server.add_fault(fault)
            with pytest.raises(VendorSilent):
                await vendor.execute(box.id, "echo x >>ran", timeout_s=5)
        assert await vendor.execute(box.id, "cat ran", timeout_s=5) == "x\nx\n"
        said = "command cannot be empty"
        server.add_fault(Fault("POST /toolbox/process/execute", "status", status=400, message=said))
        with pytest.raises(DaytonaRefused, match=said):
            await vendor.execute(box.id, "true", timeout_s=5)


# --- the rest -------------------------------------------------------------------------------------


@in_loop
async def test_the_address_of_a_port(server: VendorServer) -> None:
    async with vendor_at(server) as vendor:
        box = await new_box(vendor)
        requests = Requests(server)
        found = await vendor.address(box.id, 8000, {"url_ttl_s": 120, "name": "mine"})
        assert requests.last().query == {"expiresInSeconds": "120"}
        assert (found.host, found.tls, found.query) == ("127.0.0.1", False, "")
        assert found.port > 0
        url = "https://8000-token.proxy.example/?a=b"
        server.add_fault(
            Fault(
                "GET /sandbox/{box}/ports/{port}/signed-preview-url",
                "status",
                status=200,
                body={"sandboxId": box.id, "port": 8000, "token": "token", "url": url},
            )
        )
        found = await vendor.address(box.id, 8000, {})
        assert found == PortAddress("8000-token.proxy.example", 443, True, "a=b")
        with pytest.raises(NoSuchBox):
            await vendor.address("no-such-box", 8000, {})


@in_loop
async def test_no_call_has_the_rights_of_root(server: VendorServer) -> None:
    async with vendor_at(server) as vendor:
        with pytest.raises(NoRoot, match="/workspace"):
            await vendor.make_root("some-box", "/workspace", "1000:1000")


@in_loop
async def test_each_operation_costs_one_request(server: VendorServer) -> None:
    async with vendor_at(server) as vendor:
        spec = new_spec(snapshot="daytona-vm")
        requests = Requests(server)
        box = await vendor.create(spec)
        await vendor.find(spec)
        await vendor.look(box.id)
        await vendor.keep(box.id)
        await vendor.list(OWNER)
        await vendor.execute(box.id, "true", timeout_s=5)
        terminal = await vendor.terminal(box.id)
        await terminal.close()
        await vendor.address(box.id, 8000, {})
        await vendor.pause(box.id)
        await vendor.wake(box.id)
        await vendor.stop(box.id)
        await vendor.delete(box.id)
        await vendor.check()
        assert requests.names() == [
            "POST /sandbox",
            "GET /sandbox/{box}",
            "GET /sandbox/{box}",
            "POST /sandbox/{box}/last-activity",
            "GET /sandbox",
            "POST /toolbox/process/execute",
            "WS /toolbox/process/pty/create-connect",
            "DELETE /toolbox/process/pty/{terminal}",
            "GET /sandbox/{box}/ports/{port}/signed-preview-url",
            "POST /sandbox/{box}/pause",
            "POST /sandbox/{box}/start",
            "POST /sandbox/{box}/stop",
            "DELETE /sandbox/{box}",
            "GET /sandbox",
        ]


@in_loop
async def test_ctrl_c_stays_with_the_program(server: VendorServer) -> None:
    pressed = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, pressed.set)
    with configured(server, start_delay_s=(0.2, 0.0)):
        async with vendor_at(server) as vendor:
            await new_box(vendor)
            signal.raise_signal(signal.SIGINT)
            await pressed.wait()


@in_loop
async def test_an_adapter_that_is_closed_stays_closed(server: VendorServer) -> None:
    async with vendor_at(server) as vendor:
        box = await new_box(vendor)
        terminal = await vendor.terminal(box.id)
        requests = Requests(server)
        await vendor.close()
        assert requests.names() == ["DELETE /toolbox/process/pty/{terminal}"]
        assert await terminal.receive() == b""
        with pytest.raises(ProviderError, match="closed"):
            await vendor.look(box.id)
