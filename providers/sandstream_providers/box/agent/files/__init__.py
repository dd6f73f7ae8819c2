"""The files of the box: paths inside it, and what is read, written, changed and listed there."""
