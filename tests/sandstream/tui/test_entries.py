"""The list as data: groups, trees of forks and child runs, filters."""

from __future__ import annotations

from typing import Any

from sandstream_bus.wire.model_records import TokenUsage
from sandstream_bus.wire.sessions import ActiveTurn, ForkOrigin

from sandstream._inspect.summaries import RunSummary
from sandstream.cli.commands.session.lists import in_fork_order
from sandstream.sessions.views import SessionActivity, SessionInfo
from sandstream.tui.notices import Notices, ring
from sandstream.tui.overview.entries import MOST_LINES, Heading, Line, entries_of, listed
from sandstream.tui.overview.rows import fit, row


def info(id: str, activity: SessionActivity = "idle", **more: Any) -> SessionInfo:
    return SessionInfo(
        id=id, title=more.pop("title", id), agent="a", life="open", activity=activity, **more
    )


def run(id: str, status: str = "running", **more: Any) -> RunSummary:
    return RunSummary(
        run_id=id, agent="a", status=status, step="model", turns=1, usage=TokenUsage(), **more
    )


def shown(lines: Any) -> list[str]:
    return [it.text if isinstance(it, Heading) else f"{it.prefix}{it.entry.title}" for it in lines]


def test_groups_are_in_the_order_of_urgency() -> None:
    found = entries_of(
        [info("old", "sleeping"), info("asks", "needs you"), info("works", "working")],
        [run("r1", "completed"), run("r2", "failed"), run("r3", "waiting")],
    )
    assert shown(listed(found)) == [
        *("Needs you", "asks", "r3", "Working", "works"),
        *("Idle and sleeping", "old", "Done", "r1", "Failed", "r2"),
    ]


def test_forks_and_child_runs_stand_below_their_sources() -> None:
    turn = ActiveTurn(number=1, run="t1")
    found = entries_of(
        [
            info("s", "working", active=turn, changed="2026-01-02"),
            info("f", "working", origin=ForkOrigin(session="s", turn=1), changed="2026-01-01"),
        ],
        [run("t1", session="@/s"), run("c1", parent="t1", root="t1"), run("c2", parent="c1")],
    )
    assert shown(listed(found)) == ["Working", "s", "├ f", "└ c1", "  └ c2"]


def _chain(length: int) -> list[SessionInfo]:
    """Each session is a fork of the one before."""
    return [
        info(
            f"s{n}",
            created=f"2026-01-01T{n:06}",
            origin=ForkOrigin(session=f"s{n - 1}", turn=1) if n else None,
        )
        for n in range(length)
    ]


def test_a_long_chain_of_forks_is_listed() -> None:
    sessions = _chain(2000)
    lines = listed(entries_of(sessions, []), most=len(sessions))
    assert [it.entry.id for it in lines if isinstance(it, Line)] == [it.id for it in sessions]
    ordered = in_fork_order(sessions[::-1])
    assert [it.id for it, _ in ordered] == [it.id for it in sessions]
    assert [branch for _, branch in ordered[:3]] == ["", "└ ", "  └ "]


def test_a_long_group_is_cut_and_the_filter_finds_the_rest() -> None:
    sessions = [info(f"s{n}", changed=f"2026-01-01T{n:06}") for n in range(10_000)]
    found = entries_of(sessions, [])
    lines = listed(found)
    assert len(lines) == 1 + MOST_LINES + 1
    assert lines[0] == Heading("Idle and sleeping", 10_000)
    assert shown(lines)[1] == "s9999"  # the newest
    assert lines[-1] == Heading("Older ones; / finds them", 10_000 - MOST_LINES)
    assert shown(listed(found, wanted="s0")) == ["Idle and sleeping", "s0"]


def test_a_fork_in_another_group_stands_for_itself() -> None:
    fork = info("f", "failed", origin=ForkOrigin(session="s", turn=1))
    assert shown(listed(entries_of([info("s"), fork], []))) == [
        *("Idle and sleeping", "s", "Failed", "f")
    ]


def test_a_circle_of_parents_hides_no_entry() -> None:
    found = entries_of([], [run("a", parent="b"), run("b", parent="a")])
    assert sorted(shown(listed(found))) == ["Working", "a", "b"]


def test_the_filter_needs_all_words_in_any_field() -> None:
    found = entries_of([info("one", title="Fix the shop", provider="docker"), info("two")], [])
    assert shown(listed(found, wanted="SHOP dock")) == ["Idle and sleeping", "Fix the shop"]
    assert listed(found, wanted="shop daytona") == []


def test_groups_by_provider_and_agent() -> None:
    found = entries_of([info("one", provider="docker"), info("two")], [])
    assert shown(listed(found, by="provider")) == ["docker", "one", "no sandbox", "two"]
    assert shown(listed(found, by="agent")) == ["a", "one", "two"]


def test_a_line_fits_its_width_whatever_the_title_is() -> None:
    wide = info("x", title="漢字" * 40 + "\x1b[31m", doing="e\u0301" * 100)
    (_, it) = listed(entries_of([wide], []))
    assert not isinstance(it, Heading)
    for width in (20, 40, 69, 70, 110, 200):
        assert row(it, width).cell_length <= width
        assert "\x1b" not in row(it, width).plain
    assert fit("漢字漢字", 5) == "漢字…"


def test_only_changes_are_noticed() -> None:
    turn = ActiveTurn(number=1, run="t1")
    notices = Notices()
    working = entries_of([info("s", "working", title="Shop\x1b]0;x\x07", active=turn)], [])
    asks = entries_of([info("s", "needs you", title="Shop\x1b]0;x\x07", active=turn)], [])
    assert notices.of(working) == []
    assert notices.of(working) == []
    (told,) = notices.of(asks)
    assert told.id == "s" and told.text.endswith("needs you") and "\x1b" not in told.text
    idle = entries_of([info("s", title="Shop")], [])
    assert [it.text for it in notices.of(idle)] == ["Shop is done"]
    notices.of(entries_of([info("s", "working", title="Shop")], []))  # it wakes up: no turn
    assert notices.of(idle) == []
    assert ring("a\x1b]52;c;AAAA\x07b").count("\x1b") == 1


def test_a_line_says_what_is_asked_and_what_a_run_was_asked_to_do() -> None:
    turn = ActiveTurn(number=1, run="t1")
    found = entries_of(
        [info("s", "needs you", active=turn, doing="turn 1 asks for approval")],
        [run(no_key := "r1a1f061c0b614e9ab18fd", "completed"), run("mine", "completed")],
        doing={"t1": "refund(amount=12)"},
        asked={no_key: "Report on dunes", "mine": "Something"},
    )
    assert [(it.title, it.doing) for it in found] == [
        *(("s", "refund(amount=12)"), ("Report on dunes", ""), ("mine", "")),
    ]
