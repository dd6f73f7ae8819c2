"""The E2B adapter at a local E2B: orders, life and commands, and how many calls each costs."""

from __future__ import annotations

import asyncio
import http.client
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from providers.e2b.e2b_vendors import OWNER, Arrivals, adapter, free_port, new_spec
from sandstream_providers.e2b import control, knowledge
from sandstream_providers.e2b.account import Account, account_of
from sandstream_providers.e2b.doctor import examine
from sandstream_providers.e2b.options import idempotency_key
from sandstream_providers.e2b.vendor import E2BVendor
from sandstream_providers.hosted.errors import BoxAsleep, NoRoot, NoSuchBox, VendorRefused
from sandstream_providers.hosted.vendor import KEY
from sandstream_providers.interface import ProviderError, ProviderUnavailable
from sandstream_providers.registry import Finding, ProviderSettings, Question
from support.waiting import until
from vendors.e2b_boxes import in_loop
from vendors.process import VendorServer

CREATE, LIST = "POST /v2/sandboxes", "GET /v2/sandboxes"
LOOK, KILL = "GET /sandboxes/{box}", "DELETE /sandboxes/{box}"
CONNECT, PAUSE = "POST /v2/sandboxes/{box}/connect", "POST /sandboxes/{box}/pause"
KEEP, START = "POST /sandboxes/{box}/timeout", "POST /process.Process/Start"
SIGNAL = "POST /process.Process/SendSignal"

# --- the package and the account ------------------------------------------------------------------


