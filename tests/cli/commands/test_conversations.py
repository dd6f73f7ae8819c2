"""``conversations``, and runs that share one."""

from __future__ import annotations

from typing import Any

import pytest
from cli.cli_process import Cli, wait_until

pytestmark = pytest.mark.timeout(60)


def test_a_conversation_goes_on(team: Cli) -> None:
    session = "customer 17"
    first = team.here("submit", "writer", "chat", "--session", session, "--wait")
    assert first.out == "First.\n"
    second = team.here("submit", "writer", "more", "--session", session, "--wait", "--json")
    assert (second.one["output"], second.one["session"]) == ("Second.", session)
    (listed,) = [
        it for it in team.here("conversations", "--json").lines if it["session"] == session
    ]
    assert (listed["items"], listed.get("run", "")) == (4, "")
    assert listed["last"]["content"][0]["text"] == "Second."
    shown = team.here("conversations", "show", session).out
    assert "user       chat\nassistant  First.\nuser       more\nassistant  Second.\n" in shown
    assert team.here("conversations", "clear", session).code == 2  # nobody to ask
    cleared = team.here("conversations", "clear", session, "--yes", "--json")
    assert (cleared.code, cleared.one["items"]) == (0, 0) and "4 items forgotten" in cleared.err
    missing = team.here("conversations", "show", "nobody")
    assert missing.code == 3 and "there is no conversation 'nobody'" in missing.err


def test_a_busy_conversation_queues_or_refuses(team: Cli) -> None:
    session = ("--session", "busy-1")
    assert team.here("submit", "manager", "one refund", *session, "--key", "v1").code == 0
    wait_until(lambda: '"v1"' in team.here("runs", "--status", "waiting", "--json").out, "v1 waits")
    refused = team.here("submit", "writer", "chat", *session, "--if-busy", "refuse", "--wait")
    assert refused.code == 1 and "is busy with run v1" in refused.err
    assert team.here("submit", "writer", "later", *session, "--key", "v2").code == 0

    def queued() -> Any:
        return team.here("conversations", "show", "busy-1", "--json").one.get("queued")

    assert wait_until(queued, "v2 is queued") == ["v2"]
    assert "running (waiting for conversation busy-1)" in team.here("show", "v2").out
    taken = team.here("conversations", "clear", "busy-1", "--yes")
    assert taken.code == 1 and "busy with run v1" in taken.err
    assert team.here("cancel", "v2").code == 0
    assert team.here("cancel", "v1").code == 0
