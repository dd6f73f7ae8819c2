"""Sessions: agents that people work with for days."""
