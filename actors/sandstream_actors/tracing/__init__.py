"""The tracing actor: reads the log, makes traces from it, stores and exports them."""
