"""What was said, as blocks with the role beside the text: for ``show`` and ``conversations``."""

from __future__ import annotations

import textwrap
from typing import Any

from sandstream.cli.event_texts import call_text, item_text, value_text
from sandstream.cli.render import Screen, clean, pad, shorten

ROLE_WIDTH = 10
_MOST_LINES = 40
_STYLES = {"user": "bold blue", "assistant": "bold green"}


def print_items(screen: Screen, items: list[Any]) -> None:
    """Items of the Responses API, each as a block."""
    names: dict[str, str] = {}
    for item in items:
        if not isinstance(item, dict):
            continue
        match item.get("type", "message"):
            case "message":
                role = str(item.get("role", "assistant"))
                _print_block(screen, role, item_text(item), _STYLES.get(role, "bold"))
            case "custom_tool_call":
                names[str(item.get("call_id"))] = str(item.get("name"))
                text = f"{item.get('name')}:\n{item.get('input', '')}"
                _print_block(screen, "call", text, "magenta")
            case "function_call":
                names[str(item.get("call_id"))] = str(item.get("name"))
                text = call_text(str(item.get("name")), str(item.get("arguments", "")))
                _print_block(screen, "call", text, "magenta")
            case "function_call_output" | "custom_tool_call_output":
                name = names.get(str(item.get("call_id")), "?")
                _print_block(
                    screen, "result", f"{name} → {value_text(item.get('output'))}", "magenta"
                )
            case "reasoning":
                if text := item_text(item):
                    _print_block(screen, "thinks", text, "dim")
            case other:
                _print_block(screen, str(other).removesuffix("_call"), value_text(item), "dim")


def _print_block(screen: Screen, role: str, text: str, style: str) -> None:
    """A role, and what it says beside it, wrapped to the screen."""
    width = max(20, min(screen.width, 140) - ROLE_WIDTH)
    lines: list[str] = []
    for paragraph in clean(text).expandtabs(4).splitlines() or [""]:
        lines.extend(
            textwrap.wrap(paragraph, width, replace_whitespace=False, drop_whitespace=True) or [""]
        )
    if len(lines) > _MOST_LINES:
        hidden = len(lines) - _MOST_LINES
        lines = [*lines[:_MOST_LINES], f"… {hidden} more lines (--json has all)"]
    label = shorten(role, ROLE_WIDTH - 1)
    for line in lines:
        screen.line((screen.paint(pad(label, ROLE_WIDTH), style) + line).rstrip())
        label = ""
