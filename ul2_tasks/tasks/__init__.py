"""SeqIO's tasks and mixtures."""
