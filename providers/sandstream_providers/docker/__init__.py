"""Sandboxes in containers of a Docker engine, with our agent in them or only a shell.

``engine`` is the only module that talks to the engine and knows its library. The others say what
a container of ours looks like (``hardening``, ``container``), how a box is recognised (``labels``),
which files of this machine belong to it (``folders``), how it is reached (``links``, ``shells``),
and what an image can do (``images``).
"""