def test_the_sdk_is_not_imported_before_it_is_used() -> None:
    program = """
import sys
from pathlib import Path
import sandstream_providers.registry, sandstream_providers.e2b.doctor
from sandstream_providers.e2b.provider import make_e2b
host = make_e2b(sandstream_providers.registry.ProviderSettings(home=Path('/nowhere')))
assert (host.name, host.vendor.label) == ('e2b', 'E2B')
print(sorted({'e2b', 'httpx', 'protobuf'} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.stdout.strip(), done.stderr) == ("[]", "")


def test_without_a_key() -> None:
    made = E2BVendor(Account())
    with pytest.raises(VendorRefused, match="set E2B_API_KEY"):
        asyncio.run(made.check())


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "e2b", None)
    with pytest.raises(ProviderUnavailable, match=r"pip install 'sandstream\[e2b\]'"):
        asyncio.run(E2BVendor(Account(api_key="k")).check())


def test_with_an_old_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "LEAST_VERSION", (99, 0))
    with pytest.raises(ProviderUnavailable, match=r"must be 99\.0 or newer"):
        asyncio.run(E2BVendor(Account(api_key="k")).check())


@pytest.mark.parametrize(
    ("endpoint", "environment", "expected"),
    [
        ("", {}, Account()),
        ("", {"E2B_API_KEY": "k"}, Account(api_key="k")),
        (
            "",
            {
                "E2B_API_URL": "https://e.org/",
                "E2B_DOMAIN": "b.org",
                "E2B_SANDBOX_URL": "https://s",
            },
            Account(api_url="https://e.org", domain="b.org", sandbox_url="https://s"),
        ),
        ("boxes.org", {"E2B_API_URL": "https://e.org"}, Account(domain="boxes.org")),
        (
            "https://api.boxes.org",
            {"E2B_API_URL": "https://e.org", "E2B_DOMAIN": "boxes.org"},
            Account(api_url="https://api.boxes.org", domain="boxes.org"),
        ),
        (
            "http://127.0.0.1:3000",
            {},
            Account(api_url="http://127.0.0.1:3000", sandbox_url="http://127.0.0.1:3000"),
        ),
    ],
)
def test_settings_are_stronger_than_the_environment(
    endpoint: str, environment: dict[str, str], expected: Account
) -> None:
    assert account_of(endpoint, environment=environment) == expected


def test_no_text_shows_the_key() -> None:
    assert "secret" not in repr(Account(api_key="secret", domain="boxes.org"))


def findings(endpoint: str = "") -> list[Finding]:
    settings = ProviderSettings(home=Path("/nowhere"), endpoint=endpoint)
    return asyncio.run(examine(Question(settings=settings)))


def test_doctor(vendor: VendorServer, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("E2B_API_KEY", "E2B_API_URL", "E2B_DOMAIN", "E2B_SANDBOX_URL"):
        monkeypatch.delenv(name, raising=False)
    assert findings() == [
        Finding(name="e2b", state="ok", found="not in use: E2B_API_KEY is not set")
    ]

    [found] = findings(vendor.api_url)
    assert found.state == "problem" and "set E2B_API_KEY" in found.todo

    monkeypatch.setenv("E2B_API_KEY", "wrong")
    [found] = findings(vendor.api_url)
    assert found.state == "problem" and "check E2B_API_KEY" in found.todo

    monkeypatch.setenv("E2B_API_KEY", vendor.api_key)
    [found] = findings(vendor.api_url)
    assert (found.state, found.found) == ("ok", f"{vendor.api_url} takes our key")

    [found] = findings(f"http://127.0.0.1:{free_port()}")
    assert found.state == "warning" and "does not answer" in found.found


# --- options --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"image": "python"}, "no option 'image'; it has: .*template"),
        ({"timeout": "long"}, r"wrong: .*timeout"),
        ({"timeout": 0}, r"wrong: .*timeout"),
        ({"on_timeout": "stop"}, r"wrong: .*on_timeout"),
        ({"sandbox_type": "modal"}, r"wrong: .*sandbox_type"),
        ({"metadata": {"a": 1}}, r"wrong: .*metadata"),
    ],
)
def test_wrong_options(options: dict[str, object], text: str) -> None:
    with pytest.raises(ProviderError, match=text):
        E2BVendor(Account()).check_options(new_spec(options=options))


def test_keys_that_e2b_does_not_take() -> None:
    assert idempotency_key("ss-abc234") == "ss-abc234"
    odd = [idempotency_key(it) for it in ("A_b.c", "a_b.c", "ab.c")]
    assert len(set(odd)) == 3
    assert all(it.isalnum() and it.islower() and len(it) <= 255 for it in odd)


@in_loop
async def test_an_order_says_all_that_was_asked_for(vendor: VendorServer) -> None:
    arrivals = Arrivals(vendor)
    plain = new_spec("ss-plain", env={"TOKEN": "hunter2"})
    chosen = new_spec(
        "ss-chosen",
        network="none",
        options={
            "sandbox_type": "e2b_code_interpreter",
            "timeout": 1000,
            "on_timeout": "kill",
            "auto_resume": True,
            "metadata": {"team": "blue", KEY: "forged"},
            "secure": True,
            "workspace_persistence": "tar",
            "allow_internet_access": True,
        },
    )
    named = new_spec("ss-named", options={"template": "no-python", "allow_internet_access": False})
    async with adapter(vendor) as e2b:
        for spec in (plain, chosen, named):
            e2b.check_options(spec)
            await e2b.create(spec)
    bodies = [call.body for call in arrivals.calls()]
    ours = {"sandstream.owner": OWNER, "sandstream.generation": "1", "sandstream.run": "run-1"}
    assert bodies[0] == {
        "templateID": "base",
        "timeout": 300,
        "autoPause": True,
        "autoResume": {"enabled": True},
        "metadata": {
            **ours,
            "sandstream.key": "ss-plain",
            "sandstream.sandbox": "sandbox of ss-plain",
            "sandstream-timeout": "300",
        },
        "envVars": {},
    }
    assert bodies[1] == {
        "templateID": "code-interpreter-v1",
        "timeout": 1000,
        "autoPause": False,
        "metadata": {
            **ours,
            "team": "blue",
            "sandstream.key": "ss-chosen",
            "sandstream.sandbox": "sandbox of ss-chosen",
            "sandstream-timeout": "1000",
        },
        "envVars": {},
        "allow_internet_access": False,
    }
    assert bodies[2]["templateID"] == "no-python"
    assert bodies[2]["allow_internet_access"] is False


@in_loop
async def test_an_mcp_gateway_that_does_not_start(vendor: VendorServer) -> None:
    spec = new_spec(options={"template": "base", "mcp": {"exa": {"apiKey": "k"}}})
    async with adapter(vendor) as e2b:
        with pytest.raises(ProviderError, match="MCP gateway") as caught:
            await e2b.create(spec)
    assert not getattr(caught.value, "retryable", True)
    assert vendor.boxes() == []


# --- one box for a key ----------------------------------------------------------------------------


@in_loop
async def test_the_same_order_again_is_the_same_box(vendor: VendorServer) -> None:
    spec = new_spec()
    async with adapter(vendor) as one, adapter(vendor) as other:
        first, second = await one.create(spec), await other.create(spec)
        assert first.id == second.id == (await other.create(spec)).id
    assert len(vendor.boxes()) == 1


@in_loop
async def test_an_engine_that_ignores_keys(vendor: VendorServer) -> None:
    """Only the oldest box of a key stays, and boxes of other keys and owners are left alone."""
    spec = new_spec()
    vendor.configure(idempotency=False)
    try:
        async with adapter(vendor) as e2b, adapter(vendor) as later:
            first = await e2b.create(spec)
            copies = {(await e2b.create(spec)).id for _ in range(2)}
            others = {
                (await e2b.create(new_spec())).id,
                (await e2b.create(new_spec(spec.key, owner="another"))).id,
            }
            arrivals = Arrivals(vendor)
            found = await later.find(spec)
            assert found is not None and found.id == first.id
            assert arrivals.names() == [LIST, KILL, KILL]
            assert {box.id for box in vendor.boxes()} == {first.id} | others
            assert not copies & others
    finally:
        vendor.configure(idempotency=True)


@in_loop
async def test_boxes_are_found_in_any_state(vendor: VendorServer) -> None:
    odd = "größe &=%2F/+?#\"' [x]"
    async with adapter(vendor) as e2b, adapter(vendor) as later:
        spec = new_spec(owner=odd)
        assert await e2b.find(spec) is None
        made = await e2b.create(spec)
        other = await e2b.create(new_spec(owner=odd))
        await e2b.create(new_spec())
        await e2b.pause(made.id)
        found = await later.find(spec)
        assert found is not None
        assert (found.id, found.state, found.name) == (made.id, "paused", spec.key)
        assert found.labels == made.labels and abs(found.created_at - made.created_at) < 60
        listed = {box.id: box.state for box in await later.list(odd)}
        assert listed == {made.id: "paused", other.id: "running"}


@in_loop
async def test_lists_have_pages(vendor: VendorServer) -> None:
    async with adapter(vendor) as e2b:
        made = {(await e2b.create(new_spec())).id for _ in range(3)}
        arrivals = Arrivals(vendor)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(control, "_PAGE", 1)
            assert {box.id for box in await e2b.list(OWNER)} == made
        assert arrivals.names() == [LIST] * 3


# --- calls ----------------------------------------------------------------------------------------


@in_loop
async def test_what_each_operation_costs(vendor: VendorServer) -> None:
    spec = new_spec()
    async with adapter(vendor) as e2b:
        arrivals = Arrivals(vendor)
        await e2b.check()
        assert arrivals.names() == [LIST]
        box = await e2b.create(spec)
        assert arrivals.names() == [CREATE]
        assert await e2b.execute(box.id, "echo hello", timeout_s=30) == "hello\n"
        assert arrivals.names() == [START]
        terminal = await e2b.terminal(box.id)
        await terminal.close()
        assert arrivals.names() == [START, SIGNAL]
        await e2b.find(spec)
        assert arrivals.names() == [LIST]
        await e2b.look(box.id)
        assert arrivals.names() == [LOOK]
        await e2b.keep(box.id)
        await e2b.address(box.id, 8000, {})
        assert arrivals.names() == []
        await e2b.pause(box.id)
        assert arrivals.names() == [PAUSE]
        await e2b.wake(box.id)
        assert arrivals.names() == [CONNECT]
        await e2b.execute(box.id, "true", timeout_s=30)
        assert arrivals.names() == [START]
        await e2b.stop(box.id)
        assert arrivals.names() == [PAUSE]
        await e2b.wake(box.id)
        await e2b.delete(box.id)
        assert arrivals.names() == [CONNECT, KILL]


@in_loop
async def test_what_a_process_pays_that_did_not_make_the_box(vendor: VendorServer) -> None:
    async with adapter(vendor) as maker:
        box = await maker.create(new_spec())
    arrivals = Arrivals(vendor)
    async with adapter(vendor) as other:
        await other.execute(box.id, "true", timeout_s=30)
        assert arrivals.names() == [LOOK, CONNECT, START]
        await other.execute(box.id, "true", timeout_s=30)
        assert arrivals.names() == [START]
    async with adapter(vendor) as other:  # a host looks first: that is not done again
        await other.look(box.id)
        await (await other.terminal(box.id)).close()
        assert arrivals.names() == [LOOK, CONNECT, START, SIGNAL]
    async with adapter(vendor) as other:
        assert (await other.address(box.id, 80, {})).host == f"80-{box.id}.localhost"
        assert arrivals.names() == [LOOK]


# --- life -----------------------------------------------------------------------------------------


@in_loop
async def test_a_box_sleeps_and_wakes(vendor: VendorServer) -> None:
    async with adapter(vendor) as e2b, adapter(vendor) as other:
        box = await e2b.create(new_spec())
        start = "(sleep 1000 & echo $! >pid) >/dev/null 2>&1; echo kept >file"
        await e2b.execute(box.id, start, timeout_s=30)
        alive = "cat file; kill -0 $(cat pid) && echo alive"

        await e2b.pause(box.id)
        await e2b.pause(box.id)  # asleep already
        seen = await other.look(box.id)
        assert seen is not None and seen.state == "paused"
        for vendor_of in (e2b, other):
            with pytest.raises(BoxAsleep):
                await vendor_of.execute(box.id, "true", timeout_s=30)
            with pytest.raises(BoxAsleep):
                await vendor_of.terminal(box.id)
        await other.wake(box.id)
        await other.wake(box.id)  # awake already
        assert await e2b.execute(box.id, alive, timeout_s=30) == "kept\nalive\n"

        await e2b.stop(box.id)
        await e2b.stop(box.id)
        await e2b.wake(box.id)
        assert await e2b.execute(box.id, alive, timeout_s=30) == "kept\n"


@in_loop
async def test_a_box_that_is_gone(vendor: VendorServer) -> None:
    async with adapter(vendor) as e2b:
        spec = new_spec()
        box = await e2b.create(spec)
        vendor.delete(box.id)
        assert await e2b.find(spec) is None
        with pytest.raises(NoSuchBox):
            await e2b.execute(box.id, "true", timeout_s=30)
        assert await e2b.look(box.id) is None
        await e2b.delete(box.id)
        for work in (e2b.wake, e2b.pause, e2b.stop, e2b.keep, e2b.terminal):
            with pytest.raises(NoSuchBox):
                await work(box.id)
        with pytest.raises(NoSuchBox):
            await e2b.address(box.id, 80, {})


@in_loop
async def test_a_box_has_the_time_that_its_options_say(vendor: VendorServer) -> None:
    """In each process that wakes or keeps it, and E2B's own five minutes in none."""
    async with adapter(vendor) as maker:
        box = await maker.create(new_spec(options={"timeout": 1234}))
        await maker.pause(box.id)
    arrivals = Arrivals(vendor)
    async with adapter(vendor) as other:
        await other.look(box.id)
        await other.wake(box.id)
        other._knowledge.of(box.id).kept_at = float("-inf")  # a long time has passed
        await other.keep(box.id)
        await other.keep(box.id)
    calls = {call.name: call.body for call in arrivals.calls()}
    assert calls == {LOOK: None, CONNECT: {"timeout": 1234}, KEEP: {"timeout": 1234}}


