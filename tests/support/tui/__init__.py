"""The terminal UI in tests."""
