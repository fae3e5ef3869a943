"""The anyformer command, one file per verb."""
