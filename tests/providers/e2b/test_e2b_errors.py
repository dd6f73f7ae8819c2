"""Bad days at E2B: what its errors and lost answers become, and that no box is made twice."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from providers.e2b.e2b_vendors import Arrivals, adapter, free_port, new_spec
from sandstream_providers.e2b import vendor as adapters
from sandstream_providers.e2b.account import Account
from sandstream_providers.e2b.errors import Undecided
from sandstream_providers.e2b.vendor import E2BVendor
from sandstream_providers.hosted.calls import patiently
from sandstream_providers.hosted.errors import (
    BoxAsleep,
    NoSuchBox,
    QuotaReached,
    VendorBusy,
    VendorRefused,
    VendorSilent,
)
from sandstream_providers.interface import BoxGone, ProviderError
from support.waiting import eventually
from vendors.e2b_boxes import in_loop
from vendors.faults import Fault
from vendors.process import VendorServer

CREATE, LIST = "POST /v2/sandboxes", "GET /v2/sandboxes"
LOOK, KILL = "GET /sandboxes/{box}", "DELETE /sandboxes/{box}"
CONNECT, PAUSE = "POST /v2/sandboxes/{box}/connect", "POST /sandboxes/{box}/pause"
KEEP, START = "POST /sandboxes/{box}/timeout", "POST /process.Process/Start"
Call = Callable[[E2BVendor, str], Awaitable[object]]

CALLS: dict[str, tuple[str, Call]] = {
    "look": (LOOK, lambda e2b, box: e2b.look(box)),
    "list": (LIST, lambda e2b, box: e2b.list("x")),
    "find": (LIST, lambda e2b, box: e2b.find(new_spec())),
    "check": (LIST, lambda e2b, box: e2b.check()),
    "wake": (CONNECT, lambda e2b, box: e2b.wake(box)),
    "pause": (PAUSE, lambda e2b, box: e2b.pause(box)),
    "stop": (PAUSE, lambda e2b, box: e2b.stop(box)),
    "delete": (KILL, lambda e2b, box: e2b.delete(box)),
    "keep": (KEEP, lambda e2b, box: e2b.keep(box)),
}
"""What may be asked again: the route, and how to ask."""


def code(name: str) -> dict[str, Any]:
    """The body of an error with a code for machines."""
    return {"code": 0, "message": f"it is {name}", "error_code": name}


# --- calls to the control plane -------------------------------------------------------------------


@pytest.mark.parametrize("name", CALLS)
def test_refusals_of_each_call(vendor: VendorServer, name: str) -> None:
    route, call = CALLS[name]

    @in_loop
    async def test(vendor: VendorServer) -> None:
        async with adapter(vendor) as maker:
            box = (await maker.create(new_spec())).id
        arrivals = Arrivals(vendor)
        for fault, expected in (
            (Fault(route, "status", status=401), VendorRefused),
            (Fault(route, "status", status=403), VendorRefused),
            (Fault(route, "status", status=400), ProviderError),
            (Fault(route, "status", status=429), VendorBusy),
            (Fault(route, "status", status=500), VendorBusy),
            (Fault(route, "status", status=502), VendorBusy),
            (Fault(route, "status", status=503), VendorBusy),
            (Fault(route, "status", status=503, body={"not": "E2B's own"}), VendorBusy),
            (Fault(route, "drop"), VendorSilent),
            (Fault(route, "lost"), VendorSilent),
        ):
            if name == "stop" and fault.status == 400:
                continue  # then it is tried with the memory
            vendor.add_fault(fault)
            async with adapter(vendor) as e2b:
                with pytest.raises(expected) as caught:
                    await call(e2b, box)
            assert type(caught.value) is expected, fault
            assert [it.name for it in arrivals.calls()] == [route], fault

    test(vendor)


@pytest.mark.parametrize("name", CALLS)
def test_no_call_waits_for_ever(vendor: VendorServer, name: str) -> None:
    route, call = CALLS[name]

    @in_loop
    async def test(vendor: VendorServer) -> None:
        async with adapter(vendor) as maker:
            box = (await maker.create(new_spec())).id
        vendor.add_fault(Fault(route, "hang", times=None))
        async with adapter(vendor, call_s=0.5, long_s=0.5) as e2b:
            with pytest.raises(VendorSilent):
                await call(e2b, box)

    test(vendor)


@in_loop
async def test_a_vendor_says_when_to_come_back(vendor: VendorServer) -> None:
    spec = new_spec()
    async with adapter(vendor) as e2b:
        for route, status in itertools.product((CREATE, LIST), (429, 503)):
            vendor.add_fault(Fault(route, "status", status=status, headers={"Retry-After": "7"}))
            with pytest.raises(VendorBusy) as caught:
                await (e2b.create(spec) if route == CREATE else e2b.find(spec))
            assert caught.value.retry_after_s == 7
        vendor.add_fault(Fault(LIST, "status", status=429, headers={"Retry-After": "soon"}))
        with pytest.raises(VendorBusy) as caught:
            await e2b.find(spec)
        assert caught.value.retry_after_s is None


@in_loop
async def test_a_wrong_key(vendor: VendorServer) -> None:
    wrong = Account(api_key="wrong", api_url=vendor.api_url, sandbox_url=vendor.sandbox_url)
    e2b = E2BVendor(wrong)
    for call in (e2b.check(), e2b.create(new_spec()), e2b.look("ibox"), e2b.terminal("ibox")):
        with pytest.raises(VendorRefused, match="check E2B_API_KEY"):
            await call


def test_no_server() -> None:
    place = f"http://127.0.0.1:{free_port()}"
    e2b = E2BVendor(Account(api_key="k", api_url=place, sandbox_url=place))
    with pytest.raises(VendorSilent):
        asyncio.run(e2b.check())


@in_loop
async def test_the_account_has_as_many_boxes_as_it_may_have(vendor: VendorServer) -> None:
    vendor.configure(concurrent_sandboxes=1)
    try:
        async with adapter(vendor) as e2b:
            box = await e2b.create(new_spec())
            with pytest.raises(QuotaReached, match="as many running sandboxes"):
                await e2b.create(new_spec())
            await e2b.pause(box.id)
            await e2b.create(new_spec())
            with pytest.raises(QuotaReached):
                await e2b.wake(box.id)
    finally:
        vendor.configure(concurrent_sandboxes=100)


# --- orders ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["lost", "drop"])
def test_an_order_without_an_answer(vendor: VendorServer, kind: str) -> None:
    @in_loop
    async def test(vendor: VendorServer) -> None:
        spec = new_spec()
        vendor.add_fault(Fault.from_json({"match": CREATE, "kind": kind}))
        async with adapter(vendor) as e2b:
            with pytest.raises(VendorSilent):
                await e2b.create(spec)
            found = await e2b.find(spec)
            assert (found is not None) == (kind == "lost")
            made = await e2b.create(spec)
            assert found is None or made.id == found.id
        assert [box.id for box in vendor.boxes()] == [made.id]

    test(vendor)


@in_loop
async def test_an_order_that_takes_too_long(vendor: VendorServer) -> None:
    spec = new_spec()
    vendor.add_fault(Fault(CREATE, "hang", after=True))
    async with adapter(vendor, long_s=0.5) as hasty, adapter(vendor) as e2b:
        with pytest.raises(VendorSilent):
            await hasty.create(spec)
        # the order may still be on its way: its caller has given up
        found = await eventually(lambda: e2b.find(spec), what="the box")
        assert (await e2b.create(spec)).id == found.id
    assert len(vendor.boxes()) == 1


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (500, None, VendorSilent),
        (502, None, VendorSilent),
        (504, None, VendorSilent),
        (503, None, VendorBusy),
        (500, code("sandbox_create_failed"), VendorBusy),
        (504, code("sandbox_placement_timeout"), VendorBusy),
        (500, code("sandbox_create_refused"), ProviderError),
        (409, code("idempotency_in_progress"), VendorSilent),
        (409, {"code": 409, "message": "The request is still in progress"}, VendorSilent),
        (409, code("sandbox_is_dead"), Undecided),
        (409, code("idempotency_request_mismatch"), ProviderError),
        (422, code("idempotency_request_mismatch"), ProviderError),
        (402, None, VendorRefused),
        (429, None, VendorBusy),
        (400, None, ProviderError),
    ],
)
def test_refusals_of_an_order(
    vendor: VendorServer, status: int, body: dict[str, Any] | None, expected: type[ProviderError]
) -> None:
    @in_loop
    async def test(vendor: VendorServer) -> None:
        vendor.add_fault(Fault(CREATE, "status", status=status, body=body))
        arrivals = Arrivals(vendor)
        async with adapter(vendor) as e2b:
            with pytest.raises(expected) as caught:
                await e2b.create(new_spec())
        assert type(caught.value) is expected
        assert arrivals.names() == [CREATE]

    test(vendor)


@in_loop
async def test_an_order_while_the_first_one_is_under_way(vendor: VendorServer) -> None:
    spec = new_spec()
    vendor.configure(create_seconds=0.5)
    try:
        async with adapter(vendor) as one, adapter(vendor) as other:
            first = asyncio.create_task(one.create(spec))
            await asyncio.sleep(0.1)
            second = await patiently(lambda: other.create(spec))
            assert second.id == (await first).id
    finally:
        vendor.configure(create_seconds=0.0)
    assert len(vendor.boxes()) == 1


@in_loop
async def test_the_key_of_a_box_that_has_ended(vendor: VendorServer) -> None:
    """E2B may say only that it does not know, so we ask for a while."""
    spec = new_spec()
    async with adapter(vendor) as e2b:
        box = await e2b.create(spec)
        vendor.delete(box.id)
        with pytest.raises(VendorSilent):
            await e2b.create(spec)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(adapters, "_UNDECIDED_S", 0.0)
            with pytest.raises(BoxGone, match="was made and has ended"):
                await e2b.create(spec)
    assert vendor.boxes() == []


@in_loop
async def test_the_same_key_with_another_order(vendor: VendorServer) -> None:
    spec = new_spec()
    async with adapter(vendor) as e2b:
        await e2b.create(spec)
        with pytest.raises(ProviderError, match="ordered before, with other options"):
            await e2b.create(new_spec(spec.key, options={"timeout": 1000}))


@in_loop
async def test_orders_that_cannot_be_met(vendor: VendorServer) -> None:
    async with adapter(vendor) as e2b:
        with pytest.raises(ProviderError, match=r"'nothing' not found.*have that template"):
            await e2b.create(new_spec(options={"template": "nothing"}))
        with pytest.raises(ProviderError, match="cannot be greater than 24 hours"):
            await e2b.create(new_spec(options={"timeout": 100 * 3600}))


# --- pauses ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [400, 409])
def test_an_engine_that_cannot_save_files_only(vendor: VendorServer, status: int) -> None:
    @in_loop
    async def test(vendor: VendorServer) -> None:
        async with adapter(vendor) as e2b:
            box = await e2b.create(new_spec())
            vendor.add_fault(Fault(PAUSE, "status", status=status, containing="memory"))
            arrivals = Arrivals(vendor)
            await e2b.stop(box.id)
            looks = [LOOK] if status == 409 else []  # it could have been asleep already
            assert arrivals.names() == [PAUSE, *looks, PAUSE]
        assert [it.state for it in vendor.boxes()] == ["paused"]

    test(vendor)


@in_loop
async def test_a_box_that_cannot_be_paused_now(vendor: VendorServer) -> None:
    async with adapter(vendor) as e2b:
        box = await e2b.create(new_spec())
        vendor.add_fault(Fault(PAUSE, "status", status=409))
        with pytest.raises(VendorBusy, match="still running"):
            await e2b.pause(box.id)
        await e2b.pause(box.id)


@in_loop
async def test_a_pause_without_an_answer(vendor: VendorServer) -> None:
    async with adapter(vendor) as e2b:
        box = await e2b.create(new_spec())
        vendor.add_fault(Fault(PAUSE, "lost"))
        await patiently(lambda: e2b.pause(box.id))
    assert [it.state for it in vendor.boxes()] == ["paused"]


@in_loop
async def test_a_box_whose_memory_cannot_be_restored(vendor: VendorServer) -> None:
    async with adapter(vendor) as e2b:
        box = await e2b.create(new_spec())
        await e2b.pause(box.id)
        body = code("sandbox_snapshot_guest_agent_unresponsive")
        vendor.add_fault(Fault(CONNECT, "status", status=409, body=body))
        arrivals = Arrivals(vendor)
        await e2b.wake(box.id)
        assert [call.body for call in arrivals.calls()] == [
            {"timeout": 300},
            {"timeout": 300, "memory": False},
        ]
        vendor.add_fault(Fault(CONNECT, "status", status=409))
        with pytest.raises(VendorBusy):  # it is being removed, for example
            await e2b.wake(box.id)


# --- commands -------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["execute", "terminal"])
def test_failures_inside_a_box(vendor: VendorServer, what: str) -> None:
    @in_loop
    async def test(vendor: VendorServer) -> None:
        async with adapter(vendor) as e2b:
            box = (await e2b.create(new_spec())).id
            for fault, expected in (
                (Fault(START, "lost"), VendorSilent),
                (Fault(START, "drop"), VendorSilent),
                (Fault(START, "status", status=502, message="port is not open"), VendorBusy),
                (Fault(START, "status", status=502, message="bad gateway"), VendorSilent),
                (Fault(START, "status", status=429), VendorBusy),
                (Fault(START, "status", status=500), VendorSilent),
                (Fault(START, "status", status=504), VendorSilent),
                (Fault(START, "status", status=401, times=2), VendorRefused),
                (Fault(START, "status", status=400), ProviderError),
                (Fault(START, "hang", box=box), VendorSilent),
            ):
                vendor.add_fault(fault)
                e2b._control.call_s = 0.5 if fault.kind == "hang" else 30.0
                with pytest.raises(expected) as caught:
                    await used(e2b, box, what)
                assert type(caught.value) is expected, fault
                vendor.clear_faults()

    test(vendor)


async def used(e2b: E2BVendor, box: str, what: str) -> None:
    if what == "execute":
        await e2b.execute(box, "true", timeout_s=e2b._control.call_s)
    else:
        await (await e2b.terminal(box)).close()


@pytest.mark.parametrize("what", ["execute", "terminal"])
def test_a_box_that_vanished_or_fell_asleep(vendor: VendorServer, what: str) -> None:
    """Its proxy gives the same answer for both."""

    @in_loop
    async def test(vendor: VendorServer) -> None:
        async with adapter(vendor) as e2b:
            box = (await e2b.create(new_spec(options={"auto_resume": False}))).id
            vendor.expire(box)
            arrivals = Arrivals(vendor)
            with pytest.raises(BoxAsleep):
                await used(e2b, box, what)
            assert arrivals.names() == [START, LOOK]
            await e2b.wake(box)
            await used(e2b, box, what)
            vendor.delete(box)
            with pytest.raises(NoSuchBox):
                await used(e2b, box, what)

    test(vendor)


@in_loop
async def test_a_box_with_another_token(vendor: VendorServer) -> None:
    """An engine may make a new one when it resumes a box."""
    async with adapter(vendor) as e2b:
        box = await e2b.create(new_spec())
        vendor.add_fault(Fault(START, "status", status=401))
        arrivals = Arrivals(vendor)
        assert await e2b.execute(box.id, "echo hello", timeout_s=30) == "hello\n"
        assert arrivals.names() == [START, CONNECT, START]


@in_loop
async def test_a_command_that_takes_too_long(vendor: VendorServer) -> None:
    async with adapter(vendor) as e2b:
        box = await e2b.create(new_spec())
        with pytest.raises(VendorSilent):
            await e2b.execute(box.id, "echo begun; sleep 1000", timeout_s=0.5)


@in_loop
async def test_a_command_whose_box_is_removed(vendor: VendorServer) -> None:
    for end, option in (("reset", False), ("unavailable", True)):
        vendor.configure(stream_end=end)
        try:
            async with adapter(vendor) as e2b:
                box = await e2b.create(new_spec(options={"auto_resume": option}))
                running = asyncio.create_task(
                    e2b.execute(box.id, "echo >begun; sleep 1000", timeout_s=30)
                )
                while await e2b.execute(box.id, "cat begun || echo no", timeout_s=30) != "\n":
                    pass
                vendor.delete(box.id)
                with pytest.raises(NoSuchBox):
                    await running
        finally:
            vendor.configure(stream_end="reset")


def test_answers_are_read_in_any_form() -> None:
    """Without an answer at hand, the SDK's own text decides."""
    import e2b
    from sandstream_providers.e2b.errors import answer_of, translated, translated_order

    assert answer_of(e2b.SandboxException("x", status_code=500)) == (500, "", "x", None)
    assert isinstance(translated("x", e2b.ServiceBusyException("busy")), VendorBusy)
    assert isinstance(translated("x", e2b.SandboxNotFoundException("gone")), NoSuchBox)
    assert isinstance(translated("x", json.JSONDecodeError("odd", "", 0)), VendorSilent)
    assert type(translated("x", e2b.TemplateException("old"))) is ProviderError
    unknown = e2b.SandboxException("409: outcome is unknown", status_code=409)
    assert isinstance(translated_order("x", unknown), VendorSilent)