@in_loop
async def test_boxes_are_kept_in_time(vendor: VendorServer) -> None:
    async with adapter(vendor) as e2b, adapter(vendor) as other:
        assert e2b.keep_s == 60
        box = await e2b.create(new_spec(options={"timeout": 30}))
        assert e2b.keep_s == 10
        await other.look(box.id)
        assert other.keep_s == 10
        await e2b.pause(box.id)
        e2b._knowledge.of(box.id).kept_at = float("-inf")
        with pytest.raises(BoxAsleep):
            await e2b.keep(box.id)


def test_little_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(knowledge, "_MOST_BOXES", 2)
    known = knowledge.Knowledge()
    first = known.of("a")
    known.of("b")
    assert known.of("a") is first
    known.of("c")
    assert known.of("a") is first and len(known.all()) == 2


# --- commands -------------------------------------------------------------------------------------


@in_loop
async def test_commands(vendor: VendorServer) -> None:
    quotes = """printf '%s' "it's \\"quoted\\" \\$HOME `echo x`" """
    long = f"X='{'abcdefgh ' * 10_000}'; echo ${{#X}}"
    assert 90_000 < len(long) < 100_000
    async with adapter(vendor) as e2b:
        box = await e2b.create(new_spec())
        for command, expected in {
            "printf 'no newline'": "no newline",
            "echo out; echo err >&2; exit 3": "out\n",
            "cat; echo done": "done\n",
            quotes: 'it\'s "quoted" $HOME x',
            long: "90000\n",
            "syntax ( error": "",
            "kill -9 $$": "",
            "exit": "",
            "printf '%s' \"$SANDSTREAM_COMMAND\"": "",
            "case $0 in */sh) echo sh;; esac": "sh\n",
        }.items():
            assert await e2b.execute(box.id, command, timeout_s=30) == expected, command


