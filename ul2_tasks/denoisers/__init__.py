"""The objective: from chunks of tokens to inputs and targets."""
