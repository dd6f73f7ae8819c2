"""Commands of a box that is operated by scripts."""

from __future__ import annotations

import random

from sandstream_providers.box.agent.commands.jobs import file_name
from sandstream_providers.interface import (
    ExecSpec,
    NoSuchSession,
    OnOutput,
    Output,
    StdinClosed,
)
from sandstream_providers.shell import job_scripts, watch_scripts
from sandstream_providers.shell.basics import BoxFacts
from sandstream_providers.shell.channel import Answer, ShellSettings
from sandstream_providers.shell.job import Job, was_not_executed
from sandstream_providers.shell.kill_scripts import killing, naps
from sandstream_providers.shell.output import Collected, Report, parse
from sandstream_providers.shell.quotes import assigned_all
from sandstream_providers.shell.refusals import REFUSED, failure
from sandstream_providers.shell.scripts import Scripts

FIRST_WAIT_S = 1.0
"""How long the script that starts a command waits for its end, so that it is the only one."""
WAIT_S = 5.0
"""How long the scripts after it wait. Every channel must bear that."""
PART_BYTES = 4 * 1024 * 1024
KILL_TRIES = 3
PRUNE_EVERY = 200
KEPT_OUTPUTS = 16
"""So many streams of the greatest length are kept."""
SESSIONS = range(1000, 100_000)


