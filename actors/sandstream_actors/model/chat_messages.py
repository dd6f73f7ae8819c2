"""Convert Responses input items to Chat Completions messages. Pure.

Chat has one assistant message where Responses has several items: the text of a message and the
adjacent calls are collected until an item of another role follows.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from sandstream_actors.model.failures import unsupported

Fields = dict[str, Any]

OMITTED_OUTPUT = "[tool output omitted]"
REASONING_FIELD = "_chat_completions_reasoning_field"


def chat_messages(items: Iterable[Fields], instructions: str | None, model: str) -> list[Fields]:
    transcript = _Transcript(model)
    if instructions:
        transcript.messages.append({"content": instructions, "role": "system"})
    for item in items:
        transcript.add(item)
    transcript.close()
    return transcript.messages


class _Transcript:
    def __init__(self, model: str) -> None:
        self.messages: list[Fields] = []
        self._model = model
        self._assistant: Fields | None = None
        self._reasoning: Fields = {}

    def add(self, item: Fields) -> None:
        kind, role = item.get("type"), item.get("role")
        if role is not None and kind in (None, "message"):
            self._add_message(role, item.get("content"))
        elif kind == "function_call":
            self._add_call(item.get("call_id"), item.get("name"), item.get("arguments") or "{}")
        elif kind == "function_call_output":
            self.close()
            output = _tool_output(item.get("output"))
            self.messages.append(
                {"role": "tool", "tool_call_id": item.get("call_id"), "content": output}
            )
        elif kind == "reasoning":
            self._reasoning = _replayed_reasoning(item, self._model) or self._reasoning
        elif kind == "file_search_call":
            found = {"queries": item.get("queries", []), "status": item.get("status")}
            self._add_call(item.get("id"), "file_search_call", json.dumps(found))
        elif kind == "compaction":
            raise unsupported("Compaction items need the Responses API; this route speaks chat.")
        else:
            raise unsupported(
                f"An input item of type {kind!r} cannot be sent to a Chat Completions endpoint. "
                "Use a Responses route, or leave the item out."
            )

    def close(self) -> None:
        """The assistant's message is complete."""
        if self._assistant is not None:
            self.messages.append(self._assistant)
            self._assistant = None

    def _add_message(self, role: str, content: Any) -> None:
        if role == "assistant" and isinstance(content, list):
            self._add_answer(content)
            return
        self.close()
        if role not in ("user", "system", "developer", "assistant"):
            raise unsupported(f"A message of role {role!r} cannot be sent to a chat endpoint.")
        self._reasoning = {}
        if isinstance(content, str):
            parts: Any = content
        elif role == "user":
            parts = [_user_part(part) for part in content or ()]
        else:
            parts = _text_parts(content or ())
        self.messages.append({"role": role, "content": parts})

    def _add_answer(self, parts: list[Fields]) -> None:
        spoken = self._assistant
        if spoken is None or "tool_calls" not in spoken or spoken.get("content") is not None:
            self.close()
            self._assistant = spoken = self._new_assistant()
        texts = [part["text"] for part in parts if part.get("type") == "output_text"]
        refusals = [part["refusal"] for part in parts if part.get("type") == "refusal"]
        if texts:
            spoken["content"] = "\n".join(texts)
        if refusals:
            spoken["refusal"] = "\n".join(refusals)

    def _add_call(self, call_id: Any, name: Any, arguments: Any) -> None:
        if self._assistant is None:
            self._assistant = self._new_assistant()
            self._assistant["content"] = None
        function = {"name": name, "arguments": arguments}
        calls = self._assistant.setdefault("tool_calls", [])
        calls.append({"id": call_id, "type": "function", "function": function})

    def _new_assistant(self) -> Fields:
        message = {"role": "assistant", **self._reasoning}
        self._reasoning = {}
        return message


def _replayed_reasoning(item: Fields, model: str) -> Fields | None:
    """Reasoning for endpoints that want their own back; never that of another model."""
    data = item.get("provider_data") or {}
    author = data.get("model")
    if data.get(REASONING_FIELD) == "reasoning":
        texts = [part.get("text", "") for part in item.get("content") or ()]
        return {"reasoning": "\n".join(texts)} if author == model and texts else None
    if "deepseek" in model.lower() and (author is None or "deepseek" in author.lower()):
        texts = [part.get("text", "") for part in item.get("summary") or ()]
        return {"reasoning_content": "\n".join(texts)} if texts else None
    return None


def _tool_output(output: Any) -> str | list[Fields]:
    if isinstance(output, str):
        return output
    if isinstance(output, list):
        return _text_parts(output) or OMITTED_OUTPUT
    raise unsupported("A tool output must be text or a list of content parts.")


def _text_parts(parts: Iterable[Fields]) -> list[Fields]:
    return [
        {"type": "text", "text": part["text"]} for part in parts if part.get("type") == "input_text"
    ]


def _user_part(part: Fields) -> Fields:
    match part.get("type"):
        case "input_text":
            return {"type": "text", "text": part["text"]}
        case "input_image":
            if not part.get("image_url"):
                raise unsupported("A chat endpoint takes images as URLs only (input_image).")
            image = {"url": part["image_url"], "detail": part.get("detail", "auto")}
            return {"type": "image_url", "image_url": image}
        case "input_audio":
            audio = part.get("input_audio") or {}
            if not audio.get("data") or not audio.get("format"):
                raise unsupported("input_audio needs both data and format.")
            kept = {"data": audio["data"], "format": audio["format"]}
            return {"type": "input_audio", "input_audio": kept}
        case "input_file":
            names = ("file_data", "file_id", "filename")
            file = {name: part[name] for name in names if part.get(name)}
            if "file_data" not in file and "file_id" not in file:
                raise unsupported("A chat endpoint takes files as file_data or file_id only.")
            return {"type": "file", "file": file}
        case other:
            raise unsupported(f"A content part of type {other!r} cannot be sent to a chat endpoint")
