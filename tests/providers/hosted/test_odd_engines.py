"""Engines that know less than the vendor, boxes without a usable Python, and boxes of others."""

from __future__ import annotations

import base64

import msgspec
import pytest
from providers.hosted.accounts import Account, in_loop, perform, said, works
from sandstream_providers.hosted.vendor import KEY, OWNER
from sandstream_providers.interface import ProviderError

E2B = pytest.mark.parametrize("account", ["e2b"], indirect=True)
HOME = {"daytona": "/home/daytona", "e2b": "/home/user"}
PROFILES = (".profile", ".bashrc", ".bash_profile", ".zshrc")
PYTHONS = {
    "silent": "exit 0",
    "talkative": "echo Python was not found",
    "without-parts": """
case "$*" in *background*) A=$3; shift 4
exec /usr/bin/python3 -I -S -c 'import sys
sys.modules["select"] = None
sys.argv = sys.argv[1:]
sys.path.insert(0, sys.argv[0])
exec(__import__("zipfile").ZipFile(sys.argv[0]).read("__main__.py"))' "$A" background "$@" ;;
esac
exec /usr/bin/python3 "$@" """,
}
"""Programs that are called python3: one does nothing, one only tells what to install, and one has
a library without a part that the agent needs.
"""


@E2B
@pytest.mark.parametrize("settings", [{"idempotency": False}, {"metadata_filter": False}, None])
def test_an_engine_that_ignores_keys_or_filters(
    account: Account, settings: dict[str, bool] | None
) -> None:
    async def story(account: Account) -> None:
        foreign = account.make_foreign("", {"mine": "yes"})
        account.server.configure(**(settings or {"idempotency": False, "metadata_filter": False}))
        async with account.provider() as provider:
            spec = account.spec()
            account.fault("create", "lost")
            await provider.create(spec)
            await works(provider, spec.key)
            (info,) = await provider.list_owned(account.owner)
            assert {box.id for box in account.boxes()} == {foreign, info.vendor_id}
            await provider.delete(spec.key)
            assert account.only_box().id == foreign

    perform(account, story)


@in_loop
async def test_a_list_with_boxes_of_others(account: Account) -> None:
    """An engine that lists all boxes whatever we ask for: we must not remove those of others."""
    ignored = {"daytona": "label_filter", "e2b": "metadata_filter"}[account.name]
    account.server.configure(**{ignored: False})
    account.make_foreign("other", {KEY: "other", OWNER: "other"})
    async with account.provider() as provider:
        spec = account.spec()
        await provider.create(spec)
        infos = await provider.list_owned(account.owner)
        assert [info.key for info in infos] == [spec.key]


@in_loop
async def test_an_engine_without_terminals(account: Account) -> None:
    """Scripts do the work then. The refused call is not repeated until our patience ends."""
    if account.name == "daytona":
        account.fault("terminal", "status", status=404, times=None)
    else:
        unknown = {"code": "unimplemented", "message": "no terminals here"}
        account.fault("terminal", "status", status=501, body=unknown, containing="pty", times=None)
    async with account.provider() as provider:
        spec = account.spec()
        seen = account.arrivals()
        box = await provider.create(spec)
        assert await said(box, "echo kept > file") == ""
        assert [call.fault for call in seen.calls() if call.fault] == ["status"]
        assert seen.count("exec") > 1
        await provider.pause(spec.key)
        found = await provider.get(spec.key)
        assert found is not None and await said(found, "cat file") == "kept\n"


@E2B
def test_an_engine_that_answers_conflict_to_an_order_under_way(account: Account) -> None:
    """It does not say why. That must not be taken for the end of the box, or there are two."""

    async def story(account: Account) -> None:
        account.fault("create", "status", status=409, after=True)
        async with account.provider() as provider:
            spec = account.spec()
            await provider.create(spec)
            await works(provider, spec.key)
            assert len(account.boxes()) == 1

    perform(account, story)


@E2B
def test_two_boxes_of_one_key(account: Account) -> None:
    """An engine without keys whose list lags: the box in use is kept, by every process."""

    async def story(account: Account) -> None:
        account.server.configure(idempotency=False, list_lag_s=1.5)
        spec = account.spec()
        async with account.provider() as provider:
            account.fault("create", "lost")
            box = await provider.create(spec)
            used = box.vendor_id  # type: ignore[attr-defined]
            assert len(account.boxes()) == 2
            assert await said(box, "echo kept > file") == ""
            account.server.configure(list_lag_s=0.0)
            infos = await provider.list_owned(account.owner)
            assert [info.vendor_id for info in infos if info.key == spec.key] == [used]
        async with account.provider() as reaper:  # learns of the log after the list
            infos = await reaper.list_owned(account.owner)
            reaper.recall(spec, used)
            for info in infos:
                if info.key != spec.key:
                    await reaper.delete(info.key)
            assert used in [it.id for it in account.boxes()]
            for info in await reaper.list_owned(account.owner):
                if info.key != spec.key:
                    await reaper.delete(info.key)
            assert account.only_box().id == used
            found = await reaper.get(spec.key)
            assert found is not None and await said(found, "cat file") == "kept\n"

    perform(account, story)


