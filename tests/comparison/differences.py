"""Compares two reports, and lists the differences that we keep on purpose."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

_ID = re.compile(r"\b(resp|msg|fc|ctc|rs|req|chatcmpl)[_-][A-Za-z0-9-]{6,}\b")
_CACHE_KEY = re.compile(r"\b(?:agents-sdk|sandstream):(run|group|conversation):\w+")
_TIMES = {"created_at", "completed_at"}


def normalised(report: Any) -> Any:
    """Ids are numbered in the order in which they are seen; times are left out."""
    seen: dict[str, str] = {}

    def rename(match: re.Match[str]) -> str:
        kind = match[1]
        return seen.setdefault(match[0], f"{kind}#{sum(v.startswith(kind) for v in seen.values())}")

    def walk(value: Any) -> Any:
        if isinstance(value, str):
            return _ID.sub(rename, _CACHE_KEY.sub(rename, value))
        if isinstance(value, list):
            return [walk(item) for item in value]
        if isinstance(value, dict):
            return {key: walk(item) for key, item in value.items() if key not in _TIMES}
        return value

    return walk(report)


_ABSENT = object()


def differences(theirs: Any, ours: Any, path: str = "") -> dict[str, tuple[Any, Any]]:
    """Paths where two JSON values differ, with both values."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        found: dict[str, tuple[Any, Any]] = {}
        for key in [*theirs, *(key for key in ours if key not in theirs)]:
            found |= differences(
                theirs.get(key, _ABSENT), ours.get(key, _ABSENT), f"{path}.{key}" if path else key
            )
        return found
    if isinstance(theirs, list) and isinstance(ours, list) and len(theirs) == len(ours):
        found = {}
        for index, (one, other) in enumerate(zip(theirs, ours, strict=True)):
            found |= differences(one, other, f"{path}.{index}")
        return found
    if type(theirs) is type(ours) and theirs == ours:
        return {}
    return {path: (theirs, ours)}


def told(found: dict[str, tuple[Any, Any]]) -> str:
    lines = []
    for path, (theirs, ours) in found.items():
        lines += [f"{path}", f"   agents:     {_short(theirs)}", f"   sandstream: {_short(ours)}"]
    return "\n".join(lines)


def _short(value: Any) -> str:
    return "(absent)" if value is _ABSENT else json.dumps(value)[:600]


@dataclass(frozen=True)
class Expected:
    """A difference that stays, as `docs/differences.md` explains it under the heading `topic`.

    Each of the programs shows it, at each of the paths (patterns as for file names).
    """

    topic: str
    reason: str
    programs: tuple[str, ...]
    paths: tuple[str, ...]

    def covers(self, program: str, path: str) -> bool:
        return program in self.programs and any(fnmatchcase(path, one) for one in self.paths)

    def gone(self, program: str, found: Iterable[str]) -> list[str]:
        """Paths at which a program should differ and does not."""
        if program not in self.programs:
            return []
        return [one for one in self.paths if not any(fnmatchcase(path, one) for path in found)]


_FAILED_TURN = ("*.run_data.items", "*.run_data.responses")
_STREAMED_FAILED_TURN = (
    "result.items",
    "result.responses",
    "result.last_response_id",
    "result.input_list",
)

