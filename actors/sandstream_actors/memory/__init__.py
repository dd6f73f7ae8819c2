"""The memory actor: finished runs become memories (see actor.py)."""
