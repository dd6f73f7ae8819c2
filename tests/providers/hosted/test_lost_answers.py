"""An answer is lost, or a call: there is one box, and each effect happens once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from providers.hosted.accounts import Account, perform, run, said, works
from sandstream_providers.agent_provider import AgentProvider
from sandstream_providers.interface import BoxSpec
from vendors.faults import Fault, Kind

Act = Callable[[AgentProvider, BoxSpec], Awaitable[None]]
KINDS = pytest.mark.parametrize("kind", ["lost", "drop"])


async def _list(provider: AgentProvider, spec: BoxSpec) -> None:
    (found,) = await provider.list_owned(spec.labels["owner"])
    assert found.key == spec.key


async def _get(provider: AgentProvider, spec: BoxSpec) -> None:
    assert await provider.get(spec.key) is not None


async def _delete(provider: AgentProvider, spec: BoxSpec) -> None:
    await provider.delete(spec.key)


async def _pause(provider: AgentProvider, spec: BoxSpec) -> None:
    await provider.pause(spec.key)


async def _stop(provider: AgentProvider, spec: BoxSpec) -> None:
    await provider.stop(spec.key)


LATER: dict[str, Act] = {
    "look": _get,
    "wake": _get,
    "pause": _pause,
    "stop": _stop,
    "list": _list,
    "delete": _delete,
}
"""What a host does with a box that exists."""


@KINDS
def test_a_box_is_made_once(account: Account, kind: str) -> None:
    async def story(account: Account) -> None:
        async with account.provider() as provider:
            spec = account.spec()
            account.fault("create", kind)
            seen = account.arrivals()
            await provider.create(spec)
            assert seen.calls()[0].fault == kind
            await works(provider, spec.key)
            (info,) = await provider.list_owned(account.owner)
            assert info.vendor_id == account.only_box().id

    perform(account, story)


def test_a_maker_that_dies_before_the_answer(account: Account) -> None:
    """Another process looks for the box before it makes one."""

    async def story(account: Account) -> None:
        spec = account.spec()
        async with account.provider() as first:
            await first.create(spec)
        made = account.only_box().id
        again = account.spec(spec.key, may_exist=True)
        async with account.provider() as second:
            seen = account.arrivals()
            await second.create(again)
            assert seen.count("create") == 0
            await works(second, spec.key)
            assert account.only_box().id == made

    perform(account, story)


@KINDS
def test_calls_about_a_box(account: Account, kind: str) -> None:
    """One after the other, about the same box."""

    async def story(account: Account) -> None:
        async with account.provider() as provider:
            spec = account.spec()
            box = await provider.create(spec)
            assert await said(box, "echo kept > file; cat file") == "kept\n"
            made = account.only_box().id
            for operation, act in LATER.items():
                if operation in ("look", "wake"):
                    await provider.pause(spec.key)
                account.fault(operation, kind)
                seen = account.arrivals()
                await act(provider, spec)
                assert [call.fault for call in seen.calls() if call.fault] == [kind], operation
                if operation == "delete":
                    continue
                assert account.only_box().id == made
                assert bool(account.awake()) == (operation not in ("pause", "stop")), operation
                found = await provider.get(spec.key)
                assert found is not None and await said(found, "cat file") == "kept\n"
            assert account.boxes() == []

    perform(account, story)


@KINDS
@pytest.mark.parametrize("agents", [True, False], ids=["terminal", "exec"])
def test_the_first_contact_with_a_box(account: Account, agents: bool, kind: str) -> None:
    async def story(account: Account) -> None:
        async with account.provider(agents=agents) as provider:
            spec = account.spec()
            account.fault("terminal" if agents else "exec", kind)
            seen = account.arrivals()
            await provider.create(spec)
            assert kind in [call.fault for call in seen.calls()]
            assert (seen.count("create"), len(account.boxes())) == (1, 1)
            await works(provider, spec.key)

    perform(account, story)


@KINDS
def test_a_command_without_an_agent_runs_once(account: Account, kind: str) -> None:
    async def story(account: Account) -> None:
        async with account.provider(agents=False) as provider:
            box = await provider.create(account.spec())
            for number in range(3):
                account.fault("exec", kind)
                done = await run(box, f"echo {number} | tee -a effects")
                assert (done.state, done.stdout) == ("exited", b"%d\n" % number)
            account.server.clear_faults()
            assert await said(box, "cat effects") == "0\n1\n2\n"

    perform(account, story)


@KINDS
@pytest.mark.parametrize("account", ["e2b"], indirect=True)
def test_input_to_the_agent_arrives_once(account: Account, kind: Kind) -> None:
    """At E2B each message to the agent is a call of its own."""

    async def story(account: Account) -> None:
        async with account.provider() as provider:
            box = await provider.create(account.spec())
            account.server.add_fault(Fault("POST /process.Process/SendInput", kind))
            assert await said(box, "echo once | tee -a effects") == "once\n"
            assert await said(box, "cat effects") == "once\n"

    perform(account, story)
