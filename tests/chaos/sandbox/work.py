"""The commands of sandbox agents, and the check that each was done exactly once and reported.

Every command appends its number to the file ``counter`` and prints the file's length. So the last
checkpoint of the sandbox shows what ran, and the model's requests show what it was told.
"""

from __future__ import annotations

import uuid
from pathlib import Path

import msgspec
from chaos.evidence import Outcome, requests_of
from chaos.sandbox.fleet import END, SandboxFleet
from sandstream_bus.wire.messages import CallFinished, CallRequested, RunDone, RunStarted

from sandstream.testing import Conversation, ScriptedModel, script_for, text, tool_calls

FINAL = "All is done."


class Command(msgspec.Struct, frozen=True):
    """One command of the model. Its number is its position in the run, from 1."""

    sleep_s: float = 0.0
    waits: bool = False
    """Whether it waits for the file ``go``, which is created from outside."""
    leaves: str = ""
    """It leaves behind a process in its own session: ``sleep`` with this argument."""

    def line(self, number: int) -> str:
        wait = f"touch begun-{number}; sleep {self.sleep_s}; " if self.sleep_s else ""
        greeting = "cat given/greeting.txt; " if number == 1 else ""
        if self.waits:
            wait = f"touch begun-{number}; until [ -e go ]; do sleep 0.05; done; "
        if self.leaves:
            wait += f"setsid sleep {self.leaves} > /dev/null 2>&1 & "
        said = f"echo did-{number}-of-$(wc -l < counter)"
        return f"{greeting}{wait}echo {number} >> counter; {said}"

    @staticmethod
    def says(number: int) -> str:
        """Its output if it ran once, and after all earlier commands."""
        return f"did-{number}-of-{number}"


QUICK = Command()


class Work(msgspec.Struct, frozen=True):
    """A run: one command per turn; the turn after the last command ends it."""

    name: str
    commands: tuple[Command, ...]

    def conversation(self) -> Conversation:
        steps = [
            tool_calls(("exec_command", {"cmd": it.line(number), "yield_time_ms": 30_000}))
            for number, it in enumerate(self.commands, 1)
        ]
        return script_for(f"[{self.name}]", [*steps, text(FINAL)], name=self.name)

    def order(self, key: str) -> str:
        return f"[{self.name}] {key}"

    @property
    def counter(self) -> str:
        return "".join(f"{number}\n" for number in range(1, len(self.commands) + 1))


BRIEF = Work("brief", (QUICK, QUICK))
LENGTHY = Work("lengthy", (QUICK, Command(2.0), QUICK))
PARTED = Work("parted", (QUICK, Command(1.0), Command(waits=True), QUICK, QUICK))
ENDLESS = "endless"


def stormy(leaves: str = "") -> Work:
    first = Command(leaves=leaves)
    return Work("stormy", (first, Command(0.7), QUICK, Command(0.4), QUICK))


def endless(leaves: str) -> Conversation:
    """A command that does not end, with a child in its own session."""
    command = f"setsid sleep {leaves} & touch begun-1; sleep {leaves}"
    call = ("exec_command", {"cmd": command, "yield_time_ms": 30_000})
    return script_for(f"[{ENDLESS}]", [tool_calls(call), text(FINAL)], name=ENDLESS)


def scripted_smith(leaves: str = "") -> ScriptedModel:
    """``leaves``: the argument of the processes that are left behind."""
    works = [it.conversation() for it in (BRIEF, LENGTHY, PARTED, stormy(leaves))]
    return ScriptedModel(conversations=[*works, endless(leaves or "86400")], strict=False)


def new_mark() -> str:
    """An argument for ``sleep`` that is unique on this machine."""
    return f"86400.{uuid.uuid4().int % 10**12:012}"


def sleepers(mark: str) -> list[int]:
    """The processes with this mark, in any sandbox."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if words[:2] == [b"sleep", mark.encode()]:
            found.append(int(folder.name))
    return found


async def judge_work(
    outcome: Outcome,
    fleet: SandboxFleet,
    model: ScriptedModel,
    key: str,
    work: Work,
    agent: str = END,
) -> None:
    """Each command ran once, the model saw its output, the run ended once, as completed."""
    outcome.runs += 1
    events = [it.event for it in await fleet.events(key)]
    starts = [it for it in events if isinstance(it, RunStarted)]
    dones = [it for it in events if isinstance(it, RunDone)]
    outcome.check(len(starts) == 1, f"{key}: {len(starts)} starts")
    outcome.check(len(dones) == 1, f"{key}: {len(dones)} ends")
    for done in dones:
        said = msgspec.json.decode(done.output) if done.output else done.error
        ok = done.status == "completed" and said == FINAL
        outcome.check(ok, f"{key}: ended as {done.status}: {said}")
    asked = {it.call for it in events if isinstance(it, CallRequested)}
    answers = [it for it in events if isinstance(it, CallFinished)]
    outcome.check(asked == {it.call for it in answers}, f"{key}: not each call has its result")
    failed = [it for it in answers if it.error is not None]
    outcome.check(not failed, f"{key}: failed calls: {failed}")
    requests = requests_of(model.journal, key)
    last = max(requests, key=lambda it: len(it.text)).text if requests else ""
    for number in range(1, len(work.commands) + 1):
        outcome.tool_calls += 1
        says = Command.says(number)
        outcome.check(last.count(says) == 1, f"{key}: the model was not told {says!r}")
    outcome.model_turns += len(work.commands) + 1
    outcome.model_requests += len(requests)
    record = await fleet.record(key, agent)
    outcome.check(record.state == "stopped", f"{key}: its sandbox is {record.state}")
    counter = await fleet.saved(record, "counter")
    outcome.effects += counter.count("\n")
    outcome.repeated_effects += max(0, counter.count("\n") - len(work.commands))
    outcome.check(counter == work.counter, f"{key}: the commands that ran: {counter.split()}")
    greeting = await fleet.saved(record, "given/greeting.txt")
    outcome.check(greeting == "hello\n", f"{key}: the given file is {greeting!r}")
    outcome.problems.extend(await fleet.lost(key))
    parked = [it for it in await fleet.client.parked() if f".{key}." in it.parked.subject]
    outcome.check(not parked, f"{key}: messages were parked: {parked}")
