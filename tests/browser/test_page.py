"""The page of a run in a real browser: what is drawn, what keys and the mouse do."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from sandstream_bus.wire.messages import ApprovalRequested, CallFinished, CallStarted, RunWaiting
from support.pages.chromium import Chromium, Page
from support.pages.page_runs import Told, long_run, tree
from support.scripted_log import calls, raw

from sandstream._inspect.traces import TracedRun

Write = Callable[[Sequence[TracedRun]], Path]
Keep = Callable[[str], Path]

SELECTED = '#waterfall [aria-selected="true"]'


@pytest.fixture
def run_page(browser: Chromium, page_of: Write) -> Page:
    return browser.open(page_of(tree()))


def _is_quiet(page: Page) -> None:
    """Nothing went wrong, and nothing but the file was asked for."""
    assert page.problems == []
    assert [url for url in page.requests if not url.startswith("file:")] == []
    assert len(page.requests) == 1


@pytest.mark.parametrize(("width", "height"), [(1400, 900), (900, 700), (420, 800)])
def test_a_run_with_twenty_children(
    browser: Chromium, page_of: Write, keep: Keep, width: int, height: int
) -> None:
    with browser.open(page_of(tree()), width=width, height=height) as page:
        assert page.text("h1") == "planner"
        assert page.text(".status") == "completed"
        assert page.value("document.title") == "planner · run_7Q2M4KXA"
        levels = page.value(
            "[...document.querySelectorAll('#waterfall .row')].map(it => it.ariaLevel)"
        )
        assert levels[:6] == ["1", "2", "2", "3", "4", "4"]
        assert page.value("document.documentElement.scrollWidth") == width
        for tab in ("timeline", "conversation", "events"):
            page.click(f"#tab-{tab}")
            page.screenshot(keep(f"tree-{tab}-{width}"))
        _is_quiet(page)


COVERED = """[...document.querySelectorAll("#waterfall .row:has(.caption)")].flatMap((row) => {
  const text = row.querySelector(".caption").getBoundingClientRect();
  const end = row.querySelector(".lane").getBoundingClientRect().right;  // nothing is drawn behind
  const covers = (it) => it.left < text.right - 1 && Math.min(it.right, end) > text.left + 1;
  const parts = [...row.querySelectorAll(".part")].map((it) => it.getBoundingClientRect());
  return parts.some(covers) ? [row.querySelector(".label").textContent] : [];
})"""


@pytest.mark.parametrize("width", [1600, 1280, 900, 420])
def test_no_caption_covers_a_bar(browser: Chromium, page_of: Write, keep: Keep, width: int) -> None:
    with browser.open(page_of(tree()), width=width, height=900) as page:
        assert page.count("#waterfall .caption") > 10
        assert page.value(COVERED) == []
        page.screenshot(keep(f"captions-{width}"))
        page.click("#waterfall .row:nth-child(3)")
        page.press("f")  # what is zoomed to fills the lane
        assert page.value(COVERED) == []


def test_events_tell_the_arguments_of_calls(browser: Chromium, page_of: Write) -> None:
    told = Told("r", "clerk")
    told.start("Look.", at=0)
    told.answers(calls("look", "c", '{"city": "Bern", "days": 3}'), at=200, took=190)
    with browser.open(page_of([told.page_run()])) as page:
        page.click("#tab-events")
        (answer,) = page.texts("#eventlist .row:has(.kind-model-answered) .about")
        assert answer.startswith('look(city="Bern", days=3) · ')


def test_a_takeover_is_seen_with_what_was_lost(
    browser: Chromium, page_of: Write, keep: Keep
) -> None:
    told = Told("r", "clerk")
    told.start("Look.", at=0)
    told.answers(calls("look", "c", "{}"), at=200, took=190)
    sent = told.asks("t1-0", "look", "{}", at=210)
    told.log.add(
        "started.t1-0",
        CallStarted(call="t1-0", host="host-a:1:aa"),
        at=300,
        cause=sent,
        worker="host-a:1:aa",
    )
    result = CallFinished(call="t1-0", kind="tool", turn=1, output=raw("fine"), duration_ms=800)
    told.log.add("result.main", result, at=6000, cause=sent, deliveries=2, worker="host-b:2:bb")
    told.ends("fine", at=6100)
    with browser.open(page_of([told.page_run()])) as page:
        look = "#waterfall .row:nth-child(3)"
        assert page.text(f"{look} .label").startswith("look")
        assert page.text(f"{look} .badge") == "2 attempts"
        assert page.text("#waterfall .row:nth-child(1) .badge") == "1 takeover"
        kinds = f"[...document.querySelectorAll('{look} .part')].map((it) => it.className)"
        assert page.value(kinds) == ["part queued", "part lost", "part work"]
        page.click(look)
        facts = page.text("#details")
        for fact in ("host-b:2:bb", "host-a:1:aa", "4.90 s, up to the takeover"):
            assert fact in facts
        page.screenshot(keep("takeover"))
        assert page.texts(".facts dd")[-3].startswith("host-b:2, host-a:1 (lost)")
        _is_quiet(page)


def test_dark_by_preference_and_by_the_button(
    browser: Chromium, page_of: Write, keep: Keep
) -> None:
    back = "getComputedStyle(document.body).backgroundColor"
    with browser.open(page_of(tree()), dark=True) as page:
        dark = page.value(back)
        page.screenshot(keep("dark"))
        page.click("#tab-conversation")
        page.screenshot(keep("dark-conversation"))
        page.click("#theme")
        light = page.value(back)
        page.click("#theme")
        assert page.value(back) == dark != light
        page.prefer("prefers-color-scheme", "light")
        assert page.value(back) == dark, "what was chosen counts"


@pytest.mark.parametrize("dark", [False, True])
def test_texts_stand_out_from_what_is_behind_them(
    browser: Chromium, page_of: Write, dark: bool
) -> None:
    """WCAG AA: 4.5 to 1."""
    measure = """(() => {
      const probe = document.body.appendChild(document.createElement("i"));
      const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
      const light = (name) => {
        probe.style.color = `var(--${name})`;
        canvas.fillStyle = getComputedStyle(probe).color;
        canvas.fillRect(0, 0, 1, 1);
        const [r, g, b] = [...canvas.getImageData(0, 0, 1, 1).data].map((it) => {
          const share = it / 255;
          return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
        });
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
      };
      const weak = [];
      for (const text of ["ink", "soft", "accent", "good", "bad", "wait", "busy"])
        for (const back of ["paper", "card", "raised", "faint", "chosen"]) {
          const [low, high] = [light(text), light(back)].sort((a, b) => a - b);
          const ratio = (high + 0.05) / (low + 0.05);
          if (ratio < 4.5) weak.push(`${text} on ${back}: ${ratio.toFixed(2)}`);
        }
      return weak;
    })()"""
    with browser.open(page_of(tree(1)), dark=dark) as page:
        assert page.value(measure) == []


def test_keys_walk_through_the_rows(run_page: Page, keep: Keep) -> None:
    with run_page as page:
        page.press("ArrowDown", "ArrowDown")
        assert page.text(f"{SELECTED} .label bdi") == "chat gpt-5"
        page.press("ArrowDown")
        assert page.text(f"{SELECTED} .label bdi") == "research"
        before = page.value("document.querySelector('#waterfall').ariaRowCount")
        page.press("ArrowLeft")
        assert page.value(f"document.querySelector('{SELECTED}').ariaExpanded") == "false"
        after = page.value("document.querySelector('#waterfall').ariaRowCount")
        assert int(before) - int(after) == 4
        page.press("ArrowRight", "ArrowRight", "ArrowRight")
        assert page.text(f"{SELECTED} .label bdi") == "chat gpt-5"
        active = page.value(
            "document.querySelector('#waterfall').getAttribute('aria-activedescendant')"
        )
        assert page.value(f"document.querySelector('{SELECTED}').id") == active
        page.press("Enter")
        assert page.text("#details h2") == "chat gpt-5"
        assert page.value("location.hash").startswith("#span=")
        page.press("End")
        assert page.text("#details h2") == "chat gpt-5-mini"
        page.screenshot(keep("details"))
        page.press("Escape")
        assert not page.is_seen("#details")
        _is_quiet(page)


def test_a_filter_shows_what_matches_and_where_it_is(run_page: Page, keep: Keep) -> None:
    with run_page as page:
        page.press("/", *"connection reset")
        assert page.text("#found") == "1 of 115"
        rows = page.texts("#waterfall .row:not(.context) .label bdi")
        assert rows[:1] == ["web_search"]
        assert page.texts("#waterfall .row.context .label > bdi") == [
            "planner",
            "research",
            "researcher",
        ]
        page.screenshot(keep("filter"))
        page.press("Enter", "Enter")
        assert page.text("#details .failure b") == "tool_error"
        page.press("Escape", "/", "Escape")
        assert page.text("#found") == ""
        page.click("#errors")
        assert page.text("#errors") == page.text("#found").split()[0] + " failed"
        assert page.count("#waterfall .row.failed") == 4


def test_dragging_over_a_time_looks_at_it(run_page: Page, keep: Keep) -> None:
    with run_page as page:
        whole = page.texts("#axis .tick")
        page.drag("#axis .lane", 0.15, 0.45)
        assert page.is_seen("#reset") and page.texts("#axis .tick") != whole
        page.hover("#row-9 .lane")
        page.screenshot(keep("zoom"))
        page.click("#reset")
        assert not page.is_seen("#reset") and page.texts("#axis .tick") == whole
        page.drag("#overview canvas", 0.5, 0.8)
        assert page.is_seen("#reset")
        page.press("Escape")
        assert page.texts("#axis .tick") == whole


def test_tabs_by_key_and_by_mouse(run_page: Page, keep: Keep) -> None:
    with run_page as page:
        page.press("3")
        assert page.is_seen("#eventlist") and not page.is_seen("#waterfall")
        assert page.text("#eventlist .row:first-child .kind") == "run.started"
        page.press("ArrowDown", "ArrowDown", "Enter")
        assert page.text("#details h2") == "model.answered"
        assert json.loads(page.text("#details pre"))["turn"] == 1
        page.screenshot(keep("event"))
        page.click("#tab-conversation")
        said = page.texts("#conversation > .talk > .said .text")
        assert said[0].startswith("Compare the twenty markets")
        assert said[-1].startswith("The report is out.")
        assert "Approved by dana" in page.text(".talk")
        page.press("1")
        assert page.is_seen("#waterfall")
        _is_quiet(page)


def test_addresses_lead_to_a_span_an_event_a_conversation(
    browser: Chromium, page_of: Write, keep: Keep
) -> None:
    file = page_of(tree())
    with browser.open(file) as page:
        ids = "[...document.querySelectorAll('#waterfall .row')].map(it => it.id)"
        assert "row-110" not in page.value(ids)
        span = page.value("JSON.parse(document.querySelector('#data').textContent).rows[110].id")
    with browser.open(file, hash=f"#span={span}") as page:
        assert page.value(f"document.querySelector('{SELECTED}').id") == "row-110"
        assert page.is_seen("#details")
    with browser.open(file, hash="#event=100") as page:
        assert page.text('#eventlist [aria-selected="true"] .seq') == "100"
    with browser.open(file, hash="#talk=run_7Q2M4KXA_t1-7") as page:
        page.frame()
        assert page.is_seen('.child[data-run="run_7Q2M4KXA_t1-7"] .said .text')
        page.screenshot(keep("child-conversation"))
    with browser.open(file, hash="#span=%E0%A4%A") as page:
        assert page.is_seen("#waterfall")
        _is_quiet(page)


def test_five_thousand_events_open_and_scroll(
    browser: Chromium, page_of: Write, keep: Keep
) -> None:
    (run,) = runs = long_run(5000)
    assert len(run.events) >= 5000 and len(run.spans) >= 9_900
    file = page_of(runs)
    assert file.stat().st_size < 8_000_000
    with browser.open(file) as page:
        assert page.count("#waterfall .row") < 80
        rows = int(page.value("document.querySelector('#waterfall').ariaRowCount"))
        page.value("void (document.querySelector('#waterfall').scrollTop = 1e9)")
        page.frame()
        assert page.count(f"#row-{rows - 1}") == 1 and page.count("#row-0") == 0
        assert page.count("#waterfall .row") < 80
        page.press("End", "Enter")
        assert page.text("#details h2") == "chat gpt-5"
        page.screenshot(keep("long"))
        page.press("3", "End")
        assert page.text('#eventlist [aria-selected="true"] .kind') == "run.done"
        assert page.count("#eventlist .row") < 80
        page.screenshot(keep("long-events"))
        page.press("/", *"page/1200")
        assert page.text("#found") == "2 of 5,001"
        _is_quiet(page)


def test_a_run_that_waits_for_a_person(browser: Chromium, page_of: Write, keep: Keep) -> None:
    told = Told("run_OPEN", "clerk")
    told.start("Pay the baker.", at=0)
    told.answers(calls("pay", "id-t1-0", '{"euros": 70}'), at=800, took=700)
    asked = ApprovalRequested(call="t1-0", turn=1, agent="clerk", name="pay", call_id="id-t1-0")
    told.add("approval.requested", asked, at=805)
    told.add("waiting", RunWaiting(turn=1, approvals=[asked]), at=4_005)
    with browser.open(page_of([told.page_run()]), dark=True) as page:
        assert page.text(".status") == "waiting"
        assert page.count("#waterfall .op-approval .part.person.lasts") == 1
        assert page.text("#waterfall .op-approval .caption") == "3.20 s …"
        page.click("#tab-conversation")
        assert page.texts(".remark.wait span bdi") == ["Waits for a person's approval"]
        page.press("1")
        page.screenshot(keep("waiting"))
        _is_quiet(page)


def test_without_scripts_the_conversation_can_be_read(
    browser: Chromium, page_of: Write, keep: Keep
) -> None:
    file = page_of(tree(2))
    with browser.open(file) as page:
        page.scripts(False)
        page.load(file.as_uri() + "?again")
        page.command("Page.bringToFront")
        shot = keep("no-scripts")
        page.scripts(True)  # for looking: the document was made without
        assert page.is_seen(".notice") and page.is_seen(".talk > .said.assistant .text")
        assert not page.is_seen("#waterfall") and not page.is_seen(".tabs")
        page.screenshot(shot)


def test_it_can_be_printed(run_page: Page) -> None:
    with run_page as page:
        page.command("Emulation.setEmulatedMedia", media="print")
        page.value("void dispatchEvent(new Event('beforeprint'))")
        page.frame()
        assert page.count("#waterfall .row") == 115
        assert page.is_seen("#conversation .said") and page.is_seen("#eventlist .row")
        assert not page.is_seen(".tools")
        printed = page.command("Page.printToPDF", printBackground=True)["data"]
        assert len(printed) > 20_000