@in_loop
async def test_a_login_profile_that_talks(vendor: VendorServer) -> None:
    async with adapter(vendor) as e2b:
        box = await e2b.create(new_spec())
        profile = "echo 'echo Welcome; printf more' >~/.bash_profile"
        await e2b.execute(box.id, profile, timeout_s=30)
        assert await e2b.execute(box.id, "echo hello", timeout_s=30) == "hello\n"
        await e2b.execute(box.id, "echo 'exit 0' >>~/.bash_profile", timeout_s=30)
        with pytest.raises(ProviderError, match="check the profile"):
            await e2b.execute(box.id, "echo hello", timeout_s=30)


@in_loop
async def test_a_workspace_that_only_root_can_make(vendor: VendorServer) -> None:
    async with adapter(vendor) as e2b:
        box = await e2b.create(new_spec())
        owner = ":".join((await e2b.execute(box.id, "id -u; id -g", timeout_s=30)).split())
        await e2b.make_root(box.id, "/it's a/workspace", owner)
        await e2b.make_root(box.id, "/it's a/workspace", owner)
        used = 'cd "/it\'s a/workspace" && echo mine >file && stat -c %u:%g . && id -u'
        said = (await e2b.execute(box.id, used, timeout_s=30)).split()
        assert said == [f"{said[1]}:{said[1]}", said[1]]
        with pytest.raises(NoRoot, match="below the user's home"):
            await e2b.make_root(box.id, "/proc/workspace", owner)


