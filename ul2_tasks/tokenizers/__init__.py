"""What tokenizes: vocabularies by name, and their sentinels and modes."""
