"""The NATS client layer: connection, consumers, reads, writes, objects, streams."""
