"""Ready-made parts for programs that use the SDK; the SDK itself does not need them."""
