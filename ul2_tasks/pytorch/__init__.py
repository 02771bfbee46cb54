"""For PyTorch and Transformers."""
