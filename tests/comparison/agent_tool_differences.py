"""The differences of agents as tools that we keep on purpose; see `differences.py`."""

from __future__ import annotations

from comparison.differences import Expected

_PLAIN = (
    "agent_tool_ends_the_run",
    "agent_tool_failure_function",
    "agent_tool_failure_is_raised",
    "agent_tool_in_an_agent_tool",
    "agent_tool_names",
    "agent_tool_plain",
    "agent_tool_reaches_max_turns",
    "agent_tool_refuses",
    "agent_tool_streamed",
    "agent_tool_twice",
    "agent_tool_whose_model_fails",
    "agent_tool_with_guardrails_of_its_own",
    "agent_tool_with_tools",
    "broken_input_of_an_agent_tool",
    "conversation_is_not_shared_with_agent_tools",
    "custom_output_extractor",
    "disabled_agent_tools",
    "empty_output_of_an_agent_tool",
    "handoff_inside_an_agent_tool",
    "input_builder_raises",
    "input_builder_returns_rubbish",
    "on_stream",
    "on_stream_in_a_streamed_run",
    "on_stream_over_a_handoff",
    "on_stream_raises",
    "parallel_agent_tools",
    "run_config_is_inherited",
    "run_config_of_an_agent_tool",
    "session_is_not_shared_with_agent_tools",
    "typed_agent_tool_ends_the_run",
    "typed_output_of_an_agent_tool",
    "usage_of_an_agent_tool",
)
"""Programs whose agent tools have no parameters of their own."""

EXPECTED: tuple[Expected, ...] = (
    Expected(
        "Agents as tools",
        "the description of the default parameters is in our own words",
        _PLAIN,
        ("requests.*.body.tools.*.parameters.description",),
    ),
    Expected(
        "Agents as tools",
        "the same, as the tool shows it",
        ("agent_tool_names",),
        ("notes.0.2.description",),
    ),
    Expected(
        "Agents as tools",
        "structured arguments are rendered in our own words",
        (
            "structured_parameters",
            "structured_parameters_with_schema",
            "tool_input_in_the_context",
        ),
        ("requests.*.body.input.0.content",),
    ),
    Expected(
        "Agents as tools",
        "a run of several requests is one sum in its caller's usage, without entries",
        (
            "agent_tool_in_an_agent_tool",
            "agent_tool_with_tools",
            "empty_output_of_an_agent_tool",
            "handoff_inside_an_agent_tool",
            "on_stream",
            "on_stream_over_a_handoff",
            "tool_input_in_the_context",
        ),
        ("result.usage.entries",),
    ),
    Expected(
        "The turn that failed is shown",
        "the log has it, so run_data has it",
        ("agent_tool_failure_is_raised",),
        ("error.run_data.items", "error.run_data.responses"),
    ),
)
