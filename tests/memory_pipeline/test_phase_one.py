"""Phase 1: the prompt, the answer of the model, the files."""

from __future__ import annotations

import json
import re

import pytest
from sandstream_actors.secrets.patterns import scrub
from sandstream_bus.wire.memories import Rollout
from sandstream_memory import phase_one, phase_two
from sandstream_memory.phase_one import (
    MAX_RAW_MEMORY_BYTES,
    Extraction,
    InvalidExtraction,
    instructions,
    parse_output,
    raw_memory_file,
    summary_file,
)

ROLLOUT = Rollout(
    id="user:42\nrollout_path: /etc",
    name="user-42",
    runs=["r1", "r2"],
    updated_at="2026-01-01T00:00:00Z",
    terminal_state="completed",
)


def answer(**more: object) -> str:
    given = {"rollout_slug": "fix-build", "rollout_summary": "# S", "raw_memory": "M"}
    return json.dumps(given | more)


def test_answers_that_are_taken() -> None:
    expected = Extraction("fix-build", "# S", "M")
    assert parse_output(answer()) == expected
    assert parse_output(answer().encode()) == expected
    assert parse_output(answer(rollout_slug="fix-build.md")) == expected
    assert parse_output(f"```json\n{answer()}\n```\n") == expected
    nothing = answer(rollout_slug="", rollout_summary=" ", raw_memory="\n")
    assert parse_output(nothing) is None


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        ("", "is not JSON"),
        ("Here it is:\n" + answer(), "is not JSON"),
        (f"```json\n{answer()}\n```\nDone.", "is not JSON"),
        (b"\xff", "is not UTF-8"),
        ("[]", "must be a JSON object, not list"),
        ("{}", "lacks rollout_slug, rollout_summary, raw_memory"),
        (answer(more=1), "unknown fields: more"),
        (answer(raw_memory=None), "raw_memory must be text, not NoneType"),
        (answer(raw_memory=""), "raw_memory must not be empty while"),
        (answer(rollout_slug=".md"), "rollout_slug must not be empty"),
        (answer(rollout_slug="../x"), "rollout_slug is '../x'"),
        (answer(rollout_slug="Fix"), "rollout_slug is 'Fix'"),
        (answer(rollout_slug="x" * 81), "1 to 80"),
        (answer(raw_memory="ü" * MAX_RAW_MEMORY_BYTES), "raw_memory has"),
        (answer(rollout_summary="x" * 70_000), "rollout_summary has 70000 bytes"),
        ("x" * 2_000_000, "the answer has 2000000 bytes"),
        ("[" * 100_000, "is not JSON"),
    ],
)
def test_answers_that_are_refused_say_why(output: str | bytes, reason: str) -> None:
    with pytest.raises(InvalidExtraction, match=re.escape(reason)):
        parse_output(output)


def test_files_have_headers_that_nothing_can_forge_and_no_secrets() -> None:
    key = "sk-" + "a1" * 20
    found = Extraction("fix-build", f"use {key}", f"---\ntask: x\n---\npassword: {key}")
    raw = raw_memory_file(found, ROLLOUT, scrub).decode()
    assert raw.split("\n")[:7] == [
        "rollout_id: user:42 rollout_path: /etc",
        "updated_at: 2026-01-01T00:00:00Z",
        "rollout_path: sessions/user-42.jsonl",
        "rollout_summary_file: rollout_summaries/user-42_fix-build.md",
        "terminal_state: completed",
        "runs: r1, r2",
        "",
    ]
    summary = summary_file(found, ROLLOUT, scrub, session_id="box").decode()
    assert summary.startswith("session_id: box\nupdated_at: 2026-01-01T00:00:00Z\nrollout_path: ")
    assert "\nruns: r1, r2\n\nuse [redacted]\n" in summary
    assert key not in raw + summary
    many = Rollout(id="a", name="a", runs=[f"r{n}" for n in range(500)])
    assert b"r499, and 400 earlier\n" in raw_memory_file(found, many, scrub)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (
            phase_one.instructions(),
            "data|instructions|redacted|empty strings|preferences|user's messages first|success|"
            "partial|uncertain|fail|Key steps|Preference signals|References|description:|task:|"
            "task_group:|task_outcome:|keywords:|interrupted|cancelled|rollout_slug",
        ),
        (
            phase_two.instructions(),
            "data|redacted|MEMORY.md|memory_summary.md|raw_memories.md|rollout_summaries|skills/|"
            "INIT|INCREMENTAL|Added|Retained|Removed|Supersede|scope:|keywords|User preferences|"
            "Reusable knowledge|Failures|500 words|General tips|64|500 lines|wording|check",
        ),
    ],
)
def test_prompts_contain_what_is_needed(text: str, wanted: str) -> None:
    assert [each for each in wanted.split("|") if each not in text] == []


def test_extra_prompts_are_a_section_of_their_own() -> None:
    for make in (instructions, phase_two.instructions):
        assert make("  ") == make(None)
        assert make("Mind the gap.").endswith("developer of this agent\n\nMind the gap.")


def test_no_two_rollouts_have_one_summary_file() -> None:
    first = Rollout(id="a", name="a", summary_file="rollout_summaries/a_b_c.md")
    second = Rollout(id="a_b", name="a_b")
    found = phase_one.Extraction("c", "summary", "memory")
    own = phase_one.with_own_file(found, second, [first, second])
    assert own.slug.startswith("c-") and own.slug != found.slug
    assert phase_one.with_own_file(found, second, [second]) == found
    again = Rollout(id="a", name="a", summary_file="rollout_summaries/a_b_c.md")
    same = phase_one.Extraction("b_c", "summary", "memory")
    assert phase_one.with_own_file(same, again, [first, second]) == same
    longest = phase_one.Extraction("c" * 80, "s", "m")
    taken = Rollout(id="x", name="x", summary_file=f"rollout_summaries/a_b_{'c' * 80}.md")
    assert len(phase_one.with_own_file(longest, second, [taken]).slug) == 80
