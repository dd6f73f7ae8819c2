"""From a request to its reply: route, decode, validate, choose the step, journal, write the answer.

Owns the behaviour of the endpoints and OpenAI's error JSON. A request is journaled before it is
answered.
"""

import itertools
import time
import uuid
from typing import Any, assert_never

import msgspec

from sandstream.testing.chat_api import completion_body, completion_stream
from sandstream.testing.http_server import HttpRequest, Reply
from sandstream.testing.journal import Api, Journal, Request
from sandstream.testing.request_reader import Json
from sandstream.testing.responses_api import response_body, response_stream
from sandstream.testing.script import Choice, Script, Selector
from sandstream.testing.steps import Answer, CustomToolCall, Drop, HttpError, Malformed, Step
from sandstream.testing.turn import Turn
from sandstream.testing.validation import find_problem

_KINDS = {
    401: "authentication_error",
    403: "permission_error",
    429: "rate_limit_error",
}


class Endpoints:
    """Answers HTTP requests from a script. Not thread-safe: one loop calls it."""

    def __init__(self, script: Script, journal: Journal, models: tuple[str, ...]) -> None:
        self._salt = uuid.uuid4().hex[:16]
        self._selector = Selector(script, self._salt)
        self._journal = journal
        self._models = models
        self._numbers = itertools.count(1)

    def unused(self) -> list[str]:
        return self._selector.unused()

    def __call__(self, request: HttpRequest) -> Reply:
        unique = f"{self._salt}{next(self._numbers):08x}"
        reply = self._reply(request, unique)
        reply.headers = {"x-request-id": f"req_{unique}", **reply.headers}
        return reply

    def _reply(self, request: HttpRequest, unique: str) -> Reply:
        path = request.path.partition("?")[0].rstrip("/")
        if request.method == "GET" and "/models" in path:
            return self._list_models(path)
        api = _api_of(path) if request.method == "POST" else "other"
        record = Request(
            number=len(self._journal.requests),
            api=api,
            path=request.path,
            at=time.monotonic(),
            headers=request.headers,
        )
        reply = self._answer(record, request, unique)
        record.status = reply.status
        reply.on_sent = lambda: setattr(record, "answered", True)
        self._journal.append(record, request.body)
        return reply

    def _answer(self, record: Request, request: HttpRequest, unique: str) -> Reply:
        if record.api == "other":
            record.problem = f"Unknown request URL: {request.method} {request.path}"
            record.unexpected = True
            return _error(404, record.problem, code="unknown_url")
        try:
            body = msgspec.json.decode(request.body)
        except (msgspec.DecodeError, UnicodeDecodeError) as bad:
            record.problem = f"We could not parse the JSON body of your request: {bad}"
            return _error(400, record.problem)
        if not isinstance(body, dict):
            record.problem = "The JSON body of your request is not an object."
            return _error(400, record.problem)
        record.body = body
        problem = find_problem(record.api, body)
        if problem is not None:
            record.problem = problem.message
            return _error(400, problem.message, param=problem.param, code=problem.code)
        choice = self._selector.choose(record)
        if choice is None:
            record.problem = f"The script has no step for this request: {_tail(record)}"
            record.unexpected = True
            return _error(500, record.problem, code="unexpected_request")
        if record.api == "chat" and _calls_custom_tool(choice.step):
            record.problem = (
                f"Step {choice.label} calls a custom tool: the scripted model does that on the "
                "Responses API only. Use tool_call(), or let the client use /v1/responses."
            )
            record.unexpected = True
            return _error(500, record.problem, code="unexpected_request")
        record.step = choice.label
        record.conversation = choice.conversation
        record.position = choice.position
        return _play(record, choice, unique, len(request.body))

    def _list_models(self, path: str) -> Reply:
        models = [
            {"id": name, "object": "model", "created": 0, "owned_by": "sandstream"}
            for name in self._models
        ]
        wanted = path.rpartition("/models")[2].lstrip("/")
        if not wanted:
            return _json({"object": "list", "data": models})
        for model in models:
            if model["id"] == wanted:
                return _json(model)
        return _error(404, f"The model '{wanted}' does not exist", code="model_not_found")


def _play(record: Request, choice: Choice, unique: str, body_bytes: int) -> Reply:
    """The reply of the chosen step."""
    step, action = choice.step, choice.step.action
    match action:
        case HttpError():
            reply = _error(
                action.status,
                action.message or f"The script answers with HTTP {action.status}.",
                code=action.code,
                kind=action.kind,
            )
            if action.retry_after_s is not None:
                reply.headers = {"retry-after": f"{action.retry_after_s:g}"}
        case Malformed():
            data = action.body.encode()
            if record.stream:
                reply = _event_stream([(0.0, b"data: %b\n\n" % data)])
            else:
                reply = Reply(pieces=[(0.0, data)])
        case Answer() | Drop():
            turn = Turn(
                body=record.body,
                body_bytes=body_bytes,
                step=step,
                answer=action.answer if isinstance(action, Drop) else action,
                unique=unique,
                call_prefix=choice.call_prefix,
                response_prefix=choice.response_prefix,
            )
            reply = _write(record, turn)
            if isinstance(action, Drop):
                reply.dropped, reply.drop_after_bytes = True, action.after_bytes
        case _:
            assert_never(action)
    reply.latency_s = step.latency_s
    return reply


def _write(record: Request, turn: Turn) -> Reply:
    if record.api == "responses":
        if record.stream:
            return _event_stream(response_stream(turn))
        return Reply(pieces=[(0.0, response_body(turn))])
    if turn.answer.status == "failed":
        return _error(500, turn.answer.message, code=turn.answer.reason)
    if record.stream:
        return _event_stream(completion_stream(turn))
    return Reply(pieces=[(0.0, completion_body(turn))])


def _calls_custom_tool(step: Step) -> bool:
    action = step.action
    answer = action.answer if isinstance(action, Drop) else action
    return isinstance(answer, Answer) and any(
        isinstance(item, CustomToolCall) for item in answer.items
    )


def _api_of(path: str) -> Api:
    """By the end of the path, so that the longer paths of Azure and gateways work too."""
    if path.endswith("/chat/completions"):
        return "chat"
    return "responses" if path.endswith("/responses") else "other"


def _event_stream(pieces: list[tuple[float, bytes]]) -> Reply:
    return Reply(pieces=pieces, content_type="text/event-stream; charset=utf-8", chunked=True)


def _json(value: Json, status: int = 200) -> Reply:
    return Reply(status=status, pieces=[(0.0, msgspec.json.encode(value))])


def _error(
    status: int, message: str, *, param: str | None = None, code: str | None = None, kind: str = ""
) -> Reply:
    if not kind:
        kind = "server_error" if status >= 500 else _KINDS.get(status, "invalid_request_error")
    error: dict[str, Any] = {"message": message, "type": kind, "param": param, "code": code}
    return _json({"error": error}, status)


def _tail(record: Request) -> str:
    text = record.text
    return repr(text if len(text) <= 200 else "..." + text[-197:])
