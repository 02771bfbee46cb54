"""What people look at of texts with pictures in places."""
