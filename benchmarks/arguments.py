"""Values on the command line that several benchmarks take."""

from __future__ import annotations

import argparse
from pathlib import Path


def existing_directory(text: str) -> Path:
    """Return the directory of an argument. It is an error of the command line if there is none."""
    if not Path(text).is_dir():
        raise argparse.ArgumentTypeError(f"{text} is not a directory. Create it, or leave the option out.")
    return Path(text)


def positive(text: str) -> int:
    """Return the whole number of an argument, which is at least 1."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a whole number of at least 1.")
    return number


def not_negative(text: str) -> float:
    """Return the number of an argument, which is at least 0."""
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not a number of at least 0.")
    return number
