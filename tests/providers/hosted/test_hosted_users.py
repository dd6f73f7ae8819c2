"""Users in hosted boxes: how our processes become root there, and boxes in which they cannot."""

from __future__ import annotations

import pytest
from providers.hosted.accounts import Account, configured, new_op, perform, said
from sandstream_actors.sandbox.user_box import box_of
from sandstream_providers.hosted.errors import NoUsers
from sandstream_providers.interface import Box, ExecSpec, FileWrite, Output, ResolveRule

ADA = {"users": ["ada"]}
ONLY_DAYTONA = pytest.mark.parametrize("account", ["daytona"], indirect=True)
KINDS = pytest.mark.parametrize("agents", [True, False], ids=["agent", "shell"])


async def as_root(box: Box, script: str) -> Output:
    spec = ExecSpec(argv=["sh", "-c", script], cwd=box.root)
    return await box_of(box, "root").run(new_op(), spec)


def test_users_cost_no_further_calls(account: Account) -> None:
    async def story(account: Account) -> None:
        async with account.provider() as provider:
            calls = []
            for options in ({}, ADA):
                arrivals = account.arrivals()
                spec = account.spec(root="/tmp/workspace", options=options)
                await said(await provider.create(spec), "true")
                await provider.delete(spec.key)
                calls.append(sorted(arrivals.names()))
            assert calls[0] == calls[1]

    perform(account, story)


def test_a_box_without_python_has_users(account: Account) -> None:
    async def story(account: Account) -> None:
        async with account.provider(agents=False) as provider:
            box = await provider.create(account.spec(options=ADA))
            assert await said(box, "id -un; id -Gn ada") == "root\nada\n"

    perform(account, story)


@ONLY_DAYTONA
@KINDS
def test_a_box_whose_user_cannot_become_root(account: Account, agents: bool) -> None:
    async def story(account: Account) -> None:
        with configured(account, sudo=False):
            async with account.provider(agents=agents) as provider:
                spec = account.spec(options=ADA)
                with pytest.raises(NoUsers, match="sudo without a password, or leave out users"):
                    await provider.create(spec)
                await provider.delete(spec.key)
                assert account.boxes() == []

    perform(account, story)


@KINDS
def test_root_by_sudo_in_a_box_without_users(account: Account, agents: bool) -> None:
    async def story(account: Account) -> None:
        with configured(account, sudo=True):
            async with account.provider(agents=agents) as provider:
                box = await provider.create(account.spec())
                done = await as_root(box, "id -un; echo $HOME; touch /root/x")
                assert done.stdout == b"root\n/root\n", done
                change = FileWrite(path=f"{box.root}/file", data=b"x")
                rule = ResolveRule(roots=[box.root])
                await box_of(box, "root").change(new_op(), [change], rule)
                assert await said(box, "stat -c %U file; touch own; stat -c %u own; id -u") == (
                    "root\n1000\n1000\n"
                )

    perform(account, story)


def test_another_user_in_a_box_without_users_and_sudo(account: Account) -> None:
    async def story(account: Account) -> None:
        with configured(account, sudo=False):
            async with account.provider() as provider:
                done = await as_root(await provider.create(account.spec()), "id -un")
                assert done.exit_code == 126
                assert b"cannot work as the user root: name it in Manifest.users" in done.stderr

    perform(account, story)
