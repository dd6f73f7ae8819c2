"""One package for each command: ``parser.py`` has its grammar, ``command.py`` does its work."""
