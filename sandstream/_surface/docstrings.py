"""Reads docstrings of tools: a description and a text for each parameter, for the model.

Supports three styles, each by its own rules: Google, NumPy and Sphinx. The parser sees only text,
not the function or its types.

In all styles the description is the first plain text. Other sections (returns, raises, notes) are
for readers of the code and are left out.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from dataclasses import dataclass, field
from typing import Literal

__all__ = ["Docstring", "DocstringStyle", "detect_style", "parse_docstring"]

DocstringStyle = Literal["google", "numpy", "sphinx"]


@dataclass
class Docstring:
    """A parsed docstring. ``description`` is ``None`` if there is no text at all."""

    description: str | None = None
    params: dict[str, str] = field(default_factory=dict)


def parse_docstring(text: str | None, style: DocstringStyle | None = None) -> Docstring:
    """Parse ``text`` in ``style``, or in the detected style."""
    cleaned = inspect.cleandoc(text or "").strip()
    if not cleaned:
        return Docstring()
    parser = _PARSERS.get(style or detect_style(cleaned))
    if parser is None:
        raise ValueError(f"Unknown docstring style {style!r}: use one of {', '.join(_PARSERS)}.")
    return parser(cleaned.splitlines())


_SIGNS: dict[DocstringStyle, tuple[str, ...]] = {
    "sphinx": (r"^:param\b", r"^:type\b", r"^:return:", r"^:rtype\b"),
    "numpy": tuple(rf"^{title}\s*\n\s*-{{3,}}" for title in ("Parameters", "Returns", "Yields")),
    "google": (r"^(?:Args|Arguments):", r"^Returns:", r"^Raises:"),
}
"""Signs of each style. On a tie the earlier style wins: its signs are rarer in prose."""


def detect_style(text: str) -> DocstringStyle:
    """The style with the most signs in ``text``; Google if there are none."""
    scores: dict[DocstringStyle, int] = {
        style: sum(re.search(sign, text, re.MULTILINE) is not None for sign in signs)
        for style, signs in _SIGNS.items()
    }
    best = max(scores, key=lambda style: scores[style])
    return best if scores[best] else "google"


# Google: "Args:" followed by an indented block of "name (type): text" items.

_GOOGLE_HEADER = re.compile(r"^(\w[\w\s-]*):(?:\s+\S.*)?\s*$")
_GOOGLE_ITEM_TYPE = re.compile(r"^(.*?)\s*\(.+\)$")
_GOOGLE_PARAMS = frozenset({"args", "arguments", "params", "parameters"})


def _parse_google(lines: list[str]) -> Docstring:
    paragraphs: list[list[str]] = [[]]
    params: dict[str, str] = {}
    fenced = False
    at = 0
    while at < len(lines):
        line = lines[at]
        if line.lstrip().startswith("```"):
            fenced = not fenced
        header = None if fenced else _google_header(lines, at)
        if header is None:
            paragraphs[-1].append(line)
            at += 1
            continue
        block, at = _indented_block(lines, at + 1)
        if header in _GOOGLE_PARAMS:
            params.update(_google_items(block))
        paragraphs.append([])
    return Docstring(_first_text(paragraphs), params)


def _google_header(lines: list[str], at: int) -> str | None:
    """The lower-case title if a section starts here: a title with an indented block under it."""
    match = _GOOGLE_HEADER.match(lines[at])
    below = lines[at + 1] if at + 1 < len(lines) else ""
    if match is None or not below.strip() or not below.startswith(" "):
        return None
    title = match[1].lower()
    above = lines[at - 1] if at else ""
    if above.strip() and title not in _GOOGLE_PARAMS:
        return None  # a sentence that ends in a colon
    return title


def _indented_block(lines: list[str], start: int) -> tuple[list[str], int]:
    margin = " " * (len(lines[start]) - len(lines[start].lstrip()))
    end = start
    while end < len(lines) and (not lines[end].strip() or lines[end].startswith(margin)):
        end += 1
    return lines[start:end], end


def _google_items(block: list[str]) -> dict[str, str]:
    indent = len(block[0]) - len(block[0].lstrip())
    items: list[list[str]] = []
    for line in block:
        if not line.strip():
            if items:
                items[-1].append("")
        elif line.startswith(" " * (2 * indent)):
            if items:
                items[-1].append(line[2 * indent :])
        elif line.startswith(" " * (indent + 1)):
            if items:
                items[-1].append(line.lstrip())
        else:
            items.append([line.lstrip()])
    params: dict[str, str] = {}
    for first, *rest in items:
        name, colon, text = first.partition(":")
        if not colon:
            continue
        typed = _GOOGLE_ITEM_TYPE.match(name)
        name = (typed[1] if typed else name).lstrip("*")
        params[name] = "\n".join([text.lstrip(), *rest]).rstrip("\n")
    return params


# NumPy: "Parameters" underlined with dashes, then "name : type" with an indented text.

_NUMPY_ITEM = re.compile(r"^([\w*]+(?:,\s*[\w*]+)*)\s*(?:[:.].*)?$")


def _parse_numpy(lines: list[str]) -> Docstring:
    paragraphs: list[list[str]] = [[]]
    params: dict[str, str] = {}
    at = 0
    while at < len(lines):
        if not _is_numpy_header(lines, at):
            paragraphs[-1].append(lines[at])
            at += 1
            continue
        title = lines[at].strip().lower()
        start = at = at + 2
        while at < len(lines) and not _is_numpy_header(lines, at):
            at += 1
        if title == "parameters":
            params.update(_numpy_items(lines[start:at]))
        paragraphs.append([])
    return Docstring(_first_text(paragraphs), params)


def _is_numpy_header(lines: list[str], at: int) -> bool:
    if at + 1 >= len(lines) or not lines[at].strip() or lines[at].startswith(" "):
        return False
    return re.fullmatch(r"-{2,}\s*", lines[at + 1]) is not None


def _numpy_items(block: list[str]) -> dict[str, str]:
    params: dict[str, str] = {}
    names: list[str] = []
    texts: list[str] = []

    def close() -> None:
        text = textwrap.dedent("\n".join(texts)).rstrip("\n")
        params.update((name.strip().lstrip("*"), text) for name in names)

    for line in block:
        if line.strip() and not line.startswith(" "):
            close()
            match = _NUMPY_ITEM.match(line)
            names, texts = (match[1].split(",") if match else []), []
        else:
            texts.append(line)
    close()
    return params


# Sphinx: ":param type name: text", each field up to the next one.

_SPHINX_FIELD = re.compile(
    r"^\s*:(param|parameter|arg|argument|key|keyword|type|returns?|rtype|raises?|except|exception"
    r"|var|ivar|cvar|vartype)\b([^:]*)(:?)(.*)$"
)
_SPHINX_PARAMS = frozenset({"param", "parameter", "arg", "argument", "key", "keyword"})


def _parse_sphinx(lines: list[str]) -> Docstring:
    text: list[str] = []
    fields: list[tuple[str, str, bool, list[str]]] = []
    for line in lines:
        match = _SPHINX_FIELD.match(line)
        if match:
            fields.append((match[1], match[2], bool(match[3]), [match[4].strip()]))
        elif fields:
            fields[-1][3].append(line)
        else:
            text.append(line)
    params: dict[str, str] = {}
    for kind, label, complete, value in fields:
        words = label.split()
        if complete and words and kind in _SPHINX_PARAMS:
            params.setdefault(words[-1].lstrip("*"), inspect.cleandoc("\n".join(value)).strip())
    return Docstring("\n".join(text).strip(), params)


def _first_text(paragraphs: list[list[str]]) -> str | None:
    texts = ("\n".join(lines).strip() for lines in paragraphs)
    return next((text for text in texts if text), None)


_PARSERS = {"google": _parse_google, "numpy": _parse_numpy, "sphinx": _parse_sphinx}
