"""``show`` of real runs: in which order it tells what, what is left of lost runs, the page."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest
from cli.cli_process import DEADLINE_S, Cli, wait_until
from sandstream_actors.tracing.fold.run_trace import RunTrace
from sandstream_actors.tracing.store.path import installation_of, store_path
from sandstream_actors.tracing.store.trace_store import TraceStore
from sandstream_bus.bus import Bus
from sandstream_bus.wire.subjects import RunId

from sandstream.client import Client
from sandstream.settings import Settings

pytestmark = pytest.mark.timeout(60)
T = TypeVar("T")


def on_bus(cli: Cli, work: Callable[[Bus], Awaitable[T]]) -> T:
    """Do something on the bus of an installation."""

    async def connected() -> T:
        client = await Client.connect(Settings.from_env(cli.env))
        try:
            return await work(client.bus)
        finally:
            await client.close()

    return asyncio.run(connected())


async def purge(bus: Bus, subject: str) -> None:
    """What age does to old messages."""
    await bus.connection.request(
        f"$JS.API.STREAM.PURGE.{bus.topology.log}", b'{"filter":"%s"}' % subject.encode()
    )


@pytest.fixture(scope="module")
def settled(team: Cli) -> str:
    """A run with a child run, two approvals and a handoff."""
    assert team.here("submit", "manager", "settle", "--key", "s1").code == 0

    def open_calls() -> set[str]:
        listed = team.here("approvals", "--json").lines
        return {it["call"] for it in listed if it["run_id"] in ("s1", "s1_t1-0")}

    wait_until(lambda: open_calls() == {"t1-0", "t1-1"}, "both calls wait")
    assert team.here("approve", "s1", "t1-1", "--as", "ann").code == 0
    assert team.here("reject", "s1_t1-0", "--as", "bob", "--message", "Not Ann.").code == 0
    done = team.here("submit", "manager", "settle", "--key", "s1", "--wait")
    assert (done.code, done.out) == (0, "All is settled.\n")
    return "s1"


def test_it_tells_what_it_is_what_happened_what_was_said_and_what_it_has(
    team: Cli, settled: str
) -> None:
    shown = team.here("show", settled)
    assert (shown.code, shown.err) == (0, "")
    places = [
        shown.out.index(part)
        for part in ("status    completed", "\nWATERFALL\n", "\nCONVERSATION\n", "\nchildren  1")
    ]
    assert places == sorted(places)
    assert "EVENTS" not in shown.out
    waterfall = shown.out[places[1] : places[2]]
    assert re.search(r"├ approval refund .*approved by ann", waterfall)
    assert re.search(r"├ ask_cashier .*\n│ └ cashier s1_t1-0 ", waterfall)
    assert re.search(r"│   ├ approval refund .*rejected by bob", waterfall)
    assert re.search(r"├ handoff manager to writer .*\n└ writer .*\n  └ chat gpt-5 ", waterfall)
    with_events = team.here("show", settled, "--events").out
    assert with_events.index("\nchildren  1") < with_events.index("\nEVENTS\n")


def test_the_conversation_is_told_as_people_would(team: Cli, settled: str) -> None:
    shown = team.here("show", settled).out
    said = shown[shown.index("\nCONVERSATION\n") :]
    for pattern in (
        r"user         settle",
        r'manager      → ask_cashier\(input="pay Ann"\)',
        r'             → refund\(amount=3, customer="Bob"\)',
        r"             gpt-5 · \d+ in, \d+ out · \d+m?s",
        r'approval     refund\(amount=3, customer="Bob"\)  approved by ann · after .+',
        r"refund       ← refunded 3.0 to Bob.*",
        r"ask_cashier  ← Paid\.  run s1_t1-0 · 2 turns · \d+ tokens · .+",
        r"manager      → transfer_to_writer\(\)",
        r"handoff      manager hands over to writer",
        r"writer       All is settled\.",
    ):
        assert re.search(rf"^{pattern}$", said, re.MULTILINE), (pattern, said)
    below = team.here("show", "s1_t1-0").out
    assert re.search(r"approval +refund\(amount=12.*rejected by bob: Not Ann\. · after", below)


def test_programs_get_the_rows_of_the_waterfall(team: Cli, settled: str) -> None:
    whole = team.here("show", settled, "--json").one
    assert {"summary", "conversation", "events", "sandboxes", "tree"} < set(whole)
    assert re.fullmatch("[0-9a-f]{32}", whole["trace_id"])
    rows = whole["spans"]
    assert rows[0]["label"] == "manager" and rows[0]["status"] == "completed"
    assert {row["run"] for row in rows} == {"s1", "s1_t1-0"}
    assert not {"send", "process"} & {row["operation"] for row in rows}
    ids = {row["span_id"] for row in rows}
    assert all(row["parent_id"] in ids for row in rows[1:])
    assert team.here("show", settled, "--json").one["spans"] == rows  # the same each time


def test_a_failure_is_told_in_all_three_parts(served: Cli) -> None:
    failed = served.here("submit", "assistant", "break", "--key", "broken-1", "--wait")
    assert failed.code == 1
    shown = served.here("show", "broken-1").out
    assert re.search(r"^error     model_http: .*No such luck\.$", shown, re.MULTILINE)
    assert re.search(r"^    ✗ 400: .*No such luck\.$", shown, re.MULTILINE)
    assert re.search(r"^failed +model_http: .*No such luck\.$", shown, re.MULTILINE)


def test_a_run_under_way_is_drawn_up_to_now(served: Cli) -> None:
    assert served.here("submit", "assistant", "hang", "--key", "hangs-1").code == 0
    try:
        wait_until(
            lambda: "get_weather" in served.here("show", "hangs-1").out, "the tool is called"
        )
        shown = served.here("show", "hangs-1").out
        assert re.search(r"^assistant +[━─╺].*▸ .* running", shown, re.MULTILINE)
        assert re.search(r'^└ get_weather city="Atlantis" .*▸ .* running$', shown, re.MULTILINE)
        assert "▸ goes on" in shown
    finally:
        served.here("cancel", "hangs-1")


def test_terminals_without_our_signs(served: Cli, finished: str) -> None:
    env = {"PYTHONIOENCODING": "ascii", "COLUMNS": "80"}
    process = served.start("show", finished, env=env)
    out, _ = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0 and out.isascii()
    assert "get_weather  < 21 degrees in Paris" in out
    assert max(map(len, out.splitlines())) <= 80


def test_texts_of_strangers_steer_no_terminal(served: Cli) -> None:
    served.here("submit", "assistant", "escape\x1b[2J", "--key", "escapes-1", "--wait")
    assert "\x1b" not in served.here("show", "escapes-1", "--all", "--events").out


# --- runs that the log has lost -------------------------------------------------------------------


def test_a_run_whose_start_is_gone(served: Cli, finished: str) -> None:
    on_bus(served, lambda bus: purge(bus, bus.subjects.start(finished, "main")))
    shown = served.here("show", finished)
    assert shown.code == 0
    assert re.search(r"^started .*, its beginning is lost$", shown.out, re.MULTILINE)
    assert re.search(r"get_weather .*[░▐▕▏█]", shown.out)
    assert "its start is lost" in shown.out


def test_a_run_that_only_the_store_knows(served: Cli, finished: str) -> None:
    async def lose(bus: Bus) -> None:
        events = await bus.log.read(RunId(finished))
        trace = RunTrace.of(finished, events)
        path = store_path(served.home, await installation_of(bus))
        store = await TraceStore.open(path)
        await store.record(trace.facts(), trace.spans())
        await store.close()
        await purge(bus, bus.subjects.run_all(finished))

    before = served.here("show", finished).out
    on_bus(served, lose)
    shown = served.here("show", finished)
    assert shown.code == 0
    assert "the log no longer has this run" in shown.out
    assert "It is sunny in Paris." in before and "It is sunny in Paris." not in shown.out
    assert f"run       {finished}\nstatus    completed\n" in shown.out

    def bars(text: str) -> list[str]:
        lines = text[text.index("\nWATERFALL\n") : text.index("\nCONVERSATION\n")].splitlines()
        return [re.sub(r' city="Paris"', "", line) for line in lines if " chat " in line]

    assert len(bars(shown.out)) == len(bars(before)) == 2
    whole = served.here("show", finished, "--json").one
    assert (whole["events"], whole["conversation"]) == ([], [])
    assert [row["operation"] for row in whole["spans"]] == ["agent", "chat", "tool", "chat"]


def test_a_run_that_nobody_knows(served: Cli) -> None:
    done = served.here("show", "no-such-run")
    assert (done.code, done.out) == (3, "")
    assert done.err.startswith("sandstream: there is no run 'no-such-run'")


def test_a_run_whose_id_was_cut_in_a_table_is_named(served: Cli, finished: str) -> None:
    done = served.here("show", finished[:-1])
    assert done.code == 3 and f"; there is {finished}; `sandstream runs`" in done.err


# --- the page -------------------------------------------------------------------------------------


def test_a_page_is_written_and_replaced(team: Cli, settled: str, tmp_path: Path) -> None:
    page = tmp_path / "run.html"
    done = team.here("show", settled, "--html", str(page))
    assert (done.code, done.out, done.err) == (0, "", f"written: {page}\n")
    text = page.read_text()
    assert text.startswith("<!DOCTYPE html>") and "All is settled." in text
    page.chmod(0o600)
    assert team.here("show", "s1_t1-0", "--html", str(page)).code == 0
    assert page.read_text() != text and page.stat().st_mode & 0o777 == 0o600
    assert [it.name for it in tmp_path.iterdir()] == ["run.html"]


def test_a_page_to_standard_output(
    team: Cli, settled: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = team.here("show", settled, "--html", "-")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("<!DOCTYPE html>") and "All is settled." in done.out
    unnamed = team.here("show", settled, "--html", "")
    assert unnamed.code == 2 and "--html needs the name" in unnamed.err
    assert not list(tmp_path.iterdir())


def test_a_page_replaces_nothing_else_unless_told_to(
    team: Cli, settled: str, tmp_path: Path
) -> None:
    notes = tmp_path / "notes.txt"
    notes.write_text("mine")
    refused = team.here("show", settled, "--html", str(notes))
    assert refused.code == 2 and "use --force" in refused.err
    assert notes.read_text() == "mine"
    assert team.here("show", settled, "--html", str(notes), "--force").code == 0
    assert "All is settled." in notes.read_text()


def test_where_a_page_cannot_be(team: Cli, settled: str, tmp_path: Path) -> None:
    for target, why in (
        (tmp_path, "is a directory"),
        (tmp_path / "none" / "run.html", "there is no directory"),
        (Path("/proc/run.html"), "cannot write /proc/run.html"),
    ):
        refused = team.here("show", settled, "--html", str(target))
        assert refused.code in (1, 2) and why in refused.err, refused
    both = team.here("show", settled, "--html", str(tmp_path / "x"), "--json")
    assert both.code == 2 and "--json" in both.err
    unknown = team.here("show", "no-such-run", "--html", str(tmp_path / "x"))
    assert unknown.code == 3 and not list(tmp_path.iterdir())
