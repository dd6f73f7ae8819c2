"""The agent that lives in a sandbox, and the client that speaks to it. The same for all providers
that can start a process and reach a socket.
"""
