"""What people look at of rows of texts and images."""
