"""Where documents come from: files, memory, Hugging Face, TensorFlow Datasets."""
