"""Decide, statement by statement, which blocks of the old handbook a merge must not lose."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from sandstream_memory.handbook import (
    Section,
    Sources,
    cited_files,
    is_rollout_file,
    names_sources,
)
from sandstream_memory.selection import Selection
from sandstream_memory.statements import Said, statements

DROPPED_BY = "Left out by the merge of runs "


class Verdict(msgspec.Struct, frozen=True):
    """The decision about a block of the old handbook."""

    is_kept: bool = False
    remark: str = ""
    """What happened to it; empty if it is still there."""


def title_of(block: Section) -> str:
    return block.title or "the text before the first heading"


def own_statements(block: Section) -> list[str]:
    """Its statements, without the lines about sources."""
    lines = [
        line for line in block.body if not names_sources(line) and not line.startswith(DROPPED_BY)
    ]
    return statements(lines)


class Keeper:
    """Decides which parts of the old handbook must stay beside the new one."""

    def __init__(
        self,
        old: Sequence[Section],
        new: Sequence[Section],
        body: str,
        sources: Sources,
        selection: Selection,
    ) -> None:
        self._body = body
        self._lines = {line.strip() for line in body.split("\n")}
        self._sources = sources
        self._selected = set(selection.selected)
        self._unnamed = self._selected - sources.of(body)
        self._said = self.said_by(body)
        said_before = self.said_by("\n".join(each.text for each in old))
        self._titles: dict[str, list[str]] = {}
        """The new statements in the blocks of each title."""
        for block in new:
            fresh = [each for each in own_statements(block) if not said_before.says(each)]
            self._titles.setdefault(_normal(block.title), []).extend(fresh)

    def said_by(self, text: str) -> Said:
        return Said(text.split("\n"), self._sources.is_file)

    # --- blocks

    def judge(self, old: Section) -> Verdict:
        if old.text in self._body:
            return Verdict()
        is_gone = _normal(old.title) not in self._titles
        if not self._counts(old):
            return Verdict(remark="forgotten, nothing that counts supports it" if is_gone else "")
        own = own_statements(old)
        lost = [each for each in own if not self._said.says(each)]
        replaced = self._replacements(old)
        if own and 2 * (len(lost) - replaced) >= len(own):
            return Verdict(is_kept=True, remark="kept as superseded")
        if not own and self._sources.of(old.text) & self._unnamed:
            return Verdict(is_kept=True, remark="kept as superseded")
        how_many = f"{len(lost)} of {len(own)} statements are not there any more"
        if is_gone:
            return Verdict(remark=f"in other blocks now ({how_many})")
        return Verdict(remark=f"rewritten ({how_many})" if 2 * len(lost) >= len(own) > 0 else "")

    def _counts(self, block: Section) -> bool:
        """Whether a selected rollout supports the block, or the block cites no rollout at all."""
        named = self._sources.of(block.text)
        if named:
            return bool(named & self._selected)
        return not any(is_rollout_file(path) for path in cited_files(block.text))

    def _replacements(self, old: Section) -> int:
        """How many new statements from the same sources the block of this title has."""
        named = self._sources.of(old.text)
        if not named or named & self._unnamed:
            return 0
        fresh = self._titles.get(_normal(old.title), [])
        return sum(not (of := self._sources.of(each)) or bool(of & named) for each in fresh)

    # --- existing superseded entries

    def must_stay(self, entry: Section) -> bool:
        """Whether the entry must stay although the merge removed it."""
        if entry.text in self._body or not self._counts(entry):
            return False
        own = own_statements(entry)
        if named := self._sources.of(entry.text):
            lost = sum(not self._said.says(each) for each in own)
            return bool(named & self._unnamed) and 2 * lost >= len(own)
        said = [line.strip() for line in entry.body if not line.startswith(DROPPED_BY)]
        return any(said) and not any(line in self._lines for line in said if line)

    def is_forgotten(self, entry: Section) -> bool:
        """Whether it has sources, but none of them is selected any more."""
        named = self._sources.of(entry.text)
        return bool(named) and not named & self._selected


def _normal(title: str) -> str:
    return " ".join(title.casefold().split())
