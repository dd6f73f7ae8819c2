"""The tool host actor: runs the user's own code where that code lives."""
