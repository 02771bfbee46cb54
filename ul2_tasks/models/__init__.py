"""From examples to the features of a model, a batch at a time."""
