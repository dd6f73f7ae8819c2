"""Bad days with Daytona: keys, quotas, limits, odd options. Each error says what to do."""

from __future__ import annotations

import asyncio
import email.utils
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from providers.daytona.daytona_boxes import account, configured, in_loop, new_spec, vendor_at
from sandstream_providers.daytona.account import DaytonaAccount, account_of
from sandstream_providers.daytona.doctor import examine
from sandstream_providers.daytona.errors import DaytonaRefused, refusal, retry_after_s
from sandstream_providers.daytona.provider import make_daytona
from sandstream_providers.daytona.vendor import DaytonaVendor
from sandstream_providers.hosted.errors import (
    BoxAsleep,
    NoSuchBox,
    QuotaReached,
    VendorBusy,
    VendorRefused,
    VendorSilent,
)
from sandstream_providers.interface import ProviderError, ProviderUnavailable
from sandstream_providers.registry import Finding, ProviderSettings, Question
from vendors.faults import Fault
from vendors.process import VendorServer

VARIABLES = (
    *("DAYTONA_API_KEY", "DAYTONA_API_URL", "DAYTONA_TARGET"),
    *("DAYTONA_JWT_TOKEN", "DAYTONA_ORGANIZATION_ID"),
)


async def checked(whose: DaytonaAccount) -> dict[str, str]:
    vendor = DaytonaVendor(whose)
    try:
        return await vendor.check()
    finally:
        await vendor.close()


# --- accounts -------------------------------------------------------------------------------------


def test_without_a_key() -> None:
    with pytest.raises(VendorRefused, match="set DAYTONA_API_KEY"):
        asyncio.run(checked(DaytonaAccount()))
    with pytest.raises(VendorRefused, match="set DAYTONA_ORGANIZATION_ID"):
        asyncio.run(checked(DaytonaAccount(jwt_token="token")))


def test_a_wrong_key(server: VendorServer) -> None:
    with pytest.raises(VendorRefused, match="set a valid one in DAYTONA_API_KEY"):
        asyncio.run(checked(account(server, api_key="wrong")))


def test_a_right_key(server: VendorServer) -> None:
    facts = asyncio.run(checked(account(server, target="")))
    assert facts == {"service": server.api_url, "region": "the account's own"}


def test_no_service_there() -> None:
    with pytest.raises(VendorSilent, match="no answer from Daytona"):
        asyncio.run(checked(DaytonaAccount(api_key="key", api_url="http://127.0.0.1:9/api")))


def test_the_environment_names_the_account(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    assert account_of() == DaytonaAccount(api_url="https://app.daytona.io/api")
    for name in VARIABLES:
        monkeypatch.setenv(name, name.lower())
    found = account_of()
    assert found.headers() == {"Authorization": "Bearer daytona_api_key"}
    assert (found.api_url, found.target) == ("daytona_api_url", "daytona_target")
    given = account_of("http://here/api", "key")
    assert (given.api_url, given.api_key) == ("http://here/api", "key")
    monkeypatch.delenv("DAYTONA_API_KEY")
    assert account_of().headers() == {
        "Authorization": "Bearer daytona_jwt_token",
        "X-Daytona-Organization-ID": "daytona_organization_id",
    }


def test_a_key_is_not_shown() -> None:
    shown = repr(DaytonaAccount(api_key="secret", jwt_token="secret"))
    assert "secret" not in shown and "app.daytona.io" in shown


# --- packages -------------------------------------------------------------------------------------


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "daytona_api_client_async", None)
    with pytest.raises(ProviderUnavailable, match=r"pip install 'sandstream\[daytona\]'"):
        asyncio.run(checked(DaytonaAccount(api_key="key")))


