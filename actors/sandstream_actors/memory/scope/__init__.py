"""The stored state of one memory scope. The memory actor and the sandbox actor both use it."""
