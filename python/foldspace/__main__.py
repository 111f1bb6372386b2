"""Runs the program: ``python -m foldspace``."""

import os
import sys

from foldspace._binary import find_foldspace_bin


def main() -> None:
    """Replaces this process with the program."""
    program = find_foldspace_bin()
    os.execv(program, [program, *sys.argv[1:]])


if __name__ == "__main__":
    main()
