"""``sandstream sessions`` and ``session``: begin, send, look, change, fork, end."""

from __future__ import annotations

import pytest
from cli.cli_process import DEADLINE_S, Cli, wait_until

pytestmark = pytest.mark.timeout(60)


def test_a_session_from_its_beginning_to_its_end(sandboxed: Cli) -> None:
    new = sandboxed.here("session", "new", "coder", "--id", "life", "--title", "My life")
    assert (new.code, new.out) == (0, "life\n")
    assert "sandstream session attach life" in new.err
    sent = sandboxed.here("session", "send", "life", "talk in turns", "--wait")
    assert (sent.code, sent.out, sent.err) == (0, "First.\n", "")
    second = sandboxed.here(
        "session", "send", "life", "go on", "--wait", "--json", "--message-id", "m2"
    ).one
    assert second == {
        "session": "life",
        "message": "m2",
        "turn": 2,
        "status": "completed",
        "answer": "Second.",
    }
    shown = sandboxed.here("session", "show", "life")
    assert "My life" in shown.out and "local (open), sandbox life_w1" in shown.out
    assert "Second." in shown.out
    as_json = sandboxed.here("session", "show", "life", "--json", "--history").one
    assert as_json["session"]["turn"] == 2 and len(as_json["history"]) == 4
    turns = sandboxed.here("session", "turns", "life", "--json").lines
    assert [(it["number"], it["said"], bool(it["tree"])) for it in turns] == [
        (1, "First.", True),
        (2, "Second.", True),
    ]
    table = sandboxed("session", "turns", "life", env={"COLUMNS": "80"})
    assert "talk in turns" in table.out and max(map(len, table.out.splitlines())) <= 80

    forked = sandboxed.here(
        "session", "fork", "life", "--turn", "1", "--new-id", "life-2", "--title", "Other"
    )
    assert (forked.code, forked.out) == (0, "life-2\n")
    listed = {it["id"]: it for it in sandboxed.here("sessions", "--json").lines}
    assert listed["life-2"]["origin"] == {"session": "life", "turn": 1}
    rows = sandboxed.here("sessions").out.splitlines()
    place = next(n for n, it in enumerate(rows) if it.startswith("life "))
    assert rows[place + 1].startswith("└ life-2 ")

    back = sandboxed.here("session", "rewind", "life", "1")
    assert back.code == 0 and "is back at turn 1" in back.out
    taken = sandboxed.here("session", "turns", "life", "--all").out
    assert "taken back" in taken
    preview = sandboxed.here("session", "switch", "life", "docker", "--preview")
    assert preview.code == 0 and "packages and files outside of the workspace" in preview.out
    assert "no actor for docker sandboxes is running" in preview.err

    assert sandboxed.here("session", "rename", "life", "Renamed").out.count("Renamed") == 1
    assert sandboxed.here("session", "pause", "life", "--json").one["life"] == "paused"
    assert sandboxed.here("session", "wake", "life", "--json").one["life"] == "open"
    assert sandboxed.here("session", "archive", "life").code == 0
    assert "life " not in sandboxed.here("sessions", "--text", "renamed").out
    assert "life " in sandboxed.here("sessions", "--text", "renamed", "--all").out
    for name in ("life", "life-2"):
        assert sandboxed.here("session", "destroy", name, "--yes").code == 0
    late = sandboxed.here("session", "send", "life", "hello?")
    assert late.code == 1 and "was destroyed" in late.err


def test_messages_wait_in_the_queue_and_a_turn_is_interrupted(sandboxed: Cli) -> None:
    assert sandboxed.here("session", "new", "coder", "hold on", "--id", "busy").code == 0
    wait_until(
        lambda: sandboxed.here("sessions", "--activity", "working", "--json").out.count("busy"),
        "the turn",
    )
    first = sandboxed.here("session", "send", "busy", "talk in tunrs").out.strip()
    other = sandboxed.here("session", "send", "busy", "not this", "--json").one["message"]
    queue = sandboxed.here("session", "queue", "busy", "--json").lines
    assert [it["id"] for it in queue] == [first, other]
    edited = sandboxed.here("session", "queue", "busy", "--edit", first, "talk in turns")
    assert "talk in turns" in edited.out
    removed = sandboxed.here("session", "queue", "busy", "--remove", other, "--json").lines
    assert [it["input"] for it in removed] == ["talk in turns"]
    gone = sandboxed.here("session", "queue", "busy", "--remove", other)
    assert gone.code == 1 and "no message" in gone.err
    stopped = sandboxed.here("session", "interrupt", "busy", "--reason", "enough")
    assert stopped.code == 0 and "is being stopped" in stopped.out
    turns = wait_until(
        lambda: sandboxed.here("session", "turns", "busy", "--json").lines, "the end of turn 1"
    )
    assert [it["status"] for it in turns] == ["cancelled"]
    wait_until(
        lambda: sandboxed.here("session", "queue", "busy").err.startswith("no message waits"),
        "turn 2, which takes the message",
    )
    assert sandboxed.here("session", "destroy", "busy", "-y").code == 0


