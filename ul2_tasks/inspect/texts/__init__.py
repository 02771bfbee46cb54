"""What people look at of texts, of which denoisers make examples."""
