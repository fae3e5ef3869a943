"""What stops the emulator."""


class KernelError(RuntimeError):
    """What a GPU would answer with an error, or with numbers that differ from run to run."""
