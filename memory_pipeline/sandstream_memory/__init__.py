"""The memory pipeline: pure steps from transcripts of runs to memory files."""
