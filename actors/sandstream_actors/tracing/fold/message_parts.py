"""Convert items of the Responses API to messages of OpenTelemetry's GenAI conventions.

Items come from models, tools and callers, in any shape. Of an unknown item only the kind is shown;
nothing here raises. Binary data (images, files, sound) is never repeated, only its type and size.
Data that only the vendor can read (encrypted reasoning) is omitted.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Raw

Part = dict[str, Any]
Message = dict[str, Any]
Item = dict[str, Any]

_MAX_DEPTH = 32
_ROLES = {"developer": "system"}
_DATA_URL = re.compile(
    r"data:([\w.+-]{1,80}/[\w.+-]{1,80})?((?:;[\w=.-]{1,80}){0,4});base64,([\w+/=%-]*+)"
)
_CALLS = {
    "function_call": ("name", "arguments"),
    "custom_tool_call": ("name", "input"),
    "computer_call": (None, "action"),
    "shell_call": (None, "action"),
    "local_shell_call": (None, "action"),
    "apply_patch_call": (None, "operation"),
}
"""Calls that the caller's process answers: the fields of their name and arguments."""
_HOSTED_CALLS = {
    "code_interpreter_call": (("code", "container_id"), ("outputs",)),
    "file_search_call": (("queries",), ("results",)),
    "image_generation_call": (("revised_prompt",), ("result",)),
    "mcp_call": (("server_label", "arguments"), ("output", "error")),
    "web_search_call": (("action",), ()),
}
"""Calls that the vendor answers: the fields of the request and of the result."""


def decoded(raw: Raw | bytes | str) -> Any:
    """The JSON value; ``None`` if it is not valid JSON."""
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return None


def message_of(raw: Raw) -> Message:
    """An item as a message."""
    item = decoded(raw)
    if not isinstance(item, dict):
        return {"role": "unknown", "parts": [{"type": "unreadable", "size": len(bytes(raw))}]}
    return {"role": _role(item), "parts": parts_of(item)}


def parts_of(item: Item) -> list[Part]:
    """The parts of an item."""
    kind = _text(item.get("type")) or "message"
    if kind == "message":
        return content_parts(item.get("content"))
    if kind == "reasoning":
        return [_reasoning(item)]
    if kind in _CALLS:
        return [_call(kind, item)]
    if kind in _HOSTED_CALLS:
        return _hosted_call(kind, item)
    if kind.endswith("_output") and "output" in item:
        return [
            {
                "type": "tool_call_response",
                "id": _text(item.get("call_id") or item.get("id")),
                "response": response_of(item["output"]),
            }
        ]
    return [{"type": kind}]


def response_of(output: Any) -> Any:
    """The output of a tool: a text, content parts, or other JSON."""
    if isinstance(output, list):
        return content_parts(output)
    if isinstance(output, dict) and output.get("type") == "computer_screenshot":
        return content_parts([output])
    return without_bytes(output)


def content_parts(content: Any) -> list[Part]:
    """The content of a message or of a tool's output, as parts."""
    if isinstance(content, list):
        return [_content_part(part) for part in content]
    if content is None:
        return []
    return [{"type": "text", "content": _plain(content)}]


def arguments_of(arguments: Any) -> Any:
    """Arguments decoded from JSON; unchanged if they are not JSON."""
    if isinstance(arguments, str) and arguments.lstrip()[:1] in ("{", "["):
        value = decoded(arguments)
        return without_bytes(arguments if value is None else value)
    return without_bytes(arguments)


def without_bytes(value: Any, depth: int = 0) -> Any:
    """The value, with each data URL's bytes replaced by their size."""
    if depth > _MAX_DEPTH:
        return "[nested too deep]"
    match value:
        case str():
            return _DATA_URL.sub(_data_left_out, value) if ";base64," in value else value
        case list():
            return [without_bytes(it, depth + 1) for it in value]
        case dict():
            return {key: without_bytes(it, depth + 1) for key, it in value.items()}
        case _:
            return value


def _data_left_out(match: re.Match[str]) -> str:
    kind, options, data = match.groups()
    return f"data:{kind or ''}{options};base64,[{_size(data)} bytes left out]"


def _role(item: Item) -> str:
    kind = _text(item.get("type"))
    if kind.endswith(("_output", "_response")):
        return "tool"
    role = _text(item.get("role"))
    if role:
        return _ROLES.get(role, role)
    return "assistant" if kind and kind != "message" else "user"


def _reasoning(item: Item) -> Part:
    texts = [
        _text(part.get("text"))
        for name in ("summary", "content")
        for part in _dicts(item.get(name))
    ]
    return {"type": "reasoning", "content": "\n".join(text for text in texts if text)}


