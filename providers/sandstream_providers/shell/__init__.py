"""Boxes without our agent: everything is done by short scripts for ``/bin/sh`` in the box."""
