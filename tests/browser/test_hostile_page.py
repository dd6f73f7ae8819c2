"""Whatever people, models and tools say is text on the page: no script runs, nothing is loaded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from sandstream_bus.wire.messages import (
    ApprovalDecided,
    ApprovalRequested,
    ErrorInfo,
    TurnRequested,
)
from support.pages.chromium import Chromium
from support.pages.page_runs import Told
from support.scripted_log import calls, says

from sandstream._inspect.traces import TracedRun
from sandstream._page.page import page_html

SCRIPT = "<script>window.pwned = 1; document.title = 'pwned'</script>"
IMAGE = '"><img src=x onerror="window.pwned = 2"><svg onload=\'window.pwned = 3\'>'
BREAKOUT = "</script><!--<script>--></style></title></textarea><iframe src=//evil.example></iframe>"
LINK = "javascript:window.pwned=4 <a href='javascript:window.pwned=5'>x</a>"
STEERING = "abc\u202etxt.exe \u2066 nul\0 esc\x1b[31m \u2028\u2029 \ufeff\u200b end"
WORD = "W" * 5_000
MARKUP = "{{7*7}} ${7*7} &lt;b&gt; &#x3c;script&#x3e; ]]> %3Cscript%3E \\u003cscript\\u003e"
ALL = [SCRIPT, IMAGE, BREAKOUT, LINK, STEERING, WORD, MARKUP]


def hostile_run() -> TracedRun:
    """A run that says all of it, in every place where a run can say something."""
    told = Told("run_HOSTILE", f"agent {IMAGE}")
    told.start("\n".join(ALL), at=0)
    now = 0.0
    for number, text in enumerate(ALL):
        now += 100
        call = f"t{number + 1}-0"
        told.answers(says(text), calls(text, f"id-{call}", text), at=now, took=60)
        sent = told.asks(call, text, text, at=now + 1)
        if number % 2:
            failed = ErrorInfo(code=text[:80], message=text, data={text[:40]: text})
            told.gets(call, text, at=now + 60, took=40, cause=sent, error=failed)
        else:
            told.gets(call, {text: [text]}, at=now + 60, took=40, cause=sent)
    asked = ApprovalRequested(
        call="t9-0", turn=9, agent=SCRIPT, name=IMAGE, call_id="x", arguments=BREAKOUT
    )
    told.add("approval.requested", asked, at=now + 100)
    decided = ApprovalDecided(call="t9-0", approve=False, by=IMAGE, message=SCRIPT)
    told.add("approval.decided", decided, at=now + 120)
    told.add("turn.main", TurnRequested(turn=10, agent=SCRIPT, reason="handoff"), at=now + 130)
    told.ends(BREAKOUT, at=now + 150, error=ErrorInfo(code=SCRIPT, message=IMAGE + STEERING))
    return told.page_run()


@pytest.mark.parametrize("width", [1400, 420])
def test_hostile_strings_are_only_text(
    browser: Chromium,
    page_of: Callable[[Sequence[TracedRun]], Path],
    keep: Callable[[str], Path],
    width: int,
) -> None:
    height = 900 if width == 1400 else 800
    with browser.open(page_of([hostile_run()]), width=width, height=height) as page:
        title = page.value("document.title")
        for tab in ("timeline", "conversation", "events"):
            page.click(f"#tab-{tab}")
            page.value("document.querySelectorAll('details').forEach(it => it.open = true)")
            page.screenshot(keep(f"hostile-{tab}-{width}"))
            assert page.value("document.documentElement.scrollWidth") == width
        click_all = "for (let n = 0; ; n++) { const it = document.getElementById('{0}-' + n);"
        click_all += " if (!it) break; it.click(); }"
        page.value(click_all.replace("{0}", "event"))
        assert page.text("#details h2") == "run.done"
        page.click("#tab-timeline")
        page.value(click_all.replace("{0}", "row"))
        page.value("void document.querySelector('#waterfall').focus()")
        page.press("Escape", "ArrowUp", "ArrowUp", "Enter")
        page.screenshot(keep(f"hostile-details-{width}"))

        assert page.value("typeof window.pwned") == "undefined"
        assert page.value("document.title") == title
        assert title.startswith('agent "><img src=x onerror=')
        assert page.count("script") == 2
        assert page.count("img, svg, iframe, object, embed, form, base, style + style") == 0
        assert page.value("[...document.links].every(it => it.getAttribute('href')[0] === '#')")
        assert page.problems == [], "not even an attempt that the policy had to stop"
        assert [url.partition("#")[0][:5] for url in page.requests] == ["file:"]


def test_the_policy_stops_what_would_get_through(browser: Chromium, tmp_path: Path) -> None:
    """The second line: a page with markup of somebody else's in it still runs and loads nothing."""
    injected = (
        f'<body>{SCRIPT}{IMAGE}<img src="https://evil.example/x.png"><b style="color:red">b</b>'
    )
    file = tmp_path / "run.html"
    file.write_text(page_html([hostile_run()]).replace("<body>", injected), encoding="utf-8")
    with browser.open(file) as page:
        page.value("fetch('https://evil.example/').catch(() => 0)")
        assert page.value("typeof window.pwned") == "undefined"
        assert page.value("getComputedStyle(document.querySelector('b')).color") != "rgb(255, 0, 0)"
        assert any("Content Security Policy" in it for it in page.problems)
        assert page.is_seen("#waterfall .row")
