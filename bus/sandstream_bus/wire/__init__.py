"""What crosses the bus: messages, subjects and headers. Knows no connection."""
