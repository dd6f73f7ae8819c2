"""Remove from texts what only certain rollouts support.

From the handbook, sections and lines that name only these rollouts are removed; from other texts,
such lines and lines that repeat what was removed from the handbook. A digest seldom names sources,
and the model that wrote it had read all of them, so only lines that other rollouts certainly
support are kept.
"""

from __future__ import annotations

import re

from sandstream_memory.handbook import (
    Sources,
    cited_files,
    is_heading,
    names_sources,
    sections,
)
from sandstream_memory.statements import Words, statements, words

_DEEPEST = 6
_FEWEST_WORDS = 2
"""A line of one word (``- none``) is not a statement by itself."""
_USUAL_HEADINGS = ("user profile", "user preferences", "general tips", "what is in memory", "older")
_REMARK = r"(?:\s*\((?P<remark>[^()]*)\))?"


def pruned_handbook(text: str, sources: Sources) -> str:
    return "\n".join(_pruned(text.split("\n"), sources, 1))


def is_only_of(text: str, sources: Sources) -> bool:
    """Whether it names rollouts of ``sources`` and no others."""
    return bool(sources.of(text)) and not sources.names_others(text)


def _pruned(lines: list[str], sources: Sources, level: int) -> list[str]:
    """Remove the sections, then the lines, that name only rollouts of ``sources``."""
    if level > _DEEPEST:
        return _without_lines(lines, sources)
    kept: list[str] = []
    for section in sections(lines, level):
        if section.level != level:
            kept += _pruned(section.lines, sources, level + 1)
        elif not is_only_of("\n".join(section.lines), sources):
            kept.append(section.lines[0])
            kept += _pruned(section.lines[1:], sources, level + 1)
    return kept


def _without_lines(lines: list[str], sources: Sources) -> list[str]:
    kept: list[str] = []
    dropped_indent: int | None = None
    for line in lines:
        indent = len(line) - len(line.lstrip())
        if dropped_indent is not None:
            is_below = bool(line.strip()) and indent > dropped_indent
            if is_below and not sources.names_others(line):
                continue
            dropped_indent = None
        if is_only_of(line, sources):
            dropped_indent = indent
            continue
        kept.append(_without_names(line, sources))
    return kept


def _without_names(line: str, sources: Sources) -> str:
    """For a line that others support too: remove these names and the remarks about them."""
    gone = [path for path in cited_files(line) if sources.of_file(path)]
    if names_sources(line):
        gone += [it for it in re.findall(r"[\w.-]*\w", line) if sources.of_name(it)]
    left = line
    for name in sorted(set(gone), key=len, reverse=True):
        pattern = rf"(?<![\w./-])`?{re.escape(name)}`?(?![\w/-]|\.\w){_REMARK}(?:\s*[,;])?\s*"
        left = re.sub(pattern, lambda found: _left_of(found, sources), left)
    return left if left == line else re.sub(r"\s*[,;]\s*(?=[)\].]|$)", "", left).rstrip()


def _left_of(found: re.Match[str], sources: Sources) -> str:
    """A remark in brackets after a name is removed with it, unless it names others."""
    remark = found["remark"]
    return f"({remark}) " if remark and sources.names_others(f"Runs: {remark}") else ""


# --- other texts ----------------------------------------------------------------------------------


def said_no_more(before: str, after: str, sources: Sources) -> set[Words]:
    """The lines that were removed from the handbook."""
    return _lines_said(before, sources) - _lines_said(after, sources)


def without_said(text: str, sources: Sources, gone: set[Words]) -> str:
    """A skill or note without lines that were removed or name only these sources."""
    lines = _without_lines(text.split("\n"), sources)
    return "\n".join(line for line in lines if is_heading(line) or _said(line, sources) not in gone)


def supported_digest(digest: str, handbook: str, sources: Sources) -> str:
    """The lines of a digest that the handbook contains in the same words, or that name other
    rollouts. Headings are kept if they are usual ones or in the handbook. Empty if no line is left.
    """
    supported = _lines_said(handbook, sources)
    titles = {_said(line, sources) for line in handbook.split("\n") if is_heading(line)}
    titles |= {tuple(each.split()) for each in _USUAL_HEADINGS}
    kept: list[str] = []
    says_something = False
    for line in _without_lines(digest.split("\n"), sources):
        if is_heading(line):
            kept += [line] if _said(line, sources) in titles else []
        elif not line.strip():
            kept.append(line)
        elif _said(line, sources) in supported or sources.names_others(line):
            kept.append(line)
            says_something = True
    return "\n".join(kept) if says_something else ""


def _lines_said(text: str, sources: Sources) -> set[Words]:
    lines = (_said(line, sources) for line in text.split("\n") if not is_heading(line))
    return {line for line in lines if len(line) >= _FEWEST_WORDS}


def _said(line: str, sources: Sources) -> Words:
    """Its words, without list markers and names of sources."""
    return words(" ".join(statements([line])) or line, sources.is_file)
