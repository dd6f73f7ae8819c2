"""Ready-made parts for programs that use the SDK; nothing in the SDK needs them."""
