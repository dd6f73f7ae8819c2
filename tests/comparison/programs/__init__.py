"""The programs, a file per topic."""

COMPOSITION = {
    "agent_tools",
    "approvals",
    "guardrails",
    "handoff_history",
    "handoffs",
    "hooks",
    "mcp_tools",
    "run_state",
    "sessions",
    "tool_guardrails",
}
"""Topics of several agents, of people and of conversations: about half of all programs."""
TRACING = {"tracing", "tracing_more"}
