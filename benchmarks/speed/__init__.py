"""What an example costs, beside the same from others: `python benchmarks/speed`."""
