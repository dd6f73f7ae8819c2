"""The tools that a model uses in a sandbox, executed on a live box."""
