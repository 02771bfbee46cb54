"""BAGEL's packed rows of texts and images, on their own: from records to what a model that reads and generates images takes."""