@in_loop
async def test_a_box_without_python(account: Account) -> None:
    options = {} if account.name == "daytona" else {"template": "no-python"}
    if account.name == "daytona":
        account.server.configure(python=False)
    async with account.provider() as provider:
        spec = account.spec(options=options)
        box = await provider.create(spec)
        seen = account.arrivals()
        assert await said(box, "echo kept > file; cat file") == "kept\n"
        assert 1 <= seen.count("exec") <= 2
        await provider.pause(spec.key)
        found = await provider.get(spec.key)
        assert found is not None and await said(found, "cat file") == "kept\n"


@pytest.mark.parametrize("python", sorted(PYTHONS))
def test_a_box_with_a_broken_python(account: Account, python: str) -> None:
    """Scripts do the work then."""

    async def story(account: Account) -> None:
        home = HOME[account.name]
        place = f"{home}/bin"
        spec = account.spec(root=f"{home}/work")
        async with account.provider() as provider:
            vendor = provider.host.vendor  # type: ignore[attr-defined]
            made = await vendor.create(spec)
            program = base64.b64encode(f"#!/bin/sh\n{PYTHONS[python]}\n".encode()).decode()
            lines = [
                f"mkdir -p {place}",
                f"echo {program} | base64 -d > {place}/python3",
                f"chmod +x {place}/python3; cp {place}/python3 {place}/python",
                *(f"echo PATH={place}:/usr/bin:/bin > {home}/{it}" for it in PROFILES),
            ]
            await vendor.execute(made.id, "; ".join(lines), timeout_s=20)
            box = await provider.create(msgspec.structs.replace(spec, may_exist=True))
            seen = account.arrivals()
            assert await said(box, "echo fine") == "fine\n"
            assert seen.count("exec") >= 1, "the box has no agent"
            assert account.only_box().id == made.id

    perform(account, story)


@pytest.mark.parametrize("account", ["daytona"], indirect=True)
def test_a_name_that_another_box_has(account: Account) -> None:
    """Only this vendor has names. The other box is not touched, and ours can be given up."""

    async def story(account: Account) -> None:
        foreign = account.make_foreign("build", {"team": "blue"})
        async with account.provider() as provider:
            spec = account.spec(options={"name": "build"})
            with pytest.raises(ProviderError, match="another sandbox with the name 'build'"):
                await provider.create(spec)
            await provider.delete(spec.key)
            assert await provider.get(spec.key) is None
            assert await provider.list_owned(account.owner) == []
            assert account.only_box().id == foreign
            again = account.spec(spec.key, options={"name": "build"}, labels={"generation": "2"})
            await provider.create(again)
            assert sorted(box.name or "" for box in account.boxes()) == ["build", "build-2"]

    perform(account, story)


@pytest.mark.parametrize("labels", [{}, {KEY: "other"}, {KEY: "{key}", OWNER: "other"}])
def test_a_box_that_only_looks_like_ours(account: Account, labels: dict[str, str]) -> None:
    """It has our name, and labels that are not those of the box that we ask for."""

    async def story(account: Account) -> None:
        spec = account.spec(may_exist=True)
        forged = {name: value.format(key=spec.key) for name, value in labels.items()}
        foreign = account.make_foreign(spec.key, forged)
        async with account.provider() as provider:
            if account.name == "daytona":
                with pytest.raises(ProviderError, match="another sandbox with the name"):
                    await provider.create(spec)
            else:
                await provider.create(spec)
                await works(provider, spec.key)
            await provider.delete(spec.key)
            assert account.only_box().id == foreign

    perform(account, story)


@in_loop
async def test_a_box_with_forged_labels_does_not_take_the_place_of_ours(account: Account) -> None:
    """It is older and has our key and owner. Ours is used, and the other is listed as a copy."""
    spec = account.spec()
    labels = {KEY: spec.key, OWNER: account.owner, "sandstream.sandbox": "../odd > name"}
    forged = account.make_foreign("older", labels)
    async with account.provider() as provider:
        box = await provider.create(spec)
        used = box.vendor_id  # type: ignore[attr-defined]
        assert used != forged
        infos = {info.vendor_id: info.key for info in await provider.list_owned(account.owner)}
        assert infos == {used: spec.key, forged: f"copy-of-{forged}"}
        await works(provider, spec.key)
        await provider.delete(infos[forged])
        assert account.only_box().id == used


@pytest.mark.parametrize("ahead_s", [-86_400.0, 86_400.0], ids=["behind", "ahead"])
def test_a_vendor_whose_clock_is_wrong(account: Account, ahead_s: float) -> None:
    """No box is found or kept by its time of creation."""

    async def story(account: Account) -> None:
        account.server.configure(clock_ahead_s=ahead_s)
        spec = account.spec()
        async with account.provider() as provider:
            account.fault("create", "lost")
            await provider.create(spec)
            await works(provider, spec.key)
        async with account.provider() as second:
            box = await second.create(msgspec.structs.replace(spec, may_exist=True))
            assert await said(box, "echo kept > file") == ""
            (info,) = await second.list_owned(account.owner)
            assert info.key == spec.key
            await second.pause(spec.key)
            found = await second.get(spec.key)
            assert found is not None and await said(found, "cat file") == "kept\n"
            assert len(account.boxes()) == 1

    perform(account, story)
