"""Write Responses stream events while a chat answer arrives. Independent of the transport.

Items are opened in the order of their first piece and closed at the end: reasoning, the parts of
the message, the calls, the message.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import msgspec

from sandstream_actors.model.chat_items import (
    Fields,
    call_item,
    message_item,
    reasoning_item,
    refusal_part,
    summary_item,
    text_part,
    usage_fields,
)
from sandstream_actors.model.interface import Usage
from sandstream_actors.model.responses_request import FAKE_ID

_encode = msgspec.json.Encoder().encode


class CallSlot(msgspec.Struct):
    """A tool call that is still arriving."""

    id: str = ""
    name: str = ""
    pieces: list[str] = []
    output_index: int | None = None

    @property
    def arguments(self) -> str:
        return "".join(self.pieces)


class EventWriter:
    """Turns pieces of an answer into events; `output` is the finished list of items."""

    def __init__(self, emit: Callable[[bytes, str], None], model: str) -> None:
        self.data: Fields = {"model": model}
        self.output: list[Fields] = []
        self.silent = True
        self._emit = emit
        self._model = model
        self._sequence = 0
        self._indices = 0
        self._created_at = time.time()
        self._reasoning: tuple[str, int] | None = None
        self._thoughts: list[str] = []
        self._summary_open = False
        self._message_index: int | None = None
        self._parts: list[Fields] = []
        self._pieces: list[list[str]] = []
        self._calls: dict[int, CallSlot] = {}

    def created(self) -> None:
        self._write("response.created", response=self._response([]))

    def reasoning(self, text: str, kind: str) -> None:
        """`kind` is the delta's field: ``reasoning_content`` (a summary) or ``reasoning``."""
        if self._reasoning is None:
            self._reasoning = (kind, self._next_index())
            summary = kind == "reasoning_content"
            item = summary_item(None, self.data) if summary else reasoning_item("", self.data)
            self._write("response.output_item.added", item=item, output_index=self._reasoning[1])
            if summary:
                self._summary_open = True
                self._summary("part.added", part={"text": "", "type": "summary_text"})
        self._thoughts.append(text)
        if self._reasoning[0] == "reasoning_content":
            self._summary("text.delta", delta=text)
        else:
            self._at(
                "response.reasoning_text.delta", self._reasoning[1], content_index=0, delta=text
            )

    def text(self, delta: str, logprobs: list[Any]) -> None:
        index = self._part("output_text")
        self._pieces[index].append(delta)
        self._parts[index]["logprobs"].extend(logprobs)
        self._in_message(
            "response.output_text.delta", content_index=index, delta=delta, logprobs=logprobs
        )

    def refusal(self, delta: str) -> None:
        index = self._part("refusal")
        self._pieces[index].append(delta)
        self._in_message("response.refusal.delta", content_index=index, delta=delta)

    def call(self, position: int, call_id: str, name: str, arguments: str) -> None:
        self._speak()
        slot = self._calls.setdefault(position, CallSlot())
        slot.id = slot.id or call_id
        slot.name = name or slot.name
        slot.pieces.append(arguments)
        if slot.output_index is not None:
            delta = arguments
        elif slot.id and slot.name:
            self._open_call(slot, "")
            delta = slot.arguments
        else:
            return
        if delta and slot.output_index is not None:
            self._at("response.function_call_arguments.delta", slot.output_index, delta=delta)

    def position_of(self, call_id: str | None) -> int:
        """Where a delta without an index belongs: a new id opens a call, else the last call."""
        if call_id and all(slot.id != call_id for slot in self._calls.values()):
            return len(self._calls)
        return max(len(self._calls) - 1, 0)

    def completed(self, usage: Usage | None) -> None:
        finished: dict[int, Fields] = {}
        self._close_reasoning(finished)
        for index, part in enumerate(self._parts):
            part["text" if part["type"] == "output_text" else "refusal"] = "".join(
                self._pieces[index]
            )
            self._in_message("response.content_part.done", content_index=index, part=part)
        for slot in self._calls.values():
            self._close_call(slot, finished)
        if self._message_index is not None:
            item = message_item(self._parts, self.data)
            self._done(item, self._message_index, finished)
        self.output = [finished[index] for index in sorted(finished)]
        response = self._response(self.output)
        response["usage"] = usage_fields(usage) if usage is not None else None
        self._write("response.completed", response=response)

    def _close_reasoning(self, finished: dict[int, Fields]) -> None:
        if self._reasoning is None:
            return
        self._close_summary()
        kind, index = self._reasoning
        if kind == "reasoning_content":
            item = summary_item(self._thought, self.data)
        else:
            item = reasoning_item(self._thought, self.data)
            self._at("response.reasoning_text.done", index, content_index=0, text=self._thought)
        self._done(item, index, finished)

    def _close_call(self, slot: CallSlot, finished: dict[int, Fields]) -> None:
        index = slot.output_index
        if index is None:
            index = self._open_call(slot, slot.arguments)
            self._at("response.function_call_arguments.delta", index, delta=slot.arguments)
        self._done(call_item(slot.id, slot.name, slot.arguments, self.data), index, finished)

    def _open_call(self, slot: CallSlot, arguments: str) -> int:
        slot.output_index = index = self._next_index()
        item = call_item(slot.id, slot.name, arguments, self.data)
        self._write("response.output_item.added", item=item, output_index=index)
        return index

    def _part(self, kind: str) -> int:
        self._speak()
        if self._message_index is None:
            self._message_index = self._next_index()
            item = message_item([], self.data, "in_progress")
            self._write("response.output_item.added", item=item, output_index=self._message_index)
        for index, part in enumerate(self._parts):
            if part["type"] == kind:
                return index
        part = text_part("", [], []) if kind == "output_text" else refusal_part("")
        self._parts.append(part)
        self._pieces.append([])
        index = len(self._parts) - 1
        self._in_message("response.content_part.added", content_index=index, part=part)
        return index

    def _speak(self) -> None:
        self.silent = False
        self._close_summary()

    @property
    def _thought(self) -> str:
        return "".join(self._thoughts)

    def _close_summary(self) -> None:
        if self._summary_open:
            self._summary_open = False
            self._summary("part.done", part={"text": self._thought, "type": "summary_text"})

    def _summary(self, what: str, **fields: Any) -> None:
        assert self._reasoning is not None
        kind = f"response.reasoning_summary_{what}"
        self._at(kind, self._reasoning[1], summary_index=0, **fields)

    def _in_message(self, kind: str, **fields: Any) -> None:
        assert self._message_index is not None
        self._at(kind, self._message_index, **fields)

    def _at(self, kind: str, output_index: int, **fields: Any) -> None:
        self._write(kind, item_id=FAKE_ID, output_index=output_index, **fields)

    def _done(self, item: Fields, index: int, finished: dict[int, Fields]) -> None:
        finished[index] = item
        self._write("response.output_item.done", item=item, output_index=index)

    def _next_index(self) -> int:
        self._indices += 1
        return self._indices - 1

    def _write(self, kind: str, **fields: Any) -> None:
        fields["sequence_number"] = self._sequence
        fields["type"] = kind
        self._sequence += 1
        self._emit(_encode(fields), kind)

    def _response(self, output: list[Fields]) -> Fields:
        return {
            "id": FAKE_ID,
            "created_at": self._created_at,
            "model": self._model,
            "object": "response",
            "output": output,
            "parallel_tool_calls": False,
            "temperature": None,
            "tool_choice": "auto",
            "tools": [],
            "top_p": None,
            "reasoning": None,
        }
