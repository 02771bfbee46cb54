"""Where documents come from: files, memory, Hugging Face, TensorFlow Datasets. To add a format of files see `formats`."""
