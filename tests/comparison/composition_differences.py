"""Differences kept on purpose, of guardrails, hooks, approvals, saved states and MCP tools."""

from __future__ import annotations

from comparison.differences import Expected

_FAILED_TURN = ("*.run_data.items", "*.run_data.responses")
_NESTED_APPROVALS = (
    "approval_inside_an_agent_tool",
    "approval_of_an_agent_tool_and_inside_it",
    "nested_approval_is_stored",
    "nested_decision_is_stored",
    "rejection_inside_an_agent_tool",
)

EXPECTED: tuple[Expected, ...] = (
    # --- the words of errors ----------------------------------------------------------------------
    Expected(
        "Error messages",
        "a tripwire's message names the guardrail, not only its class",
        (
            "added_input_is_checked_by_guardrails",
            "blocking_guardrail_trips",
            "first_tripped_guardrail_cancels_the_others",
            "one_of_two_parallel_guardrails_trips_at_once",
            "output_guardrail_trips",
            "parallel_guardrail_beside_a_model_object",
            "parallel_guardrail_of_a_plain_function_trips",
            "parallel_guardrail_trips_after_a_step",
            "parallel_guardrail_trips_after_a_tool_ran",
            "parallel_guardrail_trips_at_once",
            "parallel_guardrail_trips_at_the_end",
            "parallel_guardrail_trips_before_hooks",
            "tool_input_guardrail_ends_the_run",
            "tool_output_guardrail_ends_the_run",
        ),
        ("error.message",),
    ),
    Expected(
        "Error messages",
        "the same, of streamed runs",
        (
            "blocking_guardrail_trips_in_a_streamed_run",
            "output_guardrail_trips_in_a_streamed_run",
            "tool_output_guardrail_ends_a_streamed_run",
        ),
        ("result.raised.message",),
    ),
    Expected(
        "Error messages",
        "the same, as programs caught them",
        (
            "output_guardrail_trips_on_what_a_tool_said",
            "parallel_guardrail_trips_at_the_end_of_a_streamed_run",
        ),
        ("notes.*.0.message",),
    ),
    Expected(
        "Error messages",
        "our own words: what is wrong, with which hooks or which server",
        ("agent_hooks_for_a_run", "mcp_server_dies"),
        ("error.message",),
    ),
    Expected(
        "Error messages",
        "a server that was never connected raises a kind of UserError",
        ("mcp_server_that_is_not_connected",),
        ("error.class", "error.bases"),
    ),
    Expected(
        "Wrong arguments are found earlier",
        "before the run there is no run_data",
        ("output_guardrail_with_previous_response_id",),
        ("error.message", "error.run_data"),
    ),
    # --- the turn that failed ---------------------------------------------------------------------
    Expected(
        "The turn that failed is shown",
        "the log has it, so run_data has it",
        (
            "agent_hook_raises_in_on_tool_start",
            "mcp_failures_are_raised",
            "mcp_server_dies",
            "needs_approval_raises",
            "parallel_guardrail_trips_after_a_tool_ran",
            "parallel_guardrail_trips_at_the_end",
            "run_hook_raises_in_on_tool_start",
            "tool_guardrail_raises",
            "tool_guardrail_returns_rubbish",
            "tool_input_guardrail_ends_the_run",
            "tool_output_guardrail_ends_a_streamed_run",
            "tool_output_guardrail_ends_the_run",
        ),
        _FAILED_TURN,
    ),
    Expected(
        "The turn that failed is shown",
        "with what the tool's guardrails said",
        (
            "tool_input_guardrail_ends_the_run",
            "tool_output_guardrail_ends_a_streamed_run",
            "tool_output_guardrail_ends_the_run",
        ),
        ("*.run_data.tool_*put_guardrail_results",),
    ),
    Expected(
        "The turn that failed is shown",
        "the result of a streamed run that failed has its last turn",
        ("tool_output_guardrail_ends_a_streamed_run",),
        (
            "result.items",
            "result.responses",
            "result.last_response_id",
            "result.input_list",
            "result.tool_output_guardrail_results",
        ),
    ),
    Expected(
        "The turn that failed is shown",
        "every error of a run has run_data",
        ("output_guardrail_trips_on_what_a_tool_said",),
        ("notes.*.run_data",),
    ),
    Expected(
        "The turn that failed is shown",
        "a call whose hook raised has failed: it has no output",
        ("run_hook_raises_in_on_tool_end",),
        ("error.run_data.items",),
    ),
    # --- guardrails -------------------------------------------------------------------------------
    Expected(
        "Guardrails and hooks",
        "what a guardrail refuses at once is not prepared either",
        ("parallel_guardrail_trips_before_hooks",),
        ("notes",),
    ),
    Expected(
        "Guardrails and hooks",
        "what is no verdict is a UserError that names the guardrail",
        ("guardrail_returns_rubbish",),
        ("error.class", "error.bases", "error.message", "error.run_data"),
    ),
    Expected(
        "Guardrails and hooks",
        "the same, of a tool's guardrail",
        ("tool_guardrail_returns_rubbish",),
        ("error.message", "error.cause"),
    ),
    Expected(
        "Guardrails and hooks",
        "both verdicts are shown: the one before the approval and the one before the call",
        ("tool_guardrail_before_an_approval",),
        ("result.tool_input_guardrail_results",),
    ),
    Expected(
        "Guardrails and hooks",
        "a resumed run is the same run: its agent does not start again",
        ("hooks_around_an_approval",),
        ("notes",),
    ),
    # --- runs of agent tools that wait ------------------------------------------------------------
    Expected(
        "Agents as tools",
        "the description of the default parameters is in our own words",
        (*_NESTED_APPROVALS, "hooks_of_an_agent_tool", "rejection_of_an_agent_tool"),
        ("requests.*.body.tools.*.parameters.description",),
    ),
    Expected(
        "Agents as tools",
        "a run of several requests is one sum in its caller's usage, without entries",
        _NESTED_APPROVALS,
        ("result*.usage.entries",),
    ),
    Expected(
        "Agents as tools",
        "the sum is added when the run ends, not while it waits for an answer",
        ("approval_inside_an_agent_tool",),
        ("result.0.usage.requests", "result.0.usage.*_tokens"),
    ),
    Expected(
        "Agents as tools",
        "what is asked inside of it is among the interruptions, never among its caller's items",
        ("approval_of_an_agent_tool_and_inside_it",),
        ("result.items",),
    ),
)
