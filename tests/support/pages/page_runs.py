"""Runs for a page, made from hand-written logs: a tree with everything in it, and a long run."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw
from sandstream_actors.tracing.fold.run_trace import RunTrace
from sandstream_bus.wire.messages import (
    ApprovalDecided,
    ApprovalRequested,
    CallFinished,
    CallRequested,
    ErrorInfo,
    ModelAnswered,
    ModelDeferred,
    ParentLink,
    RunDone,
    RunStarted,
    RunWaiting,
    TokenUsage,
    TurnRequested,
)
from sandstream_bus.wire.specs import AgentSpec, GraphSpec
from sandstream_bus.wire.trace_context import TraceContext, call_span_id, trace_id_of
from support.scripted_log import calls, raw, says
from support.tracing.timed_log import TimedLog

from sandstream._inspect.traces import TracedRun


class Told:
    """One run's log, step by step. Times are milliseconds since the start of the whole tree."""

    def __init__(self, run: str, agent: str, first: int = 1) -> None:
        self.log = TimedLog(run, first)
        self.run = run
        self.agent = agent
        self.turn = 0
        self.used = TokenUsage()
        self._cause = 0

    def start(self, text: str, *, at: float, under: tuple[str, str, str] | None = None) -> None:
        """``under``: the parent run, its call and the root, for a child run."""
        agents = {
            self.agent: AgentSpec(name=self.agent, host="tools", model="gpt-5"),
            "writer": AgentSpec(name="writer", host="tools", model="gpt-5-mini"),
        }
        started = RunStarted(
            pool="main",
            graph=GraphSpec(start=self.agent, agents=agents),
            input=[raw({"role": "user", "content": text})],
        )
        traceparent = ""
        if under is not None:
            above, call, root = under
            link = ParentLink(run=above, call=call, turn=1, pool="main", root=root)
            started = msgspec.structs.replace(started, parent=link)
            traceparent = TraceContext(trace_id_of(root), call_span_id(above, call)).header
        self._cause = self.log.add("start.main", started, at=at, traceparent=traceparent)

    def answers(self, *items: Raw, at: float, took: int, deliveries: int = 1) -> None:
        self.turn += 1
        usage = TokenUsage(
            requests=1,
            input_tokens=900 + 340 * self.turn,
            output_tokens=60 + 25 * len(items),
            total_tokens=960 + 340 * self.turn + 25 * len(items),
            cached_tokens=512,
        )
        self.used = self.used.plus(usage)
        event = ModelAnswered(
            turn=self.turn,
            agent=self.agent,
            output=list(items),
            usage=usage,
            model="gpt-5-2026-01-01",
            duration_ms=took,
        )
        self.log.add("model", event, at=at, cause=self._cause, deliveries=deliveries)

    def deferred(self, *, at: float, delay_s: float) -> None:
        limited = ErrorInfo(code="rate_limit", message="429: too many requests")
        event = ModelDeferred(
            turn=self.turn + 1,
            attempt=1,
            delay_s=delay_s,
            waited_s=0,
            error=limited,
            duration_ms=35,
        )
        self.log.add("model", event, at=at, cause=self._cause)
        again = TurnRequested(turn=self.turn + 1, agent=self.agent, reason="waited")
        self._cause = self.log.add("turn.main", again, at=at + delay_s * 1000)

    def asks(self, call: str, name: str, arguments: str, *, at: float, child: str = "") -> int:
        event = CallRequested(
            call=call,
            kind="child" if child else "tool",
            turn=self.turn,
            agent=self.agent,
            name=name,
            call_id=f"id-{call}",
            arguments=arguments,
            reply_pool="main",
            child=child,
        )
        return self.log.add("child" if child else "call.tools", event, at=at, cause=self._cause)

    def gets(
        self,
        call: str,
        output: Any,
        *,
        at: float,
        took: int = 0,
        cause: int = 0,
        error: ErrorInfo | None = None,
        child: str = "",
    ) -> None:
        event = CallFinished(
            call=call,
            kind="child" if child else "tool",
            turn=self.turn,
            output=raw(output),
            duration_ms=took,
            error=error,
            child=child,
            usage=self.used if child else TokenUsage(),
        )
        self._cause = self.log.add("result.main", event, at=at, cause=cause)

    def add(self, kind: str, event: Any, *, at: float) -> None:
        self._cause = self.log.add(kind, event, at=at, cause=self._cause)

    def ends(self, output: str, *, at: float, error: ErrorInfo | None = None) -> None:
        event = RunDone(
            status="failed" if error else "completed",
            agent=self.agent,
            turns=self.turn,
            usage=self.used,
            output=raw(output),
            error=error,
        )
        self.log.add("done", event, at=at, cause=self._cause)

    def page_run(self, *, contents: bool = True) -> TracedRun:
        trace = RunTrace.of(self.run, self.log.events, contents=contents)
        return TracedRun(facts=trace.facts(), spans=trace.spans(), events=self.log.events)


def in_one_log(runs: list[Told]) -> list[TracedRun]:
    """The runs with the sequences that they would have in the log that all runs share."""
    everything = [event for told in runs for event in told.log.events]
    everything.sort(key=lambda it: (it.stored.time, it.sequence))
    place = {event.sequence: number for number, event in enumerate(everything, 1)}
    for told in runs:
        told.log.events = [
            event._replace(
                sequence=place[event.sequence],
                stored=event.stored._replace(headers=_placed(event.stored.headers, place)),
            )
            for event in told.log.events
        ]
    return [told.page_run() for told in runs]


