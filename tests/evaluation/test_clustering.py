import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics

from taskmix.evaluation import adjusted_rand_index, normalised_mutual_information, purity

# Families A A A B B B against clusters 0 0 1 1 1 1: contingency [[2, 1], [0, 3]].
TRUE = ["A", "A", "A", "B", "B", "B"]
ASSIGNED = [0, 0, 1, 1, 1, 1]

labels = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=40)


def test_nmi_of_six_items_by_hand():
    entropy_true = np.log(2)
    entropy_assigned = -(1 / 3 * np.log(1 / 3) + 2 / 3 * np.log(2 / 3))
    entropy_joint = -(1 / 3 * np.log(1 / 3) + 1 / 6 * np.log(1 / 6) + 1 / 2 * np.log(1 / 2))
    information = entropy_true + entropy_assigned - entropy_joint
    expected = information / ((entropy_true + entropy_assigned) / 2)
    assert normalised_mutual_information(TRUE, ASSIGNED) == pytest.approx(expected)


def test_ari_of_six_items_by_hand():
    # Pairs together: both 1 + 3 = 4, true 3 + 3 = 6, assigned 1 + 6 = 7, all 15.
    chance = 6 * 7 / 15
    assert adjusted_rand_index(TRUE, ASSIGNED) == pytest.approx((4 - chance) / (6.5 - chance))


def test_purity_of_six_items_by_hand():
    assert purity(TRUE, ASSIGNED) == pytest.approx(5 / 6)


def test_one_cluster_for_everything_carries_no_information():
    assert normalised_mutual_information(TRUE, [0] * 6) == 0
    assert adjusted_rand_index(TRUE, [0] * 6) == 0


@given(labels)
def test_nmi_agrees_with_scikit_learn(pairs):
    true, assigned = zip(*pairs, strict=True)
    expected = metrics.normalized_mutual_info_score(true, assigned, average_method="arithmetic")
    assert normalised_mutual_information(true, assigned) == pytest.approx(expected, abs=1e-9)


@given(labels)
def test_ari_agrees_with_scikit_learn(pairs):
    true, assigned = zip(*pairs, strict=True)
    expected = metrics.adjusted_rand_score(true, assigned)
    assert adjusted_rand_index(true, assigned) == pytest.approx(expected, abs=1e-9)


@given(labels)
def test_purity_is_the_accuracy_of_the_commonest_family_of_each_cluster(pairs):
    right = 0
    for cluster in {assigned for _, assigned in pairs}:
        members = [true for true, assigned in pairs if assigned == cluster]
        right += max(members.count(family) for family in members)
    assert purity(*zip(*pairs, strict=True)) == pytest.approx(right / len(pairs))


@pytest.mark.parametrize("measure", [normalised_mutual_information, adjusted_rand_index, purity])
@given(pairs=labels, order=st.permutations(range(5)))
def test_renumbering_clusters_changes_nothing(measure, pairs, order):
    true, assigned = zip(*pairs, strict=True)
    renumbered = [order[cluster] for cluster in assigned]
    assert measure(true, renumbered) == pytest.approx(measure(true, assigned), abs=1e-12)


@pytest.mark.parametrize(("true", "assigned"), [([0, 1], [0]), ([], [])])
def test_labels_that_do_not_match_are_an_error(true, assigned):
    with pytest.raises(ValueError, match="one of each"):
        purity(true, assigned)
