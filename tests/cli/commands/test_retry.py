"""``retry``, and what a key says whose run has failed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from cli.cli_process import Cli

from sandstream.testing import ScriptedModel, error, script_for, text, tool_call

APP = '''
from pathlib import Path
from sandstream import Agent, function_tool

PLACE = Path(__file__).parent

@function_tool(failure_error_function=None)
def pay(amount: int) -> str:
    """Pay."""
    with (PLACE / "paid").open("a") as ledger:
        ledger.write("x")
    if (PLACE / "broken").exists():
        raise RuntimeError("the bank is closed")
    return "paid"

clerk = Agent(name="clerk", instructions="Help.", tools=[pay], model="gpt-5")
desk = clerk.as_tool("desk", "Ask the clerk.", failure_error_function=None)
manager = Agent(name="manager", instructions="Manage.", tools=[desk], model="gpt-5")
'''
FAILS_ONCE = [error(400, message="No such luck."), text("Fine.")]


class Bank:
    def __init__(self, cli: Cli, app: Path) -> None:
        self.cli = cli
        self.app = app
        self.place = app.parent

    def close(self) -> None:
        (self.place / "broken").touch()

    def open(self) -> None:
        (self.place / "broken").unlink()

    def payments(self) -> int:
        return len((self.place / "paid").read_text())


@pytest.fixture
def bank(tmp_path: Path) -> Iterator[Bank]:
    app = tmp_path / "bank.py"
    app.write_text(APP)
    pays = [tool_call("pay", {"amount": 5}), text("Paid.")]
    scripts = [
        script_for("pay", pays),
        script_for("fail", FAILS_ONCE),
        script_for("manage", [tool_call("desk", {"input": "pay"}), text("All paid.")]),
        script_for("again", [tool_call("pay", {"amount": 1})] * 3 + [text("Thrice.")]),
    ]
    with ScriptedModel(conversations=scripts, strict=False) as model:
        yield Bank(Cli(tmp_path / "home", model.base_url), app)


def test_a_served_run_is_retried(bank: Bank) -> None:
    with bank.cli.service("up", str(bank.app), "--no-sandbox"):
        cli = bank.cli
        bank.close()
        submit = ("submit", "clerk", "pay", "--key", "p1", "--wait")
        assert cli(*submit).code == 1
        again = cli(*submit)
        assert again.code == 1 and "the bank is closed" in again.err
        hint = "to repeat its failed step: sandstream retry p1"
        assert "this is the stored outcome of run p1, which ended" in again.err
        assert hint in again.err.splitlines()[-1]
        assert hint in cli("submit", "clerk", "pay", "--key", "p1").err
        assert bank.payments() == 1
        bank.open()
        retried = cli("retry", "p1", "--wait", "--timeout", "30", "--reason", "it is open")
        assert (retried.code, retried.out) == (0, "Paid.\n")
        assert bank.payments() == 2
        assert "it is open" in cli("show", "p1").out
        after = cli("retry", "p1")
        assert after.code == 1 and "run p1 has completed: there is nothing to retry" in after.err
        assert "another --key is another run" in cli(*submit).err
        missing = cli("retry", "nobody")
        assert missing.code == 3

        turns = ("submit", "clerk", "again", "--key", "p2", "--max-turns", "1", "--wait")
        assert cli(*turns).code == 1
        refused = cli("retry", "p2")
        assert refused.code == 1 and "retry --max-turns N" in refused.err
        done = cli("retry", "p2", "--max-turns", "9", "--wait", "--json")
        assert (done.code, done.one["output"], done.one["turns"]) == (0, "Thrice.", 4)


def test_a_retried_run_is_told_to_its_end(bank: Bank) -> None:
    run = ("run", f"{bank.app}:clerk", "pay", "--key", "t1")
    bank.close()
    assert bank.cli(*run).code == 1
    bank.open()
    told = [bank.cli(*run, "--retry"), bank.cli(*run)]  # as it happens, and later
    for it in told:
        assert it.code == 0 and it.out == "Paid.\n"
        lines = [line.split() for line in it.err.splitlines()]
        words = [line[1] for line in lines if len(line) > 1 and line[0].count(":") == 2]
        ends = [place for place, word in enumerate(words) if word == "done"]
        assert len(ends) == 2 and ends[1] == len(words) - 1, it.err
        assert words[ends[0] + 1 : ends[1]].count("result") == 1, it.err
    assert bank.payments() == 2


def test_a_run_that_cannot_be_retried_ends_at_once(bank: Bank) -> None:
    run = ("run", f"{bank.app}:clerk", "again", "--key", "t2", "--max-turns", "1", "--retry")
    for _ in range(2):
        refused = bank.cli(*run)
        assert refused.code != 0 and "max_turns" in refused.err
    assert "It cannot be retried" in refused.err


def test_a_run_of_a_file_is_retried_by_its_own_command(bank: Bank) -> None:
    run = ("run", f"{bank.app}:clerk", "fail", "--key", "f1")
    assert bank.cli(*run).code == 1
    again = bank.cli(*run)
    assert again.code == 1 and "No such luck." in again.err
    assert "This is the stored outcome of run f1" in again.err and "--retry" in again.err
    elsewhere = bank.cli("retry", "f1")
    assert elsewhere.code == 1
    assert "is not running: run that program again with RunConfig(run_key='f1'" in elsewhere.err
    retried = bank.cli(*run, "--retry", "-q")
    assert (retried.code, retried.out) == (0, "Fine.\n")
    once_more = bank.cli(*run, "--retry")
    assert once_more.out == "Fine.\n" and "this is the stored outcome of run f1" in once_more.err
    bad = bank.cli("run", f"{bank.app}:clerk", "fail", "--retry")
    assert bad.code == 2 and "--retry needs the --key" in bad.err


def test_a_retry_is_told_to_its_end(bank: Bank) -> None:
    run = ("run", f"{bank.app}:clerk", "fail", "--key", "f2")
    assert bank.cli(*run).code == 1
    for arguments in ([*run, "--retry"], run):  # as it happens, and from the log
        told = bank.cli(*arguments)
        assert told.out == "Fine.\n"
        done = [line for line in told.err.splitlines() if " done " in line]
        assert len(done) == 2 and "failed" in done[0] and "completed" in done[1]
        assert told.err.index("failed") < told.err.index("reopen") < told.err.index("completed")

    limited = ("run", f"{bank.app}:clerk", "again", "--key", "f3", "--max-turns", "1")
    bank.cli(*limited)
    refused = bank.cli(*limited, "--retry")  # not tried: it would exceed the same limit
    assert refused.code == 1 and "the run's end cannot be read" not in refused.err
    assert "done" in refused.err and "reopen" not in refused.err


def test_a_retry_tells_of_the_runs_below(bank: Bank) -> None:
    bank.close()
    run = ("run", f"{bank.app}:manager", "manage", "--key", "m1")
    assert bank.cli(*run).code == 1
    bank.open()
    for arguments in ([*run, "--retry"], run):
        told = bank.cli(*arguments)
        assert told.out == "All paid.\n"
        assert "the bank is closed" in told.err
        assert "Paid." in told.err
    assert bank.payments() == 2
