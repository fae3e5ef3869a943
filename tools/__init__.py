"""Commands for those who look after the repository."""
