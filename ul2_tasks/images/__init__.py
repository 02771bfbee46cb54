"""Texts and images as rows of tokens: elements, layouts, draws, sizes, layout, attention. Plain Python and NumPy."""
