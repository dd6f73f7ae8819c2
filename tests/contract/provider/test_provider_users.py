"""Boxes with users and groups of their own: our processes in them are root."""

from __future__ import annotations

from typing import Any

import pytest
from contract.stage import Stage, new_op, said, sh
from sandstream_providers.interface import FileWrite, ProviderError, ResolveRule

pytestmark = pytest.mark.needs("users")
ACCOUNTS = {"users": ["ada", "bob"], "groups": {"team": ["ada", "bob"], "staff-2": ["bob"]}}


def test_accounts_are_made(stage: Stage) -> None:
    async def story() -> None:
        async with stage.fresh(options=ACCOUNTS) as box:
            assert await said(box, "id -un; id -Gn ada; id -Gn bob") == (
                "root\nada team\nbob team staff-2\n"
            )
            numbers = (await said(box, "id -u ada; id -u bob")).split()
            assert len({"0", *numbers}) == 3
            assert await said(box, "cut -d: -f1 /etc/passwd | sort | uniq -d") == ""
            assert await said(box, 'stat -c "%a %u %g" .') == "777 0 0\n"

    stage.run(story())


def test_files_belong_to_root_until_they_are_given_away(stage: Stage) -> None:
    async def story() -> None:
        async with stage.fresh(options=ACCOUNTS) as box:
            change = FileWrite(path=f"{box.root}/file", data=b"x", mode=0o640)
            await box.change(new_op(), [change], ResolveRule(roots=[box.root]))
            assert await said(box, "stat -c '%a %U %G' file") == "640 root root\n"
            assert await said(box, "chown ada:team file; stat -c '%U %G' file") == "ada team\n"

    stage.run(story())


def test_accounts_outlive_a_stop_and_are_not_made_twice(stage: Stage) -> None:
    async def story() -> None:
        spec = stage.spec(options=ACCOUNTS)
        box = await stage.provider.create(spec)
        try:
            await said(box, "touch file; chown bob:team file; chmod 700 .")
            before = await said(box, "cat /etc/passwd /etc/group")
            await stage.provider.stop(spec.key)
            again = await stage.provider.get(spec.key)
            assert again is not None
            shown = "cat /etc/passwd /etc/group; stat -c '%U %G' file; stat -c %a ."
            assert await said(again, shown) == f"{before}bob team\n700\n"
        finally:
            await stage.provider.delete(spec.key)

    stage.run(story())


@pytest.mark.parametrize("name", ["", "-x", "Ada", "a:b", "a b", "../x", "x" * 33])
def test_names_that_no_system_takes(stage: Stage, name: str) -> None:
    async def story() -> None:
        wrong: tuple[dict[str, Any], ...] = (
            {"users": [name]},
            {"groups": {name: []}},
            {"groups": {"g": [name]}},
        )
        for options in wrong:
            with pytest.raises(ProviderError, match="not a name for a user or a group"):
                async with stage.fresh(options=options) as box:
                    await sh(box, "true")

    stage.run(story())
