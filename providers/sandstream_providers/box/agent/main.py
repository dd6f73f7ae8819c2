"""The start: which of the agent's programs is wanted. Only its own modules are loaded, because a
box may have to compile them.
"""

from __future__ import annotations


def main(argv: list[str]) -> None:
    """Does not return."""
    if argv[1] == "relay":
        from sandstream_providers.box.agent.network.relay import relay

        relay(argv[2])
    if argv[1] == "background":
        from sandstream_providers.box.agent.network.background import background

        background(argv[2])
    if argv[1] == "proxy":
        from sandstream_providers.box.agent.network.proxy import proxy

        proxy(argv[2])
    from sandstream_providers.box.agent.service import serve

    serve(argv)