def _placed(headers: dict[str, str], place: dict[int, int]) -> dict[str, str]:
    cause = headers.get("Sandstream-Cause")
    return headers | ({"Sandstream-Cause": str(place[int(cause)])} if cause else {})


def _child(number: int, above: str, root: str, begins: float) -> Told:
    """A researcher with one search; some are deferred first, one search fails."""
    topic = f"market {number + 1}"
    told = Told(f"{above}_t1-{number}", "researcher", first=1000 + number * 50)
    told.start(f"Research {topic}.", at=begins, under=(above, f"t1-{number}", root))
    now = begins + 60 + 35 * number
    if number % 7 == 3:
        told.deferred(at=now + 40, delay_s=0.9)
        now += 970
    search = f'{{"query": "{topic} size 2026", "limit": 5}}'
    told.answers(calls("web_search", "id-t1-0", search), at=now + 420, took=400)
    sent = told.asks("t1-0", "web_search", search, at=now + 424)
    now += 900 + 40 * (number % 5)
    if number == 11:
        lost = ErrorInfo(code="tool_error", message="connection reset by peer after 3 attempts")
        told.gets("t1-0", lost.message, at=now, took=380, cause=sent, error=lost)
    else:
        found = {"results": [{"title": f"{topic}: a survey", "year": 2025, "score": 0.92}]}
        told.gets("t1-0", msgspec.json.encode(found).decode(), at=now, took=420, cause=sent)
    answer = f"{topic.capitalize()} grows by {3 + number % 6} % a year."
    now += 500 + 90 * (number % 4)
    told.answers(says(answer), at=now, took=460, deliveries=2 if number == 5 else 1)
    told.ends(answer, at=now + 3)
    return told


def tree(children: int = 20) -> list[TracedRun]:
    """A planner with many researchers at once, a person who is asked, a handoff, an end."""
    run = "run_7Q2M4KXA"
    top = Told(run, "planner")
    top.start(
        "Compare the twenty markets on the list, write a one-page report, and publish it.", at=0
    )
    asked = [
        calls("research", f"id-t1-{n}", f'{{"topic": "market {n + 1}"}}') for n in range(children)
    ]
    top.answers(*asked, at=1400, took=1320)
    below = []
    sent = {}
    for number in range(children):
        call = f"t1-{number}"
        begins = 1420 + 12 * number
        arguments = f'{{"topic": "market {number + 1}"}}'
        sent[number] = top.asks(call, "research", arguments, at=begins, child=f"{run}_{call}")
        below.append(_child(number, run, run, begins + 8))
    ended = [(it.log.events[-1].stored.time, n, it) for n, it in enumerate(below)]
    for time, number, child in sorted(ended, key=lambda it: (it[0], it[1])):
        at = float(time[17:-1]) * 1000 - 5000 + 6
        done = child.log.events[-1].event
        assert isinstance(done, RunDone)
        said = msgspec.json.decode(done.output)
        top.gets(f"t1-{number}", said, at=at, cause=sent[number], child=child.run)
    now = 5400.0
    report = '{"title": "Twenty markets", "pages": 1, "audience": ["board", "press"]}'
    top.answers(
        says("All twenty are in. I would like to publish the report."),
        calls("publish_report", "id-t2-0", report),
        at=now,
        took=900,
    )
    request = ApprovalRequested(
        call="t2-0",
        turn=2,
        agent="planner",
        name="publish_report",
        call_id="id-t2-0",
        arguments=report,
    )
    top.add("approval.requested", request, at=now + 5)
    top.add("waiting", RunWaiting(turn=2, approvals=[request]), at=now + 8)
    now += 2600
    top.add("approval.decided", ApprovalDecided(call="t2-0", approve=True, by="dana"), at=now)
    publishing = top.asks("t2-0", "publish_report", report, at=now + 12)
    top.gets("t2-0", {"url": "https://example.org/r/1"}, at=now + 700, took=610, cause=publishing)
    top.answers(calls("transfer_to_writer", "id-t3-0"), at=now + 1400, took=650)
    top.add("turn.main", TurnRequested(turn=4, agent="writer", reason="handoff"), at=now + 1404)
    top.agent = "writer"
    end = "The report is out. In short: twenty markets, all growing, three of them fast."
    top.answers(says(end), at=now + 2500, took=1040)
    top.ends(end, at=now + 2504)
    return in_one_log([top, *below])


def long_run(events: int = 5000) -> list[TracedRun]:
    """One run with very many tool calls."""
    told = Told("run_LONG", "crawler")
    told.start("Fetch every page of the site.", at=0)
    now = 0.0
    while len(told.log.events) < events - 2:
        call = f"t{told.turn + 1}-0"
        page = f'{{"url": "https://example.org/page/{told.turn}"}}'
        now += 40
        told.answers(calls("fetch", f"id-{call}", page), at=now, took=30)
        sent = told.asks(call, "fetch", page, at=now + 1)
        now += 25
        told.gets(call, f"page {told.turn}", at=now, took=20, cause=sent)
    told.answers(says("That was all."), at=now + 40, took=30)
    told.ends("That was all.", at=now + 41)
    return [told.page_run(contents=False)]
