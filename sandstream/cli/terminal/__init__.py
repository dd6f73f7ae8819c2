"""What commands share to write runs on a terminal: lines, blocks, tables."""
