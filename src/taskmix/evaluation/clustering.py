"""How well clusters agree with families, none of which depends on how clusters are numbered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Int


def contingency(
    true: Sequence[Any] | np.ndarray, assigned: Sequence[Any] | np.ndarray
) -> Int[np.ndarray, "families clusters"]:
    """How many items of each true label were assigned to each cluster (labels that occur)."""
    true, assigned = np.ravel(true), np.ravel(assigned)
    if true.shape != assigned.shape or true.size == 0:
        raise ValueError(
            f"There are {true.size} true labels and {assigned.size} assigned ones; "
            f"give one of each for every item, and at least one item."
        )
    families, row = np.unique(true, return_inverse=True)
    clusters, column = np.unique(assigned, return_inverse=True)
    counts = np.zeros((families.size, clusters.size), dtype=np.int64)
    np.add.at(counts, (row, column), 1)
    return counts


def normalised_mutual_information(
    true: Sequence[Any] | np.ndarray, assigned: Sequence[Any] | np.ndarray
) -> float:
    """I(T; A) / ((H(T) + H(A)) / 2), in [0, 1].

    The mutual information is divided by the arithmetic mean of the two entropies (other
    texts take the geometric mean or the larger one). Two labellings that each consist of
    one group agree perfectly and carry no information: by convention 1, as in scikit-learn.

    A. Strehl, J. Ghosh: Cluster ensembles. JMLR 3, 2002.
    """
    joint = contingency(true, assigned)
    row, column = joint.sum(axis=1), joint.sum(axis=0)
    entropy_true, entropy_assigned = _entropy(row), _entropy(column)
    if entropy_true + entropy_assigned == 0:
        return 1.0
    information = entropy_true + entropy_assigned - _entropy(joint.ravel())
    # Rounding can leave a mutual information of zero slightly negative.
    return float(np.clip(2 * information / (entropy_true + entropy_assigned), 0, 1))


def adjusted_rand_index(
    true: Sequence[Any] | np.ndarray, assigned: Sequence[Any] | np.ndarray
) -> float:
    """Pairs on which both labellings agree, rescaled so that chance gives 0 and identity 1.

    (S - E) / ((R + C) / 2 - E) where S, R and C count the pairs that are together in both,
    in the true and in the assigned labelling, and E = R C / (all pairs) is the S expected
    by chance.

    L. Hubert, P. Arabie: Comparing partitions. Journal of Classification 2, 1985.
    """
    joint = contingency(true, assigned)
    both, in_true, in_assigned, all_pairs = (
        _pairs(counts)
        for counts in (joint, joint.sum(axis=1), joint.sum(axis=0), joint.sum(keepdims=True))
    )
    if all_pairs == 0:
        return 1.0
    chance = in_true * in_assigned / all_pairs
    most = (in_true + in_assigned) / 2
    if most == chance:
        return 1.0
    return (both - chance) / (most - chance)


def purity(true: Sequence[Any] | np.ndarray, assigned: Sequence[Any] | np.ndarray) -> float:
    """Share of items whose label is the commonest one of their cluster.

    It rises with the number of clusters (each item alone gives 1), so it is read beside
    the other two.
    """
    joint = contingency(true, assigned)
    return float(joint.max(axis=0).sum() / joint.sum())


def _entropy(counts: np.ndarray) -> float:
    if np.count_nonzero(counts) == 1:
        return 0.0
    share = counts[counts > 0] / counts.sum()
    return float(-(share * np.log(share)).sum())


def _pairs(counts: np.ndarray) -> float:
    return float((counts * (counts - 1)).sum() / 2)
