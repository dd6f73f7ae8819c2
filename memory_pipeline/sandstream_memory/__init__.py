"""What runs teach, as files: pure steps."""
