"""Code about runs that several actors share: how runs end, are read, and use sandboxes."""
