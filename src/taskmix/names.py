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
    nearest = difflib.get_close_matches(name, known, n=1)
    suggestion = f" Did you mean {nearest[0]!r}?" if nearest else ""
    return ValueError(f"There is no {kind} {name!r}.{suggestion} Choose from {', '.join(known)}.")