class Commands:
    """Starts, watches and ends commands."""

    def __init__(self, scripts: Scripts, settings: ShellSettings) -> None:
        self._scripts = scripts
        self._settings = settings
        self._limit = settings.limits.output_mb * 1024 * 1024
        self._started = 0

    # --- watching ---------------------------------------------------------------------------------

    async def run(
        self, op: str, spec: ExecSpec, wait_s: float | None, on_output: OnOutput | None
    ) -> Output:
        facts = await self._scripts.facts()
        job = Job(op, spec, self._settings, self._scripts.basics, facts)
        await self._prune()
        collected = Collected(self._limit, on_output)
        data = job.files()
        given = {**job.place(), "SESSIONS": " ".join(map(str, random.sample(SESSIONS, 8)))}
        begin, budget_s = job_scripts.LAUNCH, FIRST_WAIT_S
        while True:
            watching = _watching(wait_s, budget_s, collected, on_output)
            script = self._scripts.basics.script(
                killing(facts), watch_scripts.IS_OVER, begin, watching, watch_scripts.WATCH, **given
            )
            answer = await self._scripts.run(script, data)
            if answer.code:
                raise job.refusal(answer)
            report = parse(answer.stdout)
            if was_not_executed(report, spec):
                await self._forget(job.name)
                raise job.not_executed(report)
            collected.take(report)
            if _is_answered(report, collected):
                return await self._output(job.name, report, collected)
            begin, budget_s, data = watch_scripts.ATTACH, WAIT_S, b""
            given = {"N": job.name, "MARK": job.mark}

    async def interact(
        self, op: str, session: int, data: bytes, wait_s: float, on_output: OnOutput | None
    ) -> Output:
        facts = await self._scripts.facts()
        collected = Collected(self._limit, on_output)
        given: dict[str, str | int] = {
            "N": file_name(op),
            "SESSION": session,
            "INPUT": "1" if data else "",
            "MARK": "",
        }
        watching = _watching(wait_s, WAIT_S, collected, on_output)
        place = assigned_all(FROM="", FROM_ERR="")
        while True:
            script = self._scripts.basics.script(
                naps(facts),
                watch_scripts.IS_OVER,
                watching,
                place,
                watch_scripts.INTERACT,
                watch_scripts.WATCH,
                **given,
            )
            answer = await self._scripts.run(script, data)
            said = _of_session(answer, session)
            begin, _, said = said.partition(b"\n")
            stdout, stderr, name = begin.decode("ascii").split()
            if place:
                collected.begin_at(int(stdout), int(stderr))
                place = ""
            report = parse(said)
            collected.take(report)
            if _is_answered(report, collected):
                return await self._output(name, report, collected)
            data = b""  # it was taken
            watching = _watching(wait_s, WAIT_S, collected, on_output)

    async def _output(self, name: str, report: Report, collected: Collected) -> Output:
        ends = collected.ends(report)
        if not report.over and ends != collected.begin:
            script = self._scripts.basics.script(
                watch_scripts.SET_CURSOR, N=name, FROM=ends["stdout"], FROM_ERR=ends["stderr"]
            )
            _fine(await self._scripts.run(script))
        stdout, stderr = (
            collected.answer(stream, end, report.total[stream]) for stream, end in ends.items()
        )
        said = sum(ends.values()) - sum(collected.begin.values())
        return Output(
            state="running" if report.state == "claimed" else report.state,
            session=report.session,
            stdout=stdout,
            stderr=stderr,
            exit_code=report.exit_code,
            killed=report.killed,
            dropped=said - len(stdout) - len(stderr),
        )

    # --- ending -----------------------------------------------------------------------------------

    async def kill(self, op: str) -> None:
        facts = await self._scripts.facts()
        mark = Job.mark_of(self._scripts.basics, op)
        await self._end(facts, watch_scripts.KILL, N=file_name(op), MARK=mark)

    async def kill_all(self) -> None:
        facts = await self._scripts.facts()
        await self._end(facts, watch_scripts.KILL_ALL, MARK=self._scripts.basics.mark)

    async def _end(self, facts: BoxFacts, script: str, **given: str) -> None:
        whole = self._scripts.basics.script(killing(facts), watch_scripts.IS_OVER, script, **given)
        for _ in range(KILL_TRIES):  # do not wait for a process that cannot be killed
            if not _fine(await self._scripts.run(whole)):
                return

    async def sessions(self) -> int:
        await self._scripts.facts()
        script = self._scripts.basics.script(watch_scripts.IS_OVER, watch_scripts.COUNT)
        return int(_fine(await self._scripts.run(script)))

    # --- records ----------------------------------------------------------------------------------

    async def first_request(self, op: str, request: str) -> str:
        await self._scripts.facts()
        script = self._scripts.basics.script(watch_scripts.FIRST_REQUEST, N=file_name(op))
        return _fine(await self._scripts.run(script, request.encode())).decode()

    async def _forget(self, name: str) -> None:
        _fine(await self._scripts.run(self._scripts.basics.script(watch_scripts.FORGET, N=name)))

    async def _prune(self) -> None:
        self._started += 1
        if self._started % PRUNE_EVERY == 0:
            most = KEPT_OUTPUTS * self._limit // 1024
            script = self._scripts.basics.script(
                watch_scripts.IS_OVER, watch_scripts.PRUNE, MOST_KB=most
            )
            _fine(await self._scripts.run(script))


def _watching(
    wait_s: float | None, budget_s: float, collected: Collected, on_output: OnOutput | None
) -> str:
    return assigned_all(
        WAIT="" if wait_s is None else round(wait_s * 100),
        DUE="",
        BUDGET=round(budget_s * 100),
        LIVE="" if on_output is None else 1,
        MOST=PART_BYTES,
        FROM=collected.seen["stdout"],
        FROM_ERR=collected.seen["stderr"],
    )


def _is_answered(report: Report, collected: Collected) -> bool:
    return (report.over or report.due) and collected.has_all(report)


def _of_session(answer: Answer, session: int) -> bytes:
    if answer.code == REFUSED and answer.stdout.startswith(b"StdinClosed"):
        raise StdinClosed(f"stdin of session {session} is closed", session=session)
    if answer.code == REFUSED:
        raise NoSuchSession(f"no running command has the number {session}", session=session)
    return _fine(answer)


def _fine(answer: Answer) -> bytes:
    if answer.code:
        raise failure(answer.stderr, "the sandbox's records")
    return answer.stdout
