"""What people look at: examples, tables, pages, checks."""
