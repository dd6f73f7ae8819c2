"""The tracing actor: reads the log, makes traces of it, keeps and exports them."""
