"""The HTML page of a run. It draws what ``_inspect`` reads, and knows nothing of terminals."""
