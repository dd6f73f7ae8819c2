"""The demo of the terminal UI: real actors on a private server, and a scripted model."""
