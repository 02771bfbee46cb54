"""What a mixture measures, against what it must be."""
