"""Commands in the box: how they are started, awaited, limited and ended."""
