"""What is trained on, as it is described: nothing of it is registered anywhere."""
