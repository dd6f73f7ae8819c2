"""Creates, changes and upgrades an installation; defines users, roles and accounts."""