# --- ports ----------------------------------------------------------------------------------------


@in_loop
async def test_a_port_is_reached_from_outside(vendor: VendorServer) -> None:
    port = free_port()
    serve = f"cd /tmp && echo here >page && (python3 -m http.server {port} >/dev/null 2>&1 &)"
    async with adapter(vendor) as e2b:
        box = await e2b.create(new_spec())
        await e2b.execute(box.id, serve, timeout_s=30)
        await until(lambda: _is_open(port))
        address = await e2b.address(box.id, port, {})
        assert address.host == f"{port}-{box.id}.localhost"
        assert (address.tls, address.query) == (False, "")
        # not every machine resolves names below localhost
        connection = http.client.HTTPConnection("127.0.0.1", address.port)
        connection.request("GET", "/page", headers={"Host": f"{address.host}:{address.port}"})
        assert connection.getresponse().read() == b"here\n"
        connection.close()


def test_ports_in_the_cloud_have_names_of_their_own() -> None:
    e2b = E2BVendor(Account(api_key="k", domain="boxes.org"))
    e2b._knowledge.of("ibox").domain = "eu.boxes.org"
    address = asyncio.run(e2b.address("ibox", 8000, {}))
    assert address == ("8000-ibox.eu.boxes.org", 443, True, "")


def _is_open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
