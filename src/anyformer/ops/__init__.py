"""Pure tensor functions: they know no spec and no module."""
