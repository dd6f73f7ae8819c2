"""What several actors know about runs: how runs end, are read back, and use sandboxes."""
