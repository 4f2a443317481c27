"""Runs with the parts that a test is about."""

from taskmix.experiments.outcome import Outcome
from taskmix.experiments.stress import (
    OURS,
)
from taskmix.streams import Phase

A, B, AGAIN = Phase(0, 100, ("a",)), Phase(100, 200, ("b",)), Phase(200, 300, ("a",))


def outcome(seed=0, phases=(A, B), method=OURS, lines=(), events=(), **summary):
    """A run with the parts that a test is about."""
    return Outcome(method, seed, phases, summary, list(lines), list(events), seconds=60.0)


def errors(**final):
    return {family: {"error": error} for family, error in final.items()}
