"""Differences kept on purpose, of traces and spans."""

from __future__ import annotations

from comparison.differences import Expected

EXPECTED: tuple[Expected, ...] = (
    Expected(
        "Traces",
        "the output of a generation span has what was said, not every field of the answer",
        (
            "trace_of_chat_completions",
            "trace_of_chat_completions_with_a_tool",
            "trace_of_streamed_chat_completions",
        ),
        ("notes.*.data.output.*",),
    ),
    Expected(
        "Traces",
        "errors of spans are in our own words, those of a run's errors",
        (
            "trace_of_a_model_error",
            "trace_of_a_streamed_failure",
            "trace_of_a_tool_that_ends_the_run",
            "trace_of_a_tool_that_fails",
            "trace_of_bad_arguments",
        ),
        ("notes.*.error.data.error",),
    ),
    Expected(
        "Traces",
        "the same, of an answer that does not fit",
        ("trace_of_an_invalid_output",),
        ("notes.*.error.message", "notes.*.error.data.error"),
    ),
    Expected(
        "Traces",
        "a sandbox is opened, kept and closed, whatever is done for that",
        ("trace_of_a_sandbox_agent",),
        ("notes.0.1.*",),
    ),
    Expected(
        "Agents as tools",
        "the description of the default parameters is in our own words",
        ("trace_of_an_agent_tool",),
        ("requests.*.body.tools.*.parameters.description",),
    ),
    Expected(
        "Wrong arguments are found earlier",
        "a parent that is no span and no trace is a UserError",
        ("bad_spans",),
        ("notes.?.0",),
    ),
)
