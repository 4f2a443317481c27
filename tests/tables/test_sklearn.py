"""Which of scikit-learn's estimator checks a learner of tables passes, and why not the others.

A table learner takes whole tables: rows of one task belong together, and the target is a column.
scikit-learn's checks fit on a matrix of numbers and a vector of targets. So those that need no data
are run as they are; what the others ask for is asked here with a table, where it makes sense.
"""

import copy
import pickle
import subprocess
import sys

import numpy as np
import pytest
import sklearn.exceptions
from sklearn.utils import estimator_checks
from sklearn.utils.validation import check_is_fitted
from tests.tables.conftest import rows

from taskmix.estimator import NotFittedError, TableLearner

pytestmark = pytest.mark.usefixtures("quick")

AS_THEY_ARE = (
    "check_estimator_cloneable",
    "check_estimator_repr",
    "check_estimator_tags_renamed",
    "check_get_params_invariance",
    "check_mixin_order",
    "check_no_attributes_set_in_init",
    "check_parameters_default_constructible",
    "check_set_params",
    "check_valid_tag_types",
)
"""They need no data."""


@pytest.mark.parametrize("name", AS_THEY_ARE)
def test_check_of_scikit_learn(name):
    getattr(estimator_checks, name)("TableLearner", TableLearner())


UNCHECKED = """
import warnings
from sklearn.exceptions import SkipTestWarning
from sklearn.utils import estimator_checks
from taskmix.estimator import TableLearner

warnings.simplefilter("ignore", SkipTestWarning)
estimator_checks.check_estimator(TableLearner())
check = estimator_checks.check_do_not_raise_errors_in_init_or_set_params
check("TableLearner", TableLearner())
"""


def test_all_checks_pass_that_scikit_learn_makes_of_such_an_estimator():
    """Which these are follows from the tags: it takes tables, and validates them itself.

    In a process of its own, where no types are checked: parameters of any kind are given.
    """
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", UNCHECKED], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture
def fitted(frame):
    return learner().fit(frame)


def learner(**params):
    given = {"inputs": ["a", "b"], "support": 2, "batch": 4, **params}
    return TableLearner("task", "y", time="when", **given)


def test_fit_returns_itself_and_changes_no_parameter(frame):
    """check_fit_score_takes_y, check_estimators_fit_returns_self, check_dict_unchanged."""
    one = learner()
    before = copy.deepcopy(one.get_params())
    assert one.fit(frame, None) is one
    assert one.get_params() == before


def test_fitting_sets_only_attributes_with_an_underscore(fitted):
    """check_dont_overwrite_attributes: public ones of a fit end with an underscore."""
    added = set(vars(fitted)) - set(fitted.get_params())
    assert added
    assert all(name.endswith("_") for name in added)


def test_fitting_twice_is_fitting_once(frame):
    """check_fit_idempotent: what was learned before is forgotten."""
    one = learner().fit(frame)
    first = one.predict(frame[:2], frame[2:6]).mean
    again = one.fit(frame).predict(frame[:2], frame[2:6]).mean
    np.testing.assert_array_equal(first, again)


def test_the_table_is_left_as_it_was(frame):
    """check_readonly_memmap_input, check_transformers_unfitted: inputs are not written to."""
    before = frame.clone()
    learner().fit(frame).predict(frame[:2], frame[2:6])
    assert frame.equals(before)


def test_a_pickled_learner_says_the_same(frame, fitted):
    """check_estimators_pickle."""
    other = pickle.loads(pickle.dumps(fitted))
    one, two = (each.predict(frame[:2], frame[2:6]).mean for each in (fitted, other))
    np.testing.assert_array_equal(one, two)


def test_predicting_before_fitting_is_an_error_that_scikit_learn_knows(frame):
    """check_estimators_unfitted: its error is a ValueError and an AttributeError, too."""
    with pytest.raises(NotFittedError) as caught:
        learner().predict(frame, frame)
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, AttributeError)
    with pytest.raises(sklearn.exceptions.NotFittedError):
        check_is_fitted(learner())
    check_is_fitted(learner().fit(frame))


def test_partial_fit_before_a_fit_begins_one(frame):
    """check_partial_fit_n_features: a learner may begin with it."""
    one = learner().partial_fit(frame)
    assert one.n_features_in_ == learner().fit(frame).n_features_in_


def test_columns_are_found_by_name_in_any_order(frame, fitted):
    """check_dataframe_column_names_consistency: a table in another order gives the same."""
    turned = frame.select(reversed(frame.columns))
    one = fitted.predict(frame[:2], frame[2:6]).mean
    np.testing.assert_array_equal(one, fitted.predict(turned[:2], turned[2:6]).mean)
    with pytest.raises(ValueError, match="there is no such column"):
        fitted.predict(frame[:2].drop("a"), frame[2:6])


def test_what_is_no_table_is_refused():
    """check_estimators_dtypes, check_fit2d_1sample and others: they fit on bare matrices."""
    with pytest.raises(ValueError, match=r"no table|it must give rows"):
        learner().fit(np.zeros((4, 2)))


def test_rows_alone_decide_and_not_their_container():
    """check_methods_sample_order_invariance: rows of a query may come in any order."""
    frame = rows()
    one = learner().fit(frame)
    asked = frame.filter(frame["when"] % 6 >= 2)
    known = frame.filter(frame["when"] % 6 < 2)
    turned = one.predict(known, asked.reverse()).mean[::-1]
    np.testing.assert_allclose(one.predict(known, asked).mean, turned, rtol=1e-5)
