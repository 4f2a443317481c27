"""Words in what is said: names that do not exist, names that came from others, and numbers."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from itertools import islice

MOST_NAMES, LONGEST_NAME = 60, 60
"""What is listed of names that may be of others: so many, and so many characters of each."""
MOST_COMPARED = 1000
"""Names, and characters of one, among which a similar one is looked for."""


def unknown(kind: str, name: str, known: Iterable[str]) -> ValueError:
    """There is nothing of that name, but perhaps of a similar one.

    >>> str(unknown("method", "mamml", ["maml", "mixture"]))
    "There is no method 'mamml'. Did you mean 'maml'? Choose from maml, mixture."
    """
    known = list(known)
    similar = nearest(name, known)
    suggestion = f" Did you mean {_cut(similar)!r}?" if similar else ""
    listed = [_cut(one) for one in known[:MOST_NAMES]]
    if len(known) > MOST_NAMES:
        listed.append(f"{len(known) - MOST_NAMES:,} more")
    return ValueError(
        f"There is no {kind} {_cut(name)!r}.{suggestion} Choose from {', '.join(listed)}."
    )


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that is most like another, if any is like it at all.

    >>> nearest("meta_rat", ["meta_rate", "model"])
    'meta_rate'
    """
    # Every comparison takes time that grows with both names.
    few = [one for one in islice(known, MOST_COMPARED) if len(one) <= MOST_COMPARED]
    found = difflib.get_close_matches(name, few, n=1) if len(name) <= MOST_COMPARED else []
    return found[0] if found else None


def _cut(name: str) -> str:
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 3]}..."


def counted(count: int, what: str) -> str:
    """A number with a noun whose plural ends in s.

    >>> counted(1, "alarm"), counted(1200, "row")
    ('1 alarm', '1,200 rows')
    """
    return f"{count:,} {what}{'s' * (count != 1)}"


def percent(share: float, digits: int = 1) -> str:
    """A share as it is written here, with a space.

    >>> percent(0.9), percent(0.905, 0)
    ('90.0 %', '90 %')
    """
    return f"{100 * share:.{digits}f} %"


def printable(text: str) -> str:
    """The same line without what a terminal would obey: escape sequences, line breaks, direction.

    >>> printable("a\\x1b[31mb\\u202ec")
    'a\\\\x1b[31mb\\\\u202ec'
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
