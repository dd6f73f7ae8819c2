"""One session or run: its transcript, the input below it, and what can be done with it."""
