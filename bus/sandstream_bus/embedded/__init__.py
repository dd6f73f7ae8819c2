"""The private nats-server of a home: its start, its keeper, its end."""