EXPECTED: tuple[Expected, ...] = (
    Expected(
        "Error messages",
        "our own words: they name the agent, the tool or the endpoint, and what to do",
        (
            "call_id_used_again",
            "chat_http_400",
            "connection_dropped",
            "custom_tool_on_chat_completions",
            "extra_args_repeat_an_argument",
            "failed_response",
            "filter_is_no_function",
            "filter_returns_rubbish",
            "handler_output_does_not_fit",
            "handoff_filter_with_auto_previous_response_id",
            "handoff_named_as_a_tool_is_an_error",
            "handoff_with_invalid_input",
            "handoff_with_missing_input",
            "http_400",
            "http_400_of_a_model_object",
            "http_401",
            "http_404",
            "http_500",
            "incomplete_response",
            "input_filter_returns_rubbish",
            "instructions_of_wrong_arity",
            "invalid_output",
            "invalid_output_not_handled_after_all",
            "one_call_id_for_two_calls",
            "output_cannot_be_strict",
            "output_that_does_not_fit",
            "provider_with_client_and_key",
            "run_sync_inside_a_loop",
            "session_input_callback_returns_rubbish",
            "timeout_of_a_sync_tool",
            "tool_use_function_returns_rubbish",
            "two_tools_of_one_name_error",
            "unknown_model_prefix",
            "wrapped_output_without_its_key",
        ),
        ("error.message",),
    ),
    Expected(
        "Error messages",
        "the same, of streamed runs",
        (
            "streamed_failed_response",
            "streamed_http_400",
            "streamed_incomplete_response",
            "streamed_invalid_output",
        ),
        ("result.raised.message",),
    ),
    Expected(
        "Error messages",
        "the same, as an error handler sees them",
        (
            "handler_output_does_not_fit",
            "invalid_output_handled",
            "invalid_output_not_handled_after_all",
        ),
        ("notes.0.1",),
    ),
    Expected(
        "Error messages",
        "what was raised first may have happened in another process",
        ("connection_dropped", "handler_output_does_not_fit", "http_400_of_a_model_object"),
        ("error.cause",),
    ),
    Expected(
        "The turn that failed is shown",
        "the log has it, so run_data has it",
        (
            "bad_arguments_raise",
            "call_id_used_again",
            "chat_refusal",
            "custom_tool_called_as_a_function",
            "disabled_handoff_is_called",
            "disabled_tool_is_called",
            "filter_is_no_function",
            "filter_returns_rubbish",
            "function_called_as_a_custom_tool",
            "handoff_filter_with_auto_previous_response_id",
            "invalid_arguments_raise",
            "one_call_id_for_two_calls",
            "refusal",
            "refusal_of_a_typed_agent",
            "streamed_refusal",
            "streamed_tool_error",
            "streamed_unknown_tool",
            "tool_error_none",
            "tool_raises_an_sdk_error",
            "tool_timeout_raises",
            "unknown_custom_tool",
            "unknown_tool_raises",
        ),
        _FAILED_TURN,
    ),
    Expected(
        "The turn that failed is shown",
        "both calls are shown, and the output of the other one if it came before the end",
        ("one_of_two_tools_raises",),
        ("error.run_data.items*",),
    ),
    Expected(
        "The turn that failed is shown",
        "every error of a run has run_data",
        (
            "handler_output_does_not_fit",
            "handoff_with_invalid_input",
            "handoff_with_missing_input",
            "invalid_output",
            "invalid_output_not_handled_after_all",
            "output_that_does_not_fit",
            "session_input_callback_returns_rubbish",
            "streamed_invalid_output",
            "wrapped_output_without_its_key",
        ),
        ("*.run_data",),
    ),
    Expected(
        "The turn that failed is shown",
        "the result of a streamed run that failed has its last turn",
        (
            "streamed_invalid_output",
            "streamed_refusal",
            "streamed_tool_error",
            "streamed_unknown_tool",
        ),
        _STREAMED_FAILED_TURN,
    ),
    Expected(
        "The turn that failed is shown",
        "a call of an unknown tool is an item of the stream",
        ("streamed_unknown_tool",),
        ("result.events",),
    ),
    Expected(
        "Wrong arguments are found earlier",
        "no request is sent for what cannot work",
        ("excluding_conversation_options", "unknown_error_handler"),
        ("error.class", "error.bases", "error.message", "error.*code", "requests"),
    ),
    Expected(
        "Wrong arguments are found earlier",
        "a RunConfig checks its choices when it is made",
        ("wrong_arguments",),
        ("notes.5.1",),
    ),
    Expected(
        "Wrong arguments are found earlier",
        "before the run there is no run_data",
        (
            "handoff_named_as_a_tool_is_an_error",
            "output_cannot_be_strict",
            "two_tools_of_one_name_error",
        ),
        ("error.run_data",),
    ),
    Expected(
        "Malformed answers",
        "ModelBehaviorError, whatever is wrong with the bytes",
        ("answer_of_a_wrong_shape", "chat_malformed_answer", "malformed_answer"),
        ("error.class", "error.bases*", "error.message", "error.run_data"),
    ),
    Expected(
        "Malformed answers",
        "the same, streamed",
        ("streamed_malformed_answer",),
        (
            "result.raised.class",
            "result.raised.bases*",
            "result.raised.message",
            "result.raised.run_data",
        ),
    ),
    Expected(
        "Usage counts every request",
        "an attempt that failed was a request, too",
        ("http_500_once", "runner_retries"),
        ("result.responses.0.usage.requests", "result.usage.requests"),
    ),
    Expected(
        "Usage counts every request",
        "attempts without tokens have no entry",
        (
            "own_model_gives_retry_advice",
            "runner_retries",
            "runner_retries_a_400_by_policy",
            "streamed_retries_by_policy",
        ),
        ("result.responses.0.usage.entries", "result.usage.entries"),
    ),
    Expected(
        "Usage counts every request",
        "an own model that reports no usage was asked all the same",
        ("own_model_streamed",),
        ("result.responses.*.usage.requests", "result.usage.requests"),
    ),
    Expected(
        "Small things",
        "Chat Completions has no response id: None, not a placeholder",
        ("chat_streamed_tool_loop", "chat_streamed_with_usage"),
        ("result.responses.*.id", "result.last_response_id"),
    ),
    Expected(
        "Small things",
        "outputs are in the order of the calls, also those of unknown tools",
        ("unknown_tool_is_reported",),
        ("result.items.*", "result.input_list.*", "requests.1.body.input.*"),
    ),
    Expected(
        "Small things",
        "outputs are in the order of the calls, also those of custom tools",
        ("custom_tool_beside_the_function_that_ends_a_run",),
        ("result.items.*", "result.input_list.*"),
    ),
    Expected(
        "Small things",
        "the item of a disabled tool keeps the tool's description",
        ("disabled_tool_is_reported",),
        ("result.items.0.description",),
    ),
    Expected(
        "Small things",
        "a prompt without a version is sent without one, not with null",
        ("dynamic_prompt",),
        ("requests.0.body.prompt.version",),
    ),
    Expected(
        "Retries",
        "a policy decides on every failure; the client below it does not retry on its own",
        ("policy_that_never_retries",),
        ("error.message", "error.cause", "requests"),
    ),
)
