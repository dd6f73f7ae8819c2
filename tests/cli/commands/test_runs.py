"""``runs`` with filters: what is found, how far was looked, what is refused."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cli.cli_process import Cli

from sandstream.client import Client
from sandstream.settings import Settings


def submitted(cli: Cli, text: str, **options: Any) -> str:
    async def submit() -> str:
        async with await Client.connect(Settings.from_env(cli.env)) as client:
            run = await client.submit("assistant", text, **options)
            await client.wait(run)
            return run

    return asyncio.run(submit())


def ids(cli: Cli, *arguments: str) -> list[str]:
    done = cli.here("runs", "--json", *arguments)
    assert done.code == 0, done
    return [it["run_id"] for it in done.lines]


def test_filters_find_runs(served: Cli) -> None:
    before = datetime.now(UTC)
    first = submitted(served, "What about Lugano?", metadata={"customer": "17", "tier": 3})
    between = datetime.now(UTC)
    second = submitted(served, "What about lugano?", metadata={"customer": "18"})
    assert ids(served, "--text", "LUGANO") == [second, first]
    assert ids(served, "--text", "lugano", "--limit", "1") == [second]
    assert ids(served, "--text", "sunny in Paris", "--since", before.isoformat()) == [second, first]
    assert ids(served, "--metadata", "customer=17") == [first]
    assert ids(served, "--metadata", "customer=17", "--metadata", "tier=3") == [first]
    assert ids(served, "--metadata", "customer=18", "--metadata", "tier=3") == []
    since, until = before.isoformat(), between.isoformat()
    assert ids(served, "--agent", "assistant", "--since", since, "--until", until) == [first]
    assert ids(served, "--text", "lugano", "--status", "failed") == []
    assert ids(served, "--text", "lugano", "--status", "completed", "--all") == [second, first]
    assert ids(served, "--text", "lugano", "--until", "1h") == []
    (shown,) = served.here("runs", "--json", "--metadata", "customer=17").lines
    assert shown["metadata"] == {"customer": "17", "tier": 3}

    async def by_program() -> list[str]:
        async with await Client.connect(Settings.from_env(served.env)) as client:
            found = await client.runs(text="lugano", since=timedelta(hours=1), limit=5)
            assert not found.has_more
            return [it.run_id for it in found.runs]

    assert asyncio.run(by_program()) == [second, first]


def test_nothing_fits(served: Cli) -> None:
    done = served.here("runs", "--text", "no such words anywhere")
    assert (done.code, done.out, done.err) == (0, "", "no run fits\n")
    done = served.here("runs", "--agent", "asistant")
    assert (done.code, done.err) == (0, "no run fits; did you mean assistant?\n")


def test_a_search_says_how_far_it_looked_and_asks_the_store_of_traces(
    served: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = submitted(served, "An old question about Chur", metadata={"customer": "old"})
    for _ in range(3):
        submitted(served, "hello")

    assert served.here("stats").code == 0  # brings the store up to the end of the log
    monkeypatch.setattr("sandstream._inspect.run_search.LOOK_BACK_EVENTS", 5)
    done = served.here("runs", "--text", "about Chur")
    assert (done.code, done.out) == (0, "")
    assert done.err.startswith("no run among the ") and "--all looks at the whole log" in done.err
    assert ids(served, "--text", "about Chur", "--all") == [old]
    # the store knows agents and statuses; what was said is compared with the log
    assert ids(served, "--text", "about Chur", "--agent", "assistant") == [old]
    bounded = served.here("runs", "--text", "about Chur?", "--agent", "assistant")
    assert "older ones that this machine has traces of; --all looks" in bounded.err


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--since", "yesterday"], "'yesterday' is not a time"),
        (["--since", ""], "'' is not a time"),
        (["--until", "all"], "'all' is not a time"),
        (["--since", "1h", "--until", "2h"], "must be earlier than until"),
        (["--since", "2999-01-01"], "since is in the future"),
        (["--agent", " "], "it must not be empty"),
        (["--text", ""], "it must not be empty"),
        (["--metadata", "customer"], "'customer' is not of the form KEY=VALUE"),
        (["--metadata", "=17"], "'=17' is not of the form KEY=VALUE"),
        (["--metadata", "a=1", "--metadata", "a=2"], "it cannot be both '1' and '2'"),
        (["--limit", "0", "--text", "x"], "0 is not above zero"),
    ],
    ids=lambda it: " ".join(it) if isinstance(it, list) else "",
)
def test_bad_values_are_refused_before_anything_is_connected(
    cli: Cli, arguments: list[str], why: str
) -> None:
    done = cli.here("runs", "--nats-url", "nats://127.0.0.1:1", *arguments)
    assert (done.code, done.out) == (2, "")
    assert why in done.err
