"""Suggestions for mistyped words. Standard library; ``difflib`` is imported when needed."""

from __future__ import annotations

from collections.abc import Iterable

_MOST = 3
_LIKENESS = 0.6


def near(
    typed: str, known: Iterable[str], *, sigil: str = "", likeness: float = _LIKENESS
) -> list[str]:
    """The known words that are most similar to the typed one, the best first. Ignores case.

    ``sigil`` begins all words, so it does not count as similarity.
    """
    from difflib import get_close_matches

    def core(word: str) -> str:
        return word.removeprefix(sigil).casefold()

    by_core: dict[str, str] = {}
    for word in known:
        by_core.setdefault(core(word), word)
    found = get_close_matches(core(typed), by_core, n=_MOST, cutoff=likeness)
    return [by_core[it] for it in found]


def did_you_mean(typed: str, known: Iterable[str], *, sigil: str = "") -> str:
    """``; did you mean X or Y?``, to be added to an error; empty if nothing is near."""
    found = near(typed, known, sigil=sigil)
    return f"; did you mean {_listed(found)}?" if found else ""


def _listed(words: list[str]) -> str:
    *first, last = words
    return f"{', '.join(first)} or {last}" if first else last
