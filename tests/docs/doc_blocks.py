"""Reads a page: its code blocks with their marks, hidden blocks, links and headings. No I/O.

A mark is an HTML comment right before a fence:

    <!-- doctest: name=app.py -->            save the block under this name (python)
    <!-- doctest: background="ready" -->     start it, wait for the text, leave it running (sh)
    <!-- doctest: output -->                 what the block before printed; … stands for anything
    <!-- doctest: message=Task -->           JSON of this message type
    <!-- doctest: skip="why" -->             neither run nor checked, for this reason

Hidden blocks are comments of their own: `<!-- model: … -->` holds one scripted conversation per
line for the page's model server, `<!-- sh: … -->` a shell block that readers need not see.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path

_COMMENT = re.compile(r"<!--\s*(doctest|model|sh):(.*?)-->", re.DOTALL)
_FENCE = re.compile(r"^```(\w*)\s*\n(.*?)^```\s*$", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
_INDENTED = re.compile(r"^\n    (?! *[-*\d])\S.*$", re.MULTILINE)
_HEADING = re.compile(r"^#{1,6} (.+)$", re.MULTILINE)


@dataclass
class Block:
    """One code block; ``marks`` are those of the comment before it."""

    page: Path
    line: int
    lang: str
    text: str
    marks: dict[str, str] = field(default_factory=dict)

    @property
    def where(self) -> str:
        return f"{self.page.name}:{self.line}"


@dataclass
class Page:
    path: Path
    blocks: list[Block]
    conversations: list[str]
    """Python expressions: one `script_for(...)` each."""
    indented: list[str]
    """Code blocks without a fence, which nobody can mark."""
    links: list[str]
    anchors: set[str]


def read_page(path: Path, text: str) -> Page:
    blocks: list[Block] = []
    conversations: list[str] = []
    marks: dict[str, str] = {}
    position = 0
    while True:
        fence = _FENCE.search(text, position)
        comment = _COMMENT.search(text, position)
        if comment is not None and (fence is None or comment.start() < fence.start()):
            kind, body = comment[1], comment[2].strip()
            if kind == "doctest":
                marks = _marks(body)
            elif kind == "model":
                conversations += [line.strip() for line in body.splitlines() if line.strip()]
            else:
                blocks.append(Block(path, _line(text, comment.start()), "sh", body))
            position = comment.end()
        elif fence is not None:
            blocks.append(Block(path, _line(text, fence.start()), fence[1], fence[2], marks))
            marks = {}
            position = fence.end()
        else:
            break
    prose = _FENCE.sub("", text)
    anchors = {_slug(heading) for heading in _HEADING.findall(prose)}
    visible = re.sub(r"<!--.*?-->", "", prose, flags=re.DOTALL)
    indented = [found.strip() for found in _INDENTED.findall(visible)]
    return Page(path, blocks, conversations, indented, _LINK.findall(prose), anchors)


def _marks(body: str) -> dict[str, str]:
    pairs = (word.partition("=") for word in shlex.split(body))
    return {name: value for name, _, value in pairs}


def _line(text: str, offset: int) -> int:
    return text.count("\n", 0, offset) + 1


def _slug(heading: str) -> str:
    plain = re.sub(r"[`*]|\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
    return re.sub(r"[^\w\- ]", "", plain).strip().replace(" ", "-")
