"""Pictures of attention: weights by name, the page that shows them, and a figure."""
