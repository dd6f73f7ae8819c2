"""Reports of sandbox agents, without what is each SDK's own.

Left out or numbered: the place of the workspace, chunk ids, wall times, process numbers, the words
of built-in prompts, tool descriptions and grammars. What is kept: sections, trees, names, schemas,
outputs.
"""

from __future__ import annotations

import re
from typing import Any

BUILT_IN_TOOLS = {"apply_patch", "exec_command", "load_skill", "view_image", "write_stdin"}
_HEADERS = (
    "Agent instructions",
    "Sandbox capability instructions",
    "Sandbox remote mount policy",
    "Filesystem",
)
_SECTION = re.compile(rf"^# ({'|'.join(_HEADERS)})\n", re.MULTILINE)
_OWN_WORDS = {"Sandbox capability instructions", "Sandbox remote mount policy"}
_MARK = re.compile(r"^\[[^\]]*\]$", re.MULTILINE)
"""How programs mark texts of their own: alone on a line, in brackets."""
_LONG = 1500
"""A base prompt of more characters is a built-in one: programs have short ones."""

_REPLACED: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"/\S*?/sandbox-local-\w+"), "/workspace"),
    (re.compile(r"\bChunk ID: [0-9a-f]{6}\b"), "Chunk ID: #"),
    (re.compile(r"\bWall time: \d+\.\d{4} seconds"), "Wall time: #"),
    (re.compile(r"\b(session ID|session_id\\?\":|session not found:) ?(?!4321)\d{4,6}\b"), r"\1 #"),
)


def without_own_words(report: dict[str, Any], folder: str) -> dict[str, Any]:
    """`folder`: where the driver ran; programs may show paths below it."""
    for request in report["requests"]:
        body = request["body"]
        if isinstance(body.get("instructions"), str):
            body["instructions"] = sections(body["instructions"])
        if body.get("messages"):  # of Chat Completions
            body["messages"][0]["content"] = sections(body["messages"][0]["content"])
        body["tools"] = [_tool(one) for one in body.get("tools", [])]
    changed: dict[str, Any] = _walk(report, folder)
    return changed


def sections(prompt: str) -> dict[str, Any]:
    """Header -> text, as far as the text is the program's own or a tree."""
    parts = _SECTION.split(prompt)
    base = parts[0].strip()
    found: dict[str, Any] = {"base": "(built-in)" if len(base) > _LONG else base}
    for header, body in zip(parts[1::2], parts[2::2], strict=True):
        if header in _OWN_WORDS:
            found[header] = _MARK.findall(body)
        elif header == "Filesystem":
            found[header] = _tree(body)
        else:
            found[header] = body.strip()
    return found


def _tree(body: str) -> list[str]:
    """The tree, and that there is a remark after it, if there is one."""
    paragraphs = body.strip().split("\n\n")
    start = next(at for at, one in enumerate(paragraphs) if one.startswith("/"))
    return [*paragraphs[start].splitlines(), *("(remark)" for _ in paragraphs[start + 1 :])]


def _tool(tool: dict[str, Any]) -> dict[str, Any]:
    name = tool.get("name") or tool.get("function", {}).get("name")
    return _without_descriptions(tool) if name in BUILT_IN_TOOLS else tool


def _without_descriptions(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_descriptions(one) for one in value]
    if not isinstance(value, dict):
        return value
    return {
        key: bool(one)
        if key in ("definition", "description") and isinstance(one, str)
        else _without_descriptions(one)
        for key, one in value.items()
        if key != "title"
    }


def _walk(value: Any, folder: str) -> Any:
    if isinstance(value, str):
        for pattern, new in _REPLACED:
            value = pattern.sub(new, value)
        return value.replace(folder, "<folder>")
    if isinstance(value, list):
        return [_walk(one, folder) for one in value]
    if isinstance(value, dict):
        changed = {key: _walk(one, folder) for key, one in value.items()}
        item = changed.get("input_item")
        if isinstance(item, dict) and item.get("name") in BUILT_IN_TOOLS:
            changed["description"] = bool(changed.get("description"))
        return changed
    return value
