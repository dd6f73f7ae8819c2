"""The text of a page, without a browser: what is masked, shown, cut and embedded."""

from __future__ import annotations

import json
import re

import pytest
from sandstream_actors.tracing.facts import RunFacts
from sandstream_bus.wire.messages import ConversationOpened, InputStaged
from support.pages.chromium import BrowserError, find_chromium
from support.pages.page_runs import Told, long_run, tree
from support.scripted_log import calls, raw, says

from sandstream._inspect.rows import Call
from sandstream._inspect.traces import TracedRun
from sandstream._page import page as page_module
from sandstream._page.conversation import Earlier, Remark, Speech, conversation, remarks_of
from sandstream._page.page import page_html
from sandstream._page.text import Texts, embedded_json, spelled, visible

KEY = "sk-" + "proj-" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6"


def data_of(page: str) -> dict[str, object]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    assert found is not None
    data: dict[str, object] = json.loads(found[1])
    return data


def test_what_cannot_be_seen_is_shown() -> None:
    assert (
        visible("a\0b\x1bc\u202ed\te\nf\r\n\u2028g")
        == "a⟨U+0000⟩b⟨U+001B⟩c⟨U+202E⟩d\te\nf\n⟨U+2028⟩g"
    )
    assert visible("\ud800 שלום, Grüße 👋") == "? שלום, Grüße 👋"


def test_nothing_ends_the_element_that_holds_the_data() -> None:
    text = "</script><!-- & \u2028\u2029 ]]>"
    made = embedded_json({"text": text})
    assert json.loads(made) == {"text": text}
    assert not set("<>&\u2028\u2029") & set(made)


def test_a_long_text_says_how_much_is_missing() -> None:
    assert Texts(10).text("x" * 1_010) == "x" * 10 + "… (1,000 more characters)"
    assert Texts(0).text("x" * 50_000) == "x" * 50_000
    assert Texts(100).line("a\n b" * 100, 5) == "a ba …"


def test_secrets_are_masked_by_their_looks_and_by_their_names() -> None:
    texts = Texts(1_000)
    assert KEY not in texts.text(f"use {KEY} please")
    assert "hunter22" not in texts.value({"auth": {"password": "hunter22"}})
    assert "hunter22" not in texts.json_text('{"password": "hunter22"}')


def test_big_numbers_keep_their_digits() -> None:
    assert "12345678901234567891" in Texts(100).json_text('{"id": 12345678901234567891}')


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (-5, "0 ms"),
        (1_500_000, "1.5 ms"),
        (340_000_000, "340 ms"),
        (1_240_000_000, "1.24 s"),
        (185_000_000_000, "3m 05s"),
        (7_980_000_000_000, "2h 13m"),
        (352_800_000_000_000, "4d 2h"),
    ],
)
def test_durations(ns: int, text: str) -> None:
    assert spelled(ns) == text


def test_a_secret_is_nowhere_on_the_page() -> None:
    told = Told("r", "a")
    told.start(f"My key is {KEY}.", at=0)
    told.answers(calls("login", "id-t1-0", f'{{"api_key": "{KEY}"}}'), at=50, took=30)
    sent = told.asks("t1-0", "login", f'{{"api_key": "{KEY}"}}', at=51)
    told.gets("t1-0", f"logged in with {KEY}", at=80, took=20, cause=sent)
    told.ends("done", at=90)
    page = page_html([told.page_run()])
    assert "My key is" in page and KEY not in page
    assert KEY not in page_html([told.page_run()], is_whole=True)


def test_the_same_run_gives_the_same_page() -> None:
    assert page_html(tree(3)) == page_html(tree(3))


def test_it_asks_for_nothing_from_elsewhere() -> None:
    page = page_html(tree(3))
    assert re.findall(r"""(?:src|href|url|@import)\s*[=(]\s*["']?\s*(?:https?:|//)""", page) == []
    assert "default-src 'none'" in page and "unsafe" not in page.partition("<title>")[0]


def test_a_page_that_gets_too_big_shortens_its_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told("r", "a")
    told.start("x", at=0)
    for number in range(60):
        told.log.add("input", InputStaged(input=f"{number} " + "y" * 15_000), at=number + 1)
    told.ends("done", at=100)
    run = told.page_run()
    whole = len(page_html([run], is_whole=True))
    assert whole > 1_500_000 and len(page_html([run])) > 1_500_000
    monkeypatch.setattr(page_module, "MOST_BYTES", 300_000)
    page = page_html([run])
    assert len(page.encode()) < 300_000 and "more characters" in page


def test_a_run_that_the_log_has_lost() -> None:
    (run,) = long_run(20)
    page = page_html([TracedRun(facts=run.facts, spans=run.spans)])
    assert "The log of this run is gone" in page
    rows = data_of(page)["rows"]
    assert isinstance(rows, list) and len(rows) > 5


def test_a_machine_without_a_browser_is_told_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(BrowserError, match="make setup"):
        find_chromium()


def test_nothing_but_facts_and_no_run_at_all() -> None:
    facts = RunFacts(run="r", trace_id="0" * 32, root="r")
    assert data_of(page_html([TracedRun(facts=facts, spans=[])]))["rows"] == []
    with pytest.raises(ValueError, match="at least one run"):
        page_html([])


def test_a_conversation_is_told_in_order() -> None:
    told = conversation(tree(2)[0].events)
    assert isinstance(told[0], Speech) and told[0].role == "user"
    researching = [it for it in told if isinstance(it, Call) and it.name == "research"]
    assert [it.state for it in researching] == ["done", "done"]
    assert [it.child for it in researching] == ["run_7Q2M4KXA_t1-0", "run_7Q2M4KXA_t1-1"]
    assert researching[0].output == "Market 1 grows by 3 % a year."
    publishing, handing = [it for it in told if isinstance(it, Call)][2:]
    assert [it.text for it in remarks_of(publishing)] == [
        "Waits for a person's approval",
        "Approved by dana",
    ]
    assert handing.state == "handoff"
    assert [it.text for it in told if isinstance(it, Remark)] == ["planner hands over to writer"]
    assert isinstance(told[-1], Speech) and (told[-1].who, told[-1].role) == ("writer", "assistant")


def test_what_was_said_before_the_run_stands_before_it() -> None:
    told = Told("r", "a")
    told.start("And now?", at=0)
    history = [raw({"role": "user", "content": "Before"}), says("Yes.")]
    told.log.add("history", ConversationOpened(history=history), at=1)
    earlier, asked = conversation(told.log.events)
    assert isinstance(earlier, Earlier) and len(earlier.entries) == 2
    assert isinstance(asked, Speech) and asked.text == "And now?"
