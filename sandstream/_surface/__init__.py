"""Private parts of the SDK's names: records, graphs, texts, and the interface of the runtime."""
