"""The frame of a page: its head, the facts of the run, the tabs, where scripts draw."""

from __future__ import annotations

from datetime import UTC, datetime

from sandstream_actors.tracing.facts import RunFacts

from sandstream._inspect.texts import error_text
from sandstream._page.text import Texts, escaped, spelled

_TONES = {
    "running": "busy",
    "waiting": "wait",
    "completed": "good",
    "failed": "bad",
    "max_turns": "bad",
}


def frame_html(
    *,
    facts: RunFacts,
    ends_ns: int,
    event_count: int,
    title: str,
    conversation: str,
    policy: str,
    style: str,
    script: str,
    data: str,
    texts: Texts,
    processes: str = "",
) -> str:
    """The whole document. ``conversation``, ``policy``, ``style``, ``script`` and ``data`` are
    markup already; the rest is foreign text.
    """
    lost = '<p class="empty">The log of this run is gone, so there is no conversation to show.</p>'
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<meta name="color-scheme" content="light dark">
<title>{escaped(texts.line(title))}</title>
<style>{style}</style>
</head>
<body>
<header class="top">
{_heading(facts, texts)}
{_facts(facts, ends_ns, processes, texts)}
{_error(facts, texts)}
</header>
<noscript><p class="notice">The timeline and the events need JavaScript. The conversation does \
not.</p></noscript>
<nav class="bar">
<div class="tabs" role="tablist" aria-label="Views">
{_tab("timeline", "Timeline")}
{_tab("conversation", "Conversation")}
{_tab("events", f"Events <small>{event_count:,}</small>")}
</div>
<div class="tools">
<label class="find"><span class="hidden">Filter</span><input id="filter" type="search" \
placeholder="Filter" autocomplete="off" spellcheck="false"><kbd>/</kbd></label>
<output id="found" aria-live="polite"></output>
<button id="errors" type="button" aria-pressed="false" hidden></button>
<button id="reset" type="button" hidden title="Show the whole time (0)">Whole time</button>
<button id="fold" type="button" title="Fold or unfold what is below the top">Fold</button>
<button id="theme" type="button" aria-label="Change between light and dark" \
title="Light or dark"></button>
</div>
</nav>
<main>
<section id="timeline" class="panel" role="tabpanel" aria-labelledby="tab-timeline">
<div id="overview" aria-hidden="true"><canvas></canvas><div class="window"></div></div>
<div id="axis" aria-hidden="true"></div>
<div id="waterfall" role="treegrid" aria-label="Timeline of the run" aria-readonly="true" \
tabindex="0"></div>
<p id="legend"></p>
</section>
<section id="conversation" class="panel" role="tabpanel" aria-labelledby="tab-conversation" \
tabindex="0">
<div class="talk">{conversation or lost}</div>
</section>
<section id="events" class="panel" role="tabpanel" aria-labelledby="tab-events">
<div id="eventlist" role="grid" aria-label="Events of the log" aria-readonly="true" \
tabindex="0"></div>
</section>
<aside id="details" aria-label="Details" hidden></aside>
</main>
<script type="application/json" id="data">{data}</script>
<script>{script}</script>
</body>
</html>
"""


def _tab(name: str, label: str) -> str:
    return (
        f'<button id="tab-{name}" type="button" role="tab" aria-controls="{name}" '
        f'aria-selected="false" tabindex="-1">{label}</button>'
    )


def _heading(facts: RunFacts, texts: Texts) -> str:
    agent = facts.first_agent or facts.agent or "a run"
    tone = _TONES.get(facts.status, "wait")
    status = texts.line(facts.status.replace("_", " "))
    return (
        f'<div class="heading"><h1><bdi>{escaped(texts.line(agent))}</bdi></h1>'
        f'<span class="status {tone}">{escaped(status)}</span>'
        f'<code class="runid">{escaped(texts.line(facts.run))}</code></div>'
    )


def _facts(facts: RunFacts, ends_ns: int, processes: str, texts: Texts) -> str:
    took = (facts.ended_ns or ends_ns) - facts.started_ns
    usage = facts.usage
    cached = f" ({usage.cached_tokens:,} cached)" if usage.cached_tokens else ""
    now_with = facts.agent if facts.agent != (facts.first_agent or facts.agent) else ""
    shown = [
        ("Duration", spelled(took) if facts.started_ns else ""),
        ("Tokens in", f"{usage.input_tokens:,}{cached}" if usage.total_tokens else ""),
        ("Tokens out", f"{usage.output_tokens:,}" if usage.total_tokens else ""),
        ("Turns", f"{facts.turns:,}"),
        ("Tool calls", f"{facts.tool_calls:,}" if facts.tool_calls else ""),
        ("Child runs", f"{facts.children:,}" if facts.children else ""),
        ("Retries", f"{facts.retries:,}" if facts.retries else ""),
        ("Takeovers", f"{facts.takeovers:,}" if facts.takeovers else ""),
        ("Processes", processes),
        ("Model", facts.model),
        ("Now with" if not facts.is_over else "Ended with", now_with),
        ("Workflow", facts.workflow),
        ("Session", facts.session),
        ("Group", facts.group_id),
        ("Below run", facts.parent),
        ("Log", "its beginning is lost" if facts.truncated else ""),
    ]
    pairs = "".join(
        f"<div><dt>{name}</dt><dd><bdi>{escaped(texts.line(value))}</bdi></dd></div>"
        for name, value in shown
        if value
    )
    return f'<dl class="facts"><div><dt>Started</dt><dd>{_time(facts)}</dd></div>{pairs}</dl>'


def _time(facts: RunFacts) -> str:
    if not facts.started_ns:
        return "unknown"
    at = datetime.fromtimestamp(facts.started_ns // 1_000_000_000, UTC)
    return f'<time datetime="{at.isoformat()}">{at:%Y-%m-%d %H:%M:%S} UTC</time>'


def _error(facts: RunFacts, texts: Texts) -> str:
    if facts.error is None:
        return ""
    return f'<p class="failure" dir="auto">{escaped(texts.text(error_text(facts.error), 2000))}</p>'
