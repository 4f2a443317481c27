"""What to say when something is asked for by a name that does not exist."""

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
