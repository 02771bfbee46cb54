"""What people look at of interleaved image-text data."""
