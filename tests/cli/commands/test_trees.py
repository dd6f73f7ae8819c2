"""Runs that start runs: in ``watch``, ``show``, ``runs``, ``cancel``."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from cli.cli_process import Cli, wait_until
from sandstream_bus.logs.runs import LogEvent
from sandstream_bus.nats.direct import Stored
from sandstream_bus.wire.messages import RunEvent, TokenUsage

from sandstream._inspect.summaries import RunSummary
from sandstream.cli.terminal.event_lines import EventLines
from sandstream.cli.terminal.render import Screen
from sandstream.cli.terminal.run_table import in_tree_order

pytestmark = pytest.mark.timeout(60)
TAGS = {str(kind.__struct_config__.tag) for kind in get_args(RunEvent)}
EVENTS = [
    path
    for path in sorted((Path(__file__).parents[2] / "golden").glob("v[0-9]*/*.json"))
    if msgspec.json.decode(path.read_bytes()).get("type") in TAGS
]


@pytest.fixture(scope="module")
def compared(team: Cli) -> str:
    """A finished run with two runs below it."""
    done = team("submit", "manager", "compare", "--key", "t1", "--wait")
    assert (done.code, done.out) == (0, "Cats sleep, dogs bark.\n")
    return "t1"


def test_watch_tells_the_whole_tree(team: Cli, compared: str) -> None:
    watched = team.here("watch", compared)
    lines = watched.out.splitlines()
    assert watched.code == 0
    assert 'agent    research(input="about cats")' in watched.out
    below = [line for line in lines if " │ " in line]
    assert all(line[8:12] == "    " for line in below)  # further right than the run at the top
    assert {line.partition(" │ ")[0].split()[-1] for line in below} == {"research", "research#2"}
    assert any(re.search(r"  start +research │ researcher on .* run t1_t1-0$", it) for it in below)
    assert re.search(r"result +research → Cats sleep\. · 2 turns, \d+ tokens", watched.out)
    assert lines[-1].split()[1] == "done"


def test_watch_as_json_has_every_run_in_the_order_of_the_log(team: Cli, compared: str) -> None:
    events = team.here("watch", compared, "--json").lines
    assert {it["run_id"] for it in events} == {"t1", "t1_t1-0", "t1_t1-1"}
    sequences = [it["sequence"] for it in events]
    assert sequences == sorted(sequences)
    half = sequences[len(sequences) // 2]
    rest = team.here("watch", compared, "--json", "--after", str(half)).lines
    assert rest == [it for it in events if it["sequence"] > half]
    assert team.here("replay", compared, "--instant", "--json").lines == events
    assert team.here("replay", compared, "--instant").out == team.here("watch", compared).out


def test_watch_follows_a_tree_as_it_grows(team: Cli) -> None:
    watching = team.start("watch", "t2")
    assert "there is no run 't2'" in watching.communicate(timeout=30)[1]
    assert team.here("submit", "manager", "long search", "--key", "t2").code == 0
    watching = team.start("watch", "t2")
    lines: list[str] = []
    while not (lines and 'research │ search(q="whales")' in lines[-1]):
        lines.append(watching.stdout.readline())
        assert lines[-1], lines
    assert team.here("cancel", "t2", "--reason", "enough").code == 0
    out, err = watching.communicate(timeout=30)
    assert (watching.returncode, err) == (1, "")
    assert re.search(r"done +research │ cancelled", out)
    assert out.splitlines()[-1].split()[-1] == "enough"


def test_cancel_stops_the_runs_below(team: Cli) -> None:
    assert team.here("submit", "manager", "long search", "--key", "t3").code == 0

    def status_below() -> Any:
        found = team.here("show", "t3_t1-0", "--json")
        return found.one["summary"]["status"] if found.code == 0 else None

    wait_until(lambda: status_below() == "running", "the run below works")
    assert team.here("cancel", "t3", "--json").one["status"] == "cancelled"
    wait_until(lambda: status_below() == "cancelled", "the run below is cancelled")


def test_show_draws_the_tree(team: Cli, compared: str) -> None:
    shown = team("show", compared, env={"COLUMNS": "80"}).out
    tree = shown[shown.index("WATERFALL") : shown.index("CONVERSATION")].splitlines()
    assert tree[2].startswith("manager ")
    labels = [line.partition("  ")[0] for line in tree]
    for subject, child in (("cats", "t1_t1-0"), ("dogs", "t1_t1-1")):
        place = labels.index(f'├ research input="about {subject}"')
        assert labels[place + 1] == f"│ └ researcher {child}"
        assert f'search q="{subject}"' in "\n".join(tree[place : place + 6])
    assert max(map(len, tree)) <= 80
    assert "children  2: t1_t1-0, t1_t1-1\n" in shown
    below = team.here("show", "t1_t1-0").out
    assert "below     t1\n" in below
    whole = team.here("show", compared, "--json").one
    assert [it["run"]["summary"]["output"] for it in whole["tree"]["steps"]] == [
        "Cats sleep.",
        "Dogs bark.",
    ]


def test_runs_are_listed_from_the_top(team: Cli, compared: str) -> None:
    tops = {it["run_id"]: it for it in team.here("runs", "--limit", "500", "--json").lines}
    assert tops[compared]["children"] == 2
    assert "t1_t1-0" not in tops
    everything = team.here("runs", "--limit", "500", "--tree").out.splitlines()
    place = next(n for n, line in enumerate(everything) if line.startswith("t1 "))
    assert [line.split()[:2] for line in everything[place + 1 : place + 3]] == [
        ["└", "t1_t1-0"],
        ["└", "t1_t1-1"],
    ]
    below = {
        it["run_id"]: it for it in team.here("runs", "--tree", "--json", "--limit", "500").lines
    }
    assert (below["t1_t1-1"]["parent"], below["t1_t1-1"]["root"]) == ("t1", "t1")


def test_a_guardrail_that_trips_is_seen(team: Cli) -> None:
    done = team.here("submit", "manager", "damn it", "--key", "t4", "--wait")
    assert done.code == 1 and "guardrail" in done.err
    assert re.search(r"guard +input guardrail no_swearing tripped", team.here("watch", "t4").out)
    shown = team.here("show", "t4").out
    assert re.search(r"├? ?└? ?guardrail no_swearing", shown)
    assert "guardrail  input guardrail no_swearing tripped\n" in shown
    assert [it["run_id"] for it in team.here("runs", "--status", "guardrail", "--json").lines] == [
        "t4"
    ]


# --- budgets --------------------------------------------------------------------------------------


def test_a_budget_ends_the_run(team: Cli) -> None:
    done = team.here("submit", "manager", "compare", "--max-tool-calls", "1", "--wait", "--json")
    assert (done.code, done.one["status"]) == (1, "budget")
    few = team.here("submit", "manager", "compare", "--max-tokens", "10", "--wait", "--json")
    assert (few.code, few.one["status"]) == (1, "budget")
    assert few.one["error"]["data"] == {"budget": "tokens"}


# --- the parts ------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", EVENTS, ids=lambda path: path.stem)
def test_every_event_has_a_line_that_fits(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = path.read_bytes()
    monkeypatch.setenv("COLUMNS", "80")
    event = msgspec.json.decode(data, type=RunEvent)
    subject = "sandstream.run.r1.start.main"
    stored = Stored(1, subject, data, {"Nats-Time-Stamp": "2026-01-01T10:00:00Z"})
    lines = EventLines(Screen(io.StringIO()), depth=1, name="research")
    told = lines.render(LogEvent(1, subject, event, stored))
    assert told and all(line.strip() for line in told)
    assert max(map(len, told[:1])) <= 80


def test_runs_whose_parent_is_not_listed_are_not_lost() -> None:
    def run(name: str, parent: str = "") -> RunSummary:
        return RunSummary(
            run_id=name,
            agent="a",
            status="running",
            step="",
            turns=0,
            usage=TokenUsage(),
            parent=parent,
            started_at=name,
        )

    found = [run("b"), run("a_2", "a"), run("a_1", "a"), run("a"), run("c_1", "c")]
    assert [(it.run_id, prefix) for it, prefix in in_tree_order(found)] == [
        ("b", ""),
        ("a", ""),
        ("a_1", "└ "),
        ("a_2", "└ "),
        ("c_1", ""),
    ]