def test_ids_may_be_cut_short_and_unknown_ones_have_near_ones(sandboxed: Cli) -> None:
    for name in ("short-one", "short-two"):
        assert sandboxed.here("session", "new", "coder", "--id", name).code == 0
    assert sandboxed.here("session", "show", "short-o", "--json").one["id"] == "short-one"
    both = sandboxed.here("session", "show", "short")
    assert both.code == 2 and "fits 2 sessions" in both.err and "short-two" in both.err
    near = sandboxed.here("session", "show", "shirt-two")
    assert near.code == 3 and "there is short-two" in near.err
    ended = sandboxed.here("session", "destroy", "short-o", "--yes")
    assert ended.code == 3 and "there is short-one" in ended.err
    asked = sandboxed("session", "destroy", "short-one")
    assert asked.code == 2 and "use --yes to destroy it" in asked.err
    for name in ("short-one", "short-two"):
        assert sandboxed.here("session", "destroy", name, "--yes").code == 0


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["new", "codr"], 3, "did you mean coder"),
        (["new", "coder", "--option", "image=x"], 2, "use --provider"),
        (["new", "coder", "--option", "image"], 2, "is not KEY=VALUE"),
        (["new", "coder", "--idle", "0"], 2, "not a number above zero"),
        (["new", "coder", "--id", "a b"], 2, "is not possible"),
        (["new", "coder", ""], 2, "the input is empty"),
        (["send", "nothing", "hello"], 3, "there is no session 'nothing'"),
        (["rewind", "nothing", "-1"], 2, "-1 is below zero"),
        (["rewind", "nothing", "one"], 2, "not a whole number"),
        (["show", "a.b"], 2, "is not possible"),
        ([], 2, "action"),
        (["shwo", "x"], 2, "did you mean show"),
    ],
)
def test_bad_usage_is_explained(sandboxed: Cli, words: list[str], code: int, text: str) -> None:
    done = sandboxed.here("session", *words)
    assert done.code == code and text in done.err, done


def test_an_empty_list_says_how_to_begin(sandboxed: Cli) -> None:
    none = sandboxed.here("sessions", "--activity", "paused", "--agent", "codr")
    assert (none.code, none.out) == (0, "") and "no session fits" in none.err


def test_a_session_without_an_actor_says_so(cli: Cli) -> None:
    assert cli.here("sessions").err.startswith("no sessions; begin one")
    new = cli.here("session", "new", "coder", "--id", "early")
    assert new.code == 5 and "no sessions actor is running" in new.err


def test_questions_are_shown_and_answered(team: Cli) -> None:
    assert team.here("session", "new", "manager", "one refund", "--id", "asks").code == 0
    wait_until(
        lambda: team.here("sessions", "--activity", "needs-you", "--json").out.count('"asks"'),
        "the question",
    )
    listed = team.here("sessions")
    assert "1 session needs you" in listed.err
    shown = team.here("session", "show", "asks")
    assert 'asks: refund(amount=5, customer="Cleo")' in shown.out
    assert "sandstream session approve asks t1-0" in shown.err
    wrong = team.here("session", "approve", "asks", "t9-0")
    assert wrong.code == 3 and "no call 't9-0'" in wrong.err
    more = team.start("session", "send", "asks", "thanks", "--wait")
    hint = [more.stderr.readline() for _ in range(2)]
    assert "it waits for approval of refund(" in hint[0] and "approve asks t1-0" in hint[1]
    approved = team.here("session", "approve", "asks", "--as", "ann")
    assert approved.out == 'approved refund(amount=5, customer="Cleo")\n'
    wait_until(lambda: team.here("session", "turns", "asks", "--json").lines, "the turn")
    assert team.here("session", "turns", "asks", "--json").lines[0]["said"] == "Refunded."
    assert more.wait(DEADLINE_S) == 1  # the script has no second answer
    more.communicate()
    assert team.here("session", "destroy", "asks", "--yes").code == 0
