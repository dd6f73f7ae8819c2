"""One model call, turned into the event that records it: the most expensive step of the harness.

A rate limit is a wait and not a failure. A short wait happens here; a long one becomes a durable
timer. Other failures, after the model client's retries, end the run with the endpoint's error.
"""

from __future__ import annotations

import asyncio
import time
from typing import Protocol

from sandstream_bus.bus import Bus
from sandstream_bus.wire.messages import ErrorInfo, ModelAnswered, ModelDeferred, ModelRetry
from sandstream_bus.wire.specs import NO_JSON

from sandstream_actors.harness.deltas import DeltaSink
from sandstream_actors.harness.step_kinds import AskModel
from sandstream_actors.harness.steps import next_step
from sandstream_actors.model import ModelAnswer, ModelCallError, ModelRequest
from sandstream_actors.model.client import OnEvent
from sandstream_actors.run.model_request import build_request, seen_upto
from sandstream_actors.run.state import RunState

SHORT_WAIT_S = 5.0
"""Waits up to this time happen in the process, longer ones in a timer."""
PATIENCE_S = 3600.0
"""How long in all a turn waits for rate limits before the run fails."""


class ModelCaller(Protocol):
    """The model client as the harness needs it."""

    async def call(self, request: ModelRequest, on_event: OnEvent | None = None) -> ModelAnswer: ...


async def take_turn(
    bus: Bus, models: ModelCaller, state: RunState, deliveries: int
) -> ModelAnswered | ModelDeferred | ErrorInfo | None:
    """Call the model for the due turn; None if it is no longer due."""
    if state.turn == 0 and "parallel" in state.agent.guards:
        # a parallel guardrail may have tripped before there was a call to stop
        state.fold(await bus.log.read(state.run, after=state.last_seq))
        if not isinstance(next_step(state), AskModel):
            return None
    turn = state.turn + 1
    request = build_request(state)
    upto = seen_upto(state)
    waited_s = state.waited_s
    attempt = state.wait_attempts
    began = time.monotonic()
    retries: list[ModelRetry] = []
    while True:
        sink = DeltaSink(bus, state.run, turn, deliveries) if request.stream else None
        try:
            answer = await models.call(request, sink)
        except ModelCallError as error:
            if error.kind != "rate_limited" or waited_s >= PATIENCE_S:
                failed = error_info(error, timeout_s=request.settings.get("timeout"))
                failed.data["duration_ms"] = _ms_since(began)
                return failed
            attempt += 1
            wanted_s = error.retry_after_s or min(0.5 * 2**attempt, 60.0)
            delay_s = min(wanted_s, PATIENCE_S - waited_s)
            waited_s += delay_s
            if delay_s > SHORT_WAIT_S:
                return ModelDeferred(
                    turn=turn,
                    attempt=attempt,
                    delay_s=delay_s,
                    waited_s=waited_s,
                    error=error_info(error),
                    duration_ms=_ms_since(began),
                )
            code = str(error.status or error.kind)
            retries.append(ModelRetry(code=code, after_ms=_ms_since(began), delay_s=delay_s))
            await asyncio.sleep(delay_s)
        else:
            if sink is not None:
                sink.flush()
            return ModelAnswered(
                turn=turn,
                agent=state.agent_name,
                output=answer.output,
                usage=answer.usage,
                response_id=answer.response_id,
                request_id=answer.request_id,
                model=answer.model,
                raw_usage=answer.raw_usage or NO_JSON,
                upto=upto,
                duration_ms=_ms_since(began),
                retries=retries,
            )


def _ms_since(began: float) -> int:
    return round((time.monotonic() - began) * 1000)


_CODES = {
    "behavior": "model_behavior",
    "timeout": "model_timeout",
    "misconfigured": "model_misconfigured",
}


def error_info(error: ModelCallError, timeout_s: float | None = None) -> ErrorInfo:
    """The seam's failure as data, complete enough for the caller to raise the right exception."""
    return ErrorInfo(
        code=_CODES.get(error.kind, "model_http"),
        message=error.message,
        data={
            key: value
            for key, value in (
                ("kind", error.kind),
                ("status", error.status),
                ("code", error.code),
                ("request_id", error.request_id),
                ("body", error.body),
                ("retry_after_s", error.retry_after_s),
                ("timeout_s", timeout_s),
            )
            if value is not None
        },
    )