def test_the_package_is_imported_on_first_use_only() -> None:
    program = (
        "import sys, sandstream_providers.registry, sandstream_providers.daytona.provider\n"
        "import sandstream_providers.daytona.doctor\n"
        "print([it for it in sys.modules if it.split('_')[0] == 'daytona' or it == 'aiohttp'])"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert ended.stdout == "[]\n"


# --- answers of the vendor ------------------------------------------------------------------------


@in_loop
async def test_an_account_at_its_limit(server: VendorServer) -> None:
    async with vendor_at(server) as vendor:
        with (
            configured(server, max_boxes=(0, None)),
            pytest.raises(QuotaReached, match="limit exceeded"),
        ):
            await vendor.create(new_spec())
        with (
            configured(server, suspended=("Depleted credits", None)),
            pytest.raises(VendorRefused, match="Depleted credits"),
        ):
            await vendor.create(new_spec())
        with pytest.raises(DaytonaRefused, match="Snapshot nothing not found") as refused:
            await vendor.create(new_spec(snapshot="nothing"))
        assert refused.value.status == 400


@in_loop
async def test_a_vendor_that_wants_us_to_wait(server: VendorServer) -> None:
    async with vendor_at(server) as vendor:
        for status, headers, wait_s in (
            (429, {"Retry-After": "7"}, 7.0),
            (429, {"Retry-After-sandbox-create": "9", "X-RateLimit-Limit": "300"}, 9.0),
            (503, {"Retry-After": "2"}, 2.0),
            (500, {}, None),
        ):
            server.add_fault(Fault("POST /sandbox", "status", status=status, headers=headers))
            with pytest.raises(VendorBusy, match="injected by a test") as busy:
                await vendor.create(new_spec())
            assert busy.value.retry_after_s == wait_s
        assert server.boxes() == []


@in_loop
async def test_an_answer_that_cannot_be_read(server: VendorServer) -> None:
    async with vendor_at(server) as vendor:
        server.add_fault(
            Fault("GET /sandbox/{box}", "status", status=200, body={"id": "and nothing else"})
        )
        with pytest.raises(ProviderError, match="its answer cannot be read"):
            await vendor.look("some-box")


QUOTAS = ("Total memory quota exceeded (10)", "Request exceeds the disk limit of the organization")


@pytest.mark.parametrize(
    ("status", "message", "kind"),
    [
        (400, "Bad things", DaytonaRefused),
        (400, "no IP address found. Is the Sandbox started?", BoxAsleep),
        (401, "Invalid credentials", VendorRefused),
        (403, "Forbidden", VendorRefused),
        (403, QUOTAS[0], QuotaReached),
        (400, QUOTAS[1], QuotaReached),
        (403, "CPU request 99 exceeds maximum allowed per sandbox", VendorRefused),
        (404, "Sandbox not found", NoSuchBox),
        (408, "Too slow", VendorSilent),
        (409, "Sandbox state change in progress", VendorBusy),
        (410, "Gone", DaytonaRefused),
        (422, "Unprocessable", DaytonaRefused),
        (429, "Rate limit exceeded", VendorBusy),
        (500, "Oops", VendorBusy),
        (502, "Bad gateway", VendorBusy),
        (504, "Gateway timeout", VendorSilent),
    ],
)
def test_each_status_has_a_meaning(status: int, message: str, kind: type[ProviderError]) -> None:
    body = f'{{"statusCode": {status}, "message": "{message}"}}'
    found = refusal("do it", status, body, {}, repeatable=True)
    assert type(found) is kind or (kind is VendorBusy and isinstance(found, VendorBusy))
    assert f"Daytona cannot do it: {message}" in str(found)


def test_bodies_of_refusals() -> None:
    def text(body: str) -> str:
        return str(refusal("do it", 418, body, {}, repeatable=True))

    assert text('{"message": ["a is wrong", "b is wrong"]}').endswith(": a is wrong, b is wrong")
    assert text('{"error": "teapot"}').endswith(": teapot")
    assert text("<html>\n teapot</html>").endswith(": <html> teapot</html>")
    assert text("").endswith(": HTTP status 418")
    assert text("[1]").endswith(": HTTP status 418")


def test_times_to_wait() -> None:
    assert retry_after_s({}) is None
    assert retry_after_s({"retry-after": "1.5"}) == 1.5
    assert retry_after_s({"Retry-After": "5", "Retry-After-general": "60"}) == 60.0
    assert retry_after_s({"Retry-After": "soon"}) is None
    date = email.utils.formatdate(time.time() + 100, usegmt=True)
    wait_s = retry_after_s({"Retry-After": date})
    assert wait_s is not None and 90 < wait_s <= 100
    assert retry_after_s({"Retry-After": email.utils.formatdate(0, usegmt=True)}) == 0.0


# --- options --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"colour": "red"}, "no option 'colour'; it has: image, snapshot"),
        ({"image": 7}, "is wrong"),
        ({"image": "a", "snapshot": "b"}, "not both"),
        ({"image": "a\nRUN b"}, "not the name of an image"),
        ({"resources": {"cpu": 1}}, "only with an image"),
        ({"image": "a", "resources": {"cpu": 0}}, "is wrong"),
        ({"image": "a", "resources": {"gpu": 1}}, "is wrong"),
        ({"auto_stop_interval": -1}, "is wrong"),
        ({"url_ttl_s": 90_000}, "is wrong"),
        ({"labels": {"sandstream.owner": "me"}}, "not free"),
    ],
)
def test_options_that_are_refused(options: dict[str, Any], message: str) -> None:
    async def run() -> None:
        with pytest.raises(ProviderError, match=message):
            DaytonaVendor(DaytonaAccount()).check_options(new_spec(**options))

    asyncio.run(run())


# --- provider and doctor --------------------------------------------------------------------------


def test_the_provider_uses_the_account(tmp_path: Path, server: VendorServer) -> None:
    async def run() -> None:
        settings = ProviderSettings(home=tmp_path, endpoint=server.api_url, api_key=server.api_key)
        host = make_daytona(settings)
        try:
            assert host.name == "daytona"
            assert (await host.check())["service"] == server.api_url
        finally:
            await host.close()

    asyncio.run(run())


def found(**settings: Any) -> Finding:
    question = Question(settings=ProviderSettings(home=Path("unused"), **settings))
    [finding] = asyncio.run(examine(question))
    return finding


def test_what_doctor_says(server: VendorServer, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    unused = found()
    assert unused.state == "ok" and "DAYTONA_API_KEY" in unused.found
    asked_for = found(endpoint=server.api_url)
    assert asked_for.state == "problem" and "DAYTONA_API_KEY" in asked_for.todo
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "daytona_api_client_async", None)
        missing = found(endpoint=server.api_url, api_key=server.api_key)
    assert missing.state == "problem" and "pip install" in missing.todo
    right = found(endpoint=server.api_url, api_key=server.api_key)
    assert right.state == "ok" and server.api_url in right.found
    monkeypatch.setenv("DAYTONA_API_KEY", "wrong")
    wrong = found(endpoint=server.api_url)
    assert wrong.state == "problem" and "valid" in wrong.todo
    silent = found(endpoint="http://127.0.0.1:9/api")
    assert silent.state == "warning" and "no answer" in silent.todo
