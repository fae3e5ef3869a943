"""`python -m anyformer.laws` is `anyformer laws`."""

import sys

from anyformer.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["laws", *sys.argv[1:]]))
