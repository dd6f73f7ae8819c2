"""``parked``: messages that could not be processed."""

from __future__ import annotations

from cli.cli_process import Cli, publish, wait_until


def test_parked(served: Cli) -> None:
    publish(served, "sandstream.task.assistant", b"{no task", "broken-task")

    def find() -> list[dict[str, object]]:
        lines = served("parked", "--json").lines
        return [one for one in lines if one["parked"]["body"] == "{no task"]

    entry = str(wait_until(find, "the parked task")[0]["id"])
    listed = served("parked", "ls")
    assert listed.out.startswith("ID ") and entry in listed.out and "redrive" in listed.err
    shown = served("parked", "show", entry)
    assert "message.undecodable" in shown.out and shown.out.endswith("{no task\n")
    redriven = served("parked", "redrive", entry, "--json")
    assert (redriven.code, redriven.out) == (1, "")
    assert "run broken-task would be refused again: the message is not valid JSON" in redriven.err
    assert [it["id"] for it in find()] == [entry]  # it is where it was
    assert served("parked", "drop", entry).code == 0
    assert find() == []
    gone = served("parked", "drop", entry)
    assert (gone.code, gone.out) == (3, "")


def test_an_unreadable_event_hides_no_run(served: Cli, finished: str) -> None:
    publish(served, "sandstream.run.strange.done", b'{"type":"from.the.future"}', "strange")
    listed = served("runs", "--limit", "1000", "--json")
    assert listed.code == 0
    assert finished in {run["run_id"] for run in listed.lines}
    assert served("show", "strange").code == 3
