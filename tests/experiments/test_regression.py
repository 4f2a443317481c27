import pytest

from taskmix.experiments import Regression
from taskmix.models import parameter_count
from taskmix.streams import Phase, paper_stream


def test_defaults_are_the_stream_of_the_paper():
    assert Regression().stream() == paper_stream()


def test_network_of_the_paper_has_1761_parameters():
    assert parameter_count(Regression().shared().model) == 1761


PHASES = {
    "consecutive": [(0, 20, "a"), (20, 50, "b")],
    "recurring": [(0, 20, "a"), (20, 50, "b"), (50, 70, "a"), (70, 100, "b")],
    "interleaved": [(0, 50, "ab")],
    "gradual": [(0, 20, "a"), (20, 24, "ab"), (24, 50, "b")],
}
NAMES = {"a": "linear", "b": "step"}


@pytest.mark.parametrize("schedule", PHASES)
def test_schedule_has_the_phases(schedule):
    experiment = Regression(
        families=("linear", "step"), lengths=(20, 30), schedule=schedule, transition=4
    )
    expected = [
        Phase(start, stop, tuple(NAMES[letter] for letter in letters))
        for start, stop, letters in PHASES[schedule]
    ]
    assert list(experiment.stream().phases) == expected
