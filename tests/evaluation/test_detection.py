import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from taskmix.evaluation import ALARM_GRACE, Detection, area_under_roc, detection, shifts
from taskmix.streams import Phase

A, B, C = Phase(0, 100, ("a",)), Phase(100, 200, ("b",)), Phase(200, 300, ("c",))
CONSECUTIVE = (A, B, C)
RECURRING = (A, B, Phase(200, 300, ("a",)), Phase(300, 400, ("b",)))


def test_a_shift_brings_a_family_not_seen_before():
    assert shifts(RECURRING) == (B,)


def test_a_phase_that_adds_one_family_to_known_ones_is_a_shift():
    assert shifts((A, B, Phase(200, 300, ("a", "c")))) == (B, C)


def test_a_gradual_change_is_one_shift_from_its_first_mixed_batch_on():
    phases = (A, Phase(100, 120, ("a", "b")), Phase(120, 200, ("b",)), Phase(200, 300, ("a",)))
    assert shifts(phases) == (B,)
    assert detection(phases, [130, 210]) == Detection((30,), missed=0, false=1)


@pytest.mark.parametrize(
    ("spawns", "expected"),
    [
        ([103, 200], Detection((3, 0), missed=0, false=0)),
        ([], Detection((), missed=2, false=0)),
        ([203], Detection((3,), missed=1, false=0)),
        ([50, 103, 202], Detection((3, 2), missed=0, false=1)),
        ([103, 150, 160, 202], Detection((3, 2), missed=0, false=2)),
        ([99, 199], Detection((99,), missed=1, false=1)),
    ],
    ids=["both", "none", "second only", "early one", "repeated", "last iterations"],
)
def test_spawns_are_matched_with_shifts(spawns, expected):
    assert detection(CONSECUTIVE, spawns) == expected


LONG = (Phase(0, 300, ("a",)), Phase(300, 900, ("b",)))


@pytest.mark.parametrize(
    ("alarms", "expected"),
    [
        ([300, 350, 399], Detection((0,), missed=0, false=0)),
        ([300, 400, 401], Detection((0,), missed=0, false=2)),
        ([650], Detection((350,), missed=0, false=0)),
        ([0, 299], Detection((), missed=1, false=2)),
    ],
    ids=["at once and again", "later again", "late", "before"],
)
def test_alarms_soon_after_a_shift_are_never_false(alarms, expected):
    assert detection(LONG, alarms, ALARM_GRACE) == expected


def test_a_spawn_in_a_recurring_phase_is_false():
    assert detection(RECURRING, [104, 250]) == Detection((4,), missed=0, false=1)


def test_the_order_of_spawns_does_not_matter():
    assert detection(CONSECUTIVE, [202, 150, 103]) == detection(CONSECUTIVE, [103, 150, 202])


def test_area_under_roc_by_hand():
    # Pairs (novel > known): 0.4 beats 0.1 and ties with 0.4; 0.9 beats all three.
    assert area_under_roc([0.1, 0.4, 0.8], [0.4, 0.9]) == pytest.approx((1.5 + 3) / 6)


scores = st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0]), min_size=1, max_size=20)


@given(scores, scores)
def test_area_under_roc_agrees_with_scikit_learn(known, novel):
    truth = [0] * len(known) + [1] * len(novel)
    assert area_under_roc(known, novel) == pytest.approx(roc_auc_score(truth, known + novel))


def test_area_under_roc_needs_both_kinds():
    with pytest.raises(ValueError, match="both must occur"):
        area_under_roc([0.1], [])
