"""Read a streamed Chat Completions answer as Responses events."""

from __future__ import annotations

from typing import Any

import msgspec

from sandstream_actors.model.chat_answer import cut_short
from sandstream_actors.model.chat_events import EventWriter
from sandstream_actors.model.chat_items import FILTERED, ChatUsage, provider_data
from sandstream_actors.model.failures import malformed, stream_error
from sandstream_actors.model.interface import NO_JSON, ModelAnswer, Usage, given
from sandstream_actors.model.responses_answer import PRELUDE, OnEvent, ended_early
from sandstream_actors.model.transport import Received


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: str | None = None


class _CallDelta(msgspec.Struct):
    index: int | None = None
    id: str | None = None
    function: _Function | None = None


class _Delta(msgspec.Struct):
    content: str | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[_CallDelta] | None = None


class _Logprobs(msgspec.Struct):
    content: list[Any] | None = None


class _Choice(msgspec.Struct):
    index: int | None = None
    delta: _Delta | None = None
    finish_reason: str | None = None
    logprobs: _Logprobs | None = None


class _Chunk(msgspec.Struct):
    id: str | None = None
    model: str | None = None
    choices: list[_Choice] | None = None
    usage: msgspec.Raw = NO_JSON
    error: Any = None


_decode = msgspec.json.Decoder(_Chunk).decode
_decode_usage = msgspec.json.Decoder(ChatUsage).decode
_encode = msgspec.json.Encoder().encode


class ChatStream:
    """Reads one stream to its end; `seen` and `committed` say what the caller was shown."""

    def __init__(
        self,
        received: Received,
        model: str,
        on_event: OnEvent | None,
        *,
        keep_usage: bool,
        official: bool,
    ) -> None:
        self.seen = 0
        self.committed = False
        self._received = received
        self._on_event = on_event
        self._keep_usage = keep_usage
        self._official = official
        self._model = model
        self._served_by: str | None = None
        self._writer = EventWriter(self._pass_on, model)
        self._started = False
        self._finish_reason: str | None = None
        self._usage: Usage | None = None
        self._raw_usage = NO_JSON

    async def read(self) -> ModelAnswer:
        done = await self._received.events(self._take)
        # OpenAI always gives a reason; elsewhere the end marker counts as one.
        finished = self._finish_reason is not None or (done and not self._official)
        if not self._started or not finished:
            raise ended_early(self._received)
        if self._writer.silent and self._finish_reason == "length":
            raise cut_short(self._received)
        if self._writer.silent and self._finish_reason == "content_filter":
            self._writer.refusal(FILTERED)
        self._writer.completed(self._usage)
        return ModelAnswer(
            output=[msgspec.Raw(_encode(item)) for item in self._writer.output],
            usage=self._usage or Usage(requests=1),
            request_id=self._received.request_id,
            model=self._served_by,
            raw_usage=self._raw_usage if self._keep_usage else NO_JSON,
        )

    def _take(self, data: bytes) -> bool:
        if data == b"[DONE]":
            return True
        try:
            chunk = _decode(data)
            if given(chunk.usage):
                self._usage = _decode_usage(chunk.usage).flat()
                self._raw_usage = chunk.usage.copy()
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            at = self._received.where, self._received.request_id
            raise malformed(f"a stream chunk: {error}", *at) from error
        if chunk.error is not None:
            raise stream_error(chunk.error, self._received.where, self._received.request_id)
        if not self._started:
            self._started = True
            self._served_by = chunk.model
            self._writer.data = provider_data(self._model, chunk.id)
            self._writer.created()
        for choice in chunk.choices or ():
            if not choice.index:
                self._add(choice)
        return False

    def _add(self, choice: _Choice) -> None:
        self._finish_reason = choice.finish_reason or self._finish_reason
        delta = choice.delta
        if delta is None:
            return
        if delta.reasoning_content:
            self._writer.reasoning(delta.reasoning_content, "reasoning_content")
        elif delta.reasoning:
            self._writer.reasoning(delta.reasoning, "reasoning")
        if delta.content:
            logprobs = choice.logprobs.content if choice.logprobs is not None else None
            self._writer.text(delta.content, logprobs or [])
        if delta.refusal:
            self._writer.refusal(delta.refusal)
        for call in delta.tool_calls or ():
            position = call.index if call.index is not None else self._writer.position_of(call.id)
            function = call.function or _Function()
            self._writer.call(
                position, call.id or "", function.name or "", function.arguments or ""
            )

    def _pass_on(self, data: bytes, kind: str) -> None:
        self.committed = self.committed or kind not in PRELUDE
        if self._on_event is not None:
            self.seen += 1
            self._on_event(data)
