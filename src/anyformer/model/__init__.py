"""Whole models: embedding, stack and head, and what they count from the spec alone."""
