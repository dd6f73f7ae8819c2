"""All sessions and runs: the list, the peek panel, the inbox of questions."""
