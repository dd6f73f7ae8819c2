"""The command line. Data on stdout, talk on stderr; each command is a module, imported on use."""
