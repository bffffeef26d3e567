"""What serves the papers and the built-in data, and that few users of `distill` meet."""
