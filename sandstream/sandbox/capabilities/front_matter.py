"""The front matter of a ``SKILL.md``: ``key: value`` lines between two lines of dashes.

Reads the part of YAML that is common there: plain, quoted and wrapped values, and blocks (``>``
folded, ``|`` literal). Nested keys are skipped. It is not a YAML parser, so a malformed file leads
to a wrong description and not to a failed run.
"""

from __future__ import annotations

import re

_FENCE = "---"
_BLOCK = re.compile(r"([>|])(?:([1-9])[+-]?|[+-]([1-9])?)?(?:[ \t]+#.*)?")
"""A block's style, and its indentation if specified."""


def parse_front_matter(markdown: str) -> dict[str, str]:
    """The values by key; empty without front matter."""
    head = _head_of(markdown.splitlines())
    values: dict[str, str] = {}
    index = 0
    while index < len(head):
        line = head[index]
        index += 1
        text = line.strip()
        if not text or text.startswith("#") or ":" not in text:
            continue
        key, _, rest = text.partition(":")
        value = rest.strip()
        block = _BLOCK.fullmatch(value)
        if block is not None:
            given = block[2] or block[3]
            start = _indent(line) + int(given) if given else None
            body, index = _take_block(head, index, least=_indent(line) + 1, start=start)
            value = ("\n".join(body) if block[1] == "|" else _folded(body)).strip()
        else:
            body, index = _take_plain(head, index, least=_indent(line) + 1)
            if _is_quoted(value):
                value = value[1:-1]
            elif value and body:
                value = _folded([value, *(each.strip() for each in body)])
        values[key.strip()] = value
    return values


def _head_of(lines: list[str]) -> list[str]:
    if not lines or lines[0].strip() != _FENCE:
        return []
    for index, line in enumerate(lines[1:], start=1):
        # A fence with more indentation is the content of a value.
        if line.strip() == _FENCE and _indent(line) <= _indent(lines[0]):
            return lines[1:index]
    return []


def _take_plain(lines: list[str], index: int, *, least: int) -> tuple[list[str], int]:
    """The continuation lines of a value, and the index of the next possible key."""
    body: list[str] = []
    while index < len(lines):
        line = lines[index]
        if line.strip().startswith("#"):
            index += 1
            continue
        if line.strip() and _indent(line) < least:
            break
        body.append(line)
        index += 1
    return _without_blank_end(body), index


def _take_block(
    lines: list[str], index: int, *, least: int, start: int | None
) -> tuple[list[str], int]:
    """The lines of a block without their indentation: ``start``, or else that of the first line."""
    body: list[str] = []
    while index < len(lines):
        line = lines[index]
        if line.strip():
            if _indent(line) < (least if start is None else start):
                break
            if start is None:
                start = _indent(line)
        body.append(line)
        index += 1
    return [line[start or 0 :] for line in _without_blank_end(body)], index


def _without_blank_end(lines: list[str]) -> list[str]:
    while lines and not lines[-1].strip():
        lines.pop()
    return lines


def _folded(lines: list[str]) -> str:
    """Fold lines to paragraphs: a line end becomes a space, except at empty and indented lines."""
    text = ""
    before = ""
    empty = 0
    for line in lines:
        if not line:
            empty += 1
            continue
        if text:
            is_indented = any(each.startswith((" ", "\t")) for each in (before, line))
            text += "\n" * (empty + 1) if is_indented else "\n" * empty or " "
        text += line
        before = line
        empty = 0
    return text


def _is_quoted(value: str) -> bool:
    return len(value) >= 2 and value[0] == value[-1] and value[0] in "'\""


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))
