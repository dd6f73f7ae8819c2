"""The copies of memories in workspaces: laid out, changed by agents, told to the memory actor."""
