"""Files of every file system: listed, opened, read, and written whole."""
