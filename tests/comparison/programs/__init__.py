"""The programs, a file per topic."""

COMPOSITION = {
    "agent_tools",
    "approvals",
    "cancelling",
    "guardrails",
    "handoff_history",
    "handoffs",
    "head_starts",
    "hooks",
    "mcp_tools",
    "odd_errors",
    "paused_sessions",
    "run_state",
    "sessions",
    "tool_guardrails",
    "vendor_sessions",
}
"""Topics of several agents, of people and of conversations: about half of all programs."""
TRACING = {"tracing", "tracing_more"}
DOCKER = {"docker_sandboxes"}
"""They need an engine."""
