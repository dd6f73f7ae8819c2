"""The copies of memories in workspaces: written there, changed by agents, reported to the memory
actor.
"""
