"""Reads a page: its code blocks with their marks, links and headings. No I/O.

What a reader does not see is not run: a comment only says how to check the block after it.

    <!-- doctest: name=app.py -->            save the block under this name (python)
    <!-- doctest: background="ready" -->     start it in another terminal, wait for the text (sh)
    <!-- doctest: patient -->                a reader repeats it until it works (sh)
    <!-- doctest: output -->                 what the block before printed; … stands for anything
    <!-- doctest: message=Task -->           JSON of this message type
    <!-- doctest: skip="why" -->             neither run nor checked, for this reason

What the model says on a page is in `scripts/`, one scripted conversation a line.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path

_COMMENT = re.compile(r"<!--(.*?)-->", re.DOTALL)
_MARKS = {
    "name": {"python"},
    "background": {"sh"},
    "patient": {"sh"},
    "output": {"text"},
    "message": {"json"},
}
"""Each mark but `skip`, and the languages of the blocks that may have it."""
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
    lead: str = ""
    """What a reader sees between the block before and this one."""

    @property
    def where(self) -> str:
        return f"{self.page.name}:{self.line}"


@dataclass
class Page:
    path: Path
    blocks: list[Block]
    faults: list[str]
    """Comments that are no marks, and marks of things that the page does not show."""
    indented: list[str]
    """Code blocks without a fence, which nobody can mark."""
    links: list[str]
    anchors: set[str]


def read_page(path: Path, text: str) -> Page:
    blocks: list[Block] = []
    faults: list[str] = []
    position = 0
    for fence in _FENCE.finditer(text):
        before = text[position : fence.start()]
        marks: dict[str, str] = {}
        for comment in _COMMENT.finditer(before):
            kind, _, body = comment[1].strip().partition(":")
            if kind != "doctest" or before[comment.end() :].strip():
                line = _line(text, position + comment.start())
                faults.append(f"line {line}: this comment is no mark of the block after it")
                continue
            marks = _marks(body)
        lead = _COMMENT.sub("", before)
        block = Block(path, _line(text, fence.start()), fence[1], fence[2], marks, lead)
        faults += _faults(block)
        blocks.append(block)
        position = fence.end()
    for comment in _COMMENT.finditer(text, position):
        faults.append(f"line {_line(text, comment.start())}: this comment marks no block")
    prose = _FENCE.sub("", text)
    anchors = {_slug(heading) for heading in _HEADING.findall(prose)}
    visible = _COMMENT.sub("", prose)
    indented = [found.strip() for found in _INDENTED.findall(visible)]
    return Page(path, blocks, faults, indented, _LINK.findall(prose), anchors)


def _faults(block: Block) -> list[str]:
    """What only a comment says, so that a reader cannot know it."""
    where = f"line {block.line}: "
    faults = [
        f"{where}a {block.lang or 'bare'} block cannot have the mark {mark}"
        for mark in block.marks
        if mark != "skip" and block.lang not in _MARKS.get(mark, ())
    ]
    name = block.marks.get("name")
    if name is not None and f"`{name}`" not in block.lead:
        faults.append(f"{where}the text before the block does not name the file `{name}`")
    if "background" in block.marks and "terminal" not in block.lead:
        faults.append(f"{where}the text before the block does not ask for another terminal")
    return faults


def _marks(body: str) -> dict[str, str]:
    pairs = (word.partition("=") for word in shlex.split(body))
    return {name: value for name, _, value in pairs}


def _line(text: str, offset: int) -> int:
    return text.count("\n", 0, offset) + 1


def _slug(heading: str) -> str:
    plain = re.sub(r"[`*]|\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
    return re.sub(r"[^\w\- ]", "", plain).strip().replace(" ", "-")
