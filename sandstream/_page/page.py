"""One run as one page: ``sandstream show RUN --html FILE``. Data in, text out.

The page needs nothing but itself: styles, scripts and data are inside, a content security policy
allows no other code and no request. What people, models and tools have said is text in it, never
markup.
"""

from __future__ import annotations

import base64
import functools
import hashlib
from collections.abc import Sequence
from importlib import resources

from sandstream_actors.tracing.fold.times import nanoseconds

from sandstream._inspect.timeline import timeline
from sandstream._inspect.traces import TracedRun
from sandstream._inspect.workers import processes_text, workers_of
from sandstream._page.conversation import conversation
from sandstream._page.conversation_html import ConversationWriter
from sandstream._page.data import PageData, page_events, page_rows, run_name
from sandstream._page.frame import frame_html
from sandstream._page.text import Texts, embedded_json

MOST_BYTES = 24_000_000
"""A page that gets bigger shortens its texts more, until nothing is left to shorten."""
_LENGTHS = (20_000, 4_000, 1_000, 250)
"""How many characters a text may have, tried in turn."""
_STYLES = ("page.css", "waterfall.css", "conversation.css")
_SCRIPTS = (
    "core.js",
    "virtual.js",
    "tree.js",
    "waterfall.js",
    "zoom.js",
    "details.js",
    "events.js",
    "main.js",
)


def page_html(
    runs: Sequence[TracedRun], *, title: str = "", now_ns: int = 0, is_whole: bool = False
) -> str:
    """The page of a run: the first of ``runs``; the others are those below it, in any order.

    ``title``: of the browser's tab; ``now_ns``: how far what still lasts is drawn (0: up to the
    last thing known); ``is_whole``: long contents are not shortened.
    """
    if not runs:
        raise ValueError("a page needs at least one run")
    if is_whole:
        return _page(runs, title, now_ns, Texts(0))
    page = ""
    for most in _LENGTHS:
        page = _page(runs, title, now_ns, Texts(most))
        if len(page.encode()) <= MOST_BYTES:
            break
    return page


def _page(runs: Sequence[TracedRun], title: str, now_ns: int, texts: Texts) -> str:
    facts = runs[0].facts
    last_ns = max(
        (nanoseconds(run.events[-1].stored.time) for run in runs if run.events), default=0
    )
    drawn = timeline([(run.spans, run.facts) for run in runs], now_ns or last_ns)
    data = PageData(
        origin_ms=drawn.start_ns / 1e6,
        length=max(1, (drawn.end_ns - drawn.start_ns) // 1000),
        run=texts.line(facts.run),
        runs=[run_name(run.facts, bool(run.events), texts) for run in runs],
        rows=page_rows(drawn, [span for run in runs for span in run.spans], texts),
        events=page_events([(run.facts.run, run.events) for run in runs], drawn.start_ns, texts),
    )
    told = {run.facts.run: conversation(run.events) for run in runs}
    style, script = _assets()
    return frame_html(
        facts=facts,
        ends_ns=max(drawn.end_ns, facts.ended_ns),
        event_count=len(data.events),
        title=title or f"{facts.first_agent or facts.agent} · {facts.run}",
        conversation=ConversationWriter(told, drawn.start_ns, texts).html(facts.run),
        policy=_policy(style, script),
        style=style,
        script=script,
        data=embedded_json(data),
        texts=texts,
        processes=processes_text(workers_of(drawn)),
    )


@functools.cache
def _assets() -> tuple[str, str]:
    """The styles and the scripts, each as one text."""
    folder = resources.files("sandstream._page").joinpath("assets")

    def joined(names: Sequence[str]) -> str:
        return "\n".join(folder.joinpath(name).read_text("utf-8") for name in names)

    script = joined(_SCRIPTS)
    return joined(_STYLES), f'(() => {{\n"use strict";\n{script}\n}})();'


def _policy(style: str, script: str) -> str:
    """Nothing may be loaded, sent or framed; only these very styles and scripts count."""
    return (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
