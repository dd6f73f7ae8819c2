"""A prompt prefix for agents that hand conversations off to each other."""

from __future__ import annotations

__all__ = ["RECOMMENDED_PROMPT_PREFIX", "prompt_with_handoff_instructions"]

RECOMMENDED_PROMPT_PREFIX = (
    "# Working with other agents\n"
    "You are one of several agents that serve the same user. Each has its own instructions and "
    "tools. If another agent suits the request better, pass the conversation to it by calling its "
    "handoff function; these functions are usually named `transfer_to_<agent_name>`. The other "
    "agent then goes on where you stopped. The user sees one assistant: say nothing about agents "
    "or about passing the conversation on.\n"
)


def prompt_with_handoff_instructions(prompt: str) -> str:
    """The prompt, with an explanation of handoffs before it.

    Args:
        prompt: The agent's own instructions.

    Example:
        text = prompt_with_handoff_instructions("You answer questions about bills.")
        agent = Agent(name="Billing", instructions=text, handoffs=[support])
    """
    return f"{RECOMMENDED_PROMPT_PREFIX}\n\n{prompt}"
