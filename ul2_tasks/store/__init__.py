"""Tokenized documents as pairs of files, `.bin` and `.idx`: Megatron's IndexedDataset, written and read without torch."""
