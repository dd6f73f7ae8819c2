"""The terminal UI: a reader of the log that publishes the same messages as every other client.

It imports Textual, which is an extra (``pip install 'sandstream[tui]'``). Only the command
``sandstream tui`` imports this package.
"""
