"""Examples as files."""
