"""Words in what is said: names that do not exist, names that came from others, and numbers."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def unknown(kind: str, name: str, known: Iterable[str]) -> ValueError:
    """There is nothing of that name, but perhaps of a similar one.

    >>> str(unknown("method", "mamml", ["maml", "mixture"]))
    "There is no method 'mamml'. Did you mean 'maml'? Choose from maml, mixture."
    """
    known = list(known)
    similar = nearest(name, known)
    suggestion = f" Did you mean {similar!r}?" if similar else ""
    return ValueError(f"There is no {kind} {name!r}.{suggestion} Choose from {', '.join(known)}.")


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that is most like another, if any is like it at all.

    >>> nearest("meta_rat", ["meta_rate", "model"])
    'meta_rate'
    """
    found = difflib.get_close_matches(name, list(known), n=1)
    return found[0] if found else None


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
