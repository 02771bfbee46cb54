"""What people look at: measurements against what must hold, examples, tables, pages, checks; a wing for each kind of data."""
