"""The ways into the box and out of it: clients, ports, the proxy."""
