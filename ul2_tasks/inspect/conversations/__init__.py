"""What people look at of conversations."""
