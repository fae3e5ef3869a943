"""What models are trained for: corruptions of text, tasks with labels, and their sums."""
