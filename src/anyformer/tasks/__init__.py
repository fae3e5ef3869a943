"""What models are used for: answers in plain Python, and pictures of how they come about."""
