"""One run as one page: ``sandstream show RUN --html FILE``. Data in, text out.

The page needs nothing but itself: styles, scripts and data are inside, a content security policy
allows no other code and no request. What people, models and tools have said is text in it, never
markup.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from sandstream_actors.tracing.facts import RunFacts
from sandstream_actors.tracing.span import Span
from sandstream_bus.log import LogEvent


class PageRun(msgspec.Struct, frozen=True, kw_only=True):
    """What a page shows of one run."""

    facts: RunFacts
    spans: list[Span]
    """With contents, if they are to be shown beside the waterfall."""
    events: list[LogEvent] = []
    """Its log: the conversation and the list of events are made from it. Empty: it is lost."""


def page_html(
    runs: Sequence[PageRun], *, title: str = "", now_ns: int = 0, is_whole: bool = False
) -> str:
    """The page of a run: the first of ``runs``; the others are those below it, in any order.

    ``title``: of the browser's tab; ``now_ns``: how far what still lasts is drawn (0: up to the
    last thing known); ``is_whole``: long contents are not shortened.
    """
    raise NotImplementedError
