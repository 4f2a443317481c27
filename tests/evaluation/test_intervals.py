import json

import numpy as np
import pytest
from scipy import stats

from taskmix.evaluation import over_seeds, over_tasks


def test_interval_over_tasks_is_1_96_population_deviations_over_root_n():
    # Mean 4, squared deviations 9 1 1 9: variance 5, so 1.96 * sqrt(5) / 2.
    assert over_tasks([1.0, 3.0, 5.0, 7.0]) == pytest.approx(1.96 * 5**0.5 / 2)


def test_interval_over_tasks_of_equal_values_is_zero():
    assert over_tasks([2.5] * 7) == 0


def test_interval_over_two_seeds_uses_the_student_quantile_of_one_degree_of_freedom():
    # s = sqrt(2), t(0.975, 1) = tan(0.475 pi) = 12.7062, divided by sqrt(2).
    assert over_seeds([1.0, 3.0]) == pytest.approx(12.706204736, rel=1e-6)


def test_interval_over_seeds_agrees_with_scipy():
    values = np.random.default_rng(0).normal(size=10)
    low, high = stats.t.interval(0.95, 9, loc=values.mean(), scale=stats.sem(values))
    assert over_seeds(values) == pytest.approx((high - low) / 2)


def test_one_seed_has_no_interval_and_stays_valid_json():
    assert json.dumps(over_seeds([1.0]), allow_nan=False) == "null"


@pytest.mark.parametrize("interval", [over_seeds, over_tasks])
def test_nothing_to_average_is_an_error(interval):
    with pytest.raises(ValueError, match="at least one"):
        interval([])
