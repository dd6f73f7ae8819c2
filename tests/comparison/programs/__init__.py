"""The programs, a file per topic."""

NOT_YET: set[str] = {
    "approvals",
    "guardrails",
    "hooks",
    "mcp_tools",
    "run_state",
    "tool_guardrails",
}
"""Files whose programs need what Sandstream does not have yet; the others are compared."""
