"""One run as its caller drives it: plan, compile, start, resume, await."""
