"""Texts and images as rows of tokens: elements, plans, draws, sizes, layout, attention. Plain Python and NumPy."""
