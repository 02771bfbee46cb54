"""The tokenized corpus that the denoisers of a mixture share, and its cache."""