def _call(kind: str, item: Item) -> Part:
    name, arguments = _CALLS[kind]
    asked = item.get(arguments)
    if asked is None:
        asked = item.get("actions")  # a computer call may have several
    return {
        "type": "tool_call",
        "id": _text(item.get("call_id") or item.get("id")),
        "name": _text(item.get(name)) if name else kind.removesuffix("_call"),
        "arguments": without_bytes(asked) if kind == "custom_tool_call" else arguments_of(asked),
    }


def _hosted_call(kind: str, item: Item) -> list[Part]:
    asked, answered = _HOSTED_CALLS[kind]
    name = kind.removesuffix("_call")
    ident = _text(item.get("id"))
    call = {key: arguments_of(item[key]) for key in asked if item.get(key) is not None}
    parts: list[Part] = [
        {
            "type": "server_tool_call",
            "id": ident,
            "name": _text(item.get("name")) or name,
            "server_tool_call": {"type": name, **call},
        }
    ]
    result = {key: without_bytes(item[key]) for key in answered if item.get(key) is not None}
    if kind == "image_generation_call" and result:
        parts.append(_blob("image", item.get("result"), "image/png"))
    elif result:
        response = {"type": name, **result}
        parts.append(
            {
                "type": "server_tool_call_response",
                "id": ident,
                "server_tool_call_response": response,
            }
        )
    return parts


# --- content parts ---------------------------------------------------------------------------


def _content_part(part: Any) -> Part:
    if not isinstance(part, dict):
        return {"type": "text", "content": _plain(part)}
    kind = _text(part.get("type"))
    make = _CONTENT.get(kind)
    return make(part) if make else {"type": kind or "unknown"}


def _text_part(part: Item) -> Part:
    return {"type": "text", "content": _plain(part.get("text"))}


def _refusal_part(part: Item) -> Part:
    return {"type": "refusal", "content": _plain(part.get("refusal"))}


def _reasoning_part(part: Item) -> Part:
    return {"type": "reasoning", "content": _plain(part.get("text"))}


def _image_part(part: Item) -> Part:
    url = part.get("image_url")
    if isinstance(url, dict):
        url = url.get("url")
    return _media("image", url, part.get("file_id"))


def _audio_part(part: Item) -> Part:
    sound = part.get("input_audio") or part
    if not isinstance(sound, dict):
        return {"type": "blob", "modality": "audio", "content": "", "size": 0}
    return _blob("audio", sound.get("data"), f"audio/{_text(sound.get('format')) or 'wav'}")


def _file_part(part: Item) -> Part:
    if part.get("file_data"):
        made = _blob("document", part["file_data"], "")
    else:
        made = _media("document", part.get("file_url"), part.get("file_id"))
    name = _text(part.get("filename"))
    return {**made, "filename": name} if name else made


_CONTENT: dict[str, Callable[[Item], Part]] = {
    "text": _text_part,
    "input_text": _text_part,
    "output_text": _text_part,
    "summary_text": _reasoning_part,
    "reasoning_text": _reasoning_part,
    "refusal": _refusal_part,
    "image_url": _image_part,
    "input_image": _image_part,
    "computer_screenshot": _image_part,
    "input_audio": _audio_part,
    "output_audio": _audio_part,
    "input_file": _file_part,
}


def _media(modality: str, url: Any, file_id: Any) -> Part:
    if isinstance(url, str) and url:
        if url.startswith("data:"):
            return _blob(modality, url, "")
        return {"type": "uri", "modality": modality, "uri": url}
    return {"type": "file", "modality": modality, "file_id": _text(file_id)}


def _blob(modality: str, data: Any, mime_type: str) -> Part:
    """Inline binary data: base64 or a data URL."""
    text = _text(data)
    if text.startswith("data:"):
        head, _, text = text.partition(",")
        mime_type = head[len("data:") :].partition(";")[0][:160] or mime_type
    if mime_type.startswith(("image/", "audio/", "video/")):
        modality = mime_type.partition("/")[0]
    made: Part = {"type": "blob", "modality": modality, "content": "", "size": _size(text)}
    return {**made, "mime_type": mime_type} if mime_type else made


def _size(base64: str) -> int:
    return len(base64.rstrip("=")) * 3 // 4


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _plain(value: Any) -> str:
    """Text as it is; other values as JSON."""
    if value is None:
        return ""
    bare = without_bytes(value)
    return bare if isinstance(bare, str) else msgspec.json.encode(bare).decode()


def _dicts(value: Any) -> list[Item]:
    return [it for it in value if isinstance(it, dict)] if isinstance(value, list) else []
