"""Sandboxes of E2B, or of an engine of one's own that speaks E2B's protocol.

``control`` imports the vendor's library, on first use. ``account`` knows the environment variables,
``errors`` the exceptions of the library, ``vendor`` its calls.
"""
