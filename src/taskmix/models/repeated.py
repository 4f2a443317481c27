"""What a program repeats has a bound: a description that somebody else wrote may ask for any."""

from __future__ import annotations

MOST = 500
"""Times that a program may repeat a part, or draw anew, for one prediction. Parts that are written
out take minutes to compile long before that; draws take memory."""


def check_repeated(**settings: int) -> None:
    """Raise a ``ValueError`` that names the first setting which is not from 1 to ``MOST``.

    >>> check_repeated(reads=10**9)
    Traceback (most recent call last):
    ValueError: reads is 1000000000; it must be 1 to 500.
    """
    for name, value in settings.items():
        if not 1 <= value <= MOST:
            # Python writes no number of more than 4300 digits.
            shown = value if abs(value) < 1e18 else "far too large"
            raise ValueError(f"{name} is {shown}; it must be 1 to {MOST}.")
