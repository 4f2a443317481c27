"""Cores that a process may use."""

import os

import pytest

from taskmix.machine import ONE_THREAD, cores, threads


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="the system pins no processes")
def test_pinned_process_has_the_cores_it_is_pinned_to():
    allowed = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(allowed)})
        assert cores() == 1
    finally:
        os.sched_setaffinity(0, allowed)
    assert cores() == len(allowed)


def test_system_that_pins_no_processes_gives_all_cores(monkeypatch):
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 6)
    assert cores() == 6
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert cores() == 1


def test_process_that_keeps_to_one_thread_is_told_so(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_something_else=1")
    assert threads() == cores()
    monkeypatch.setenv("XLA_FLAGS", f"--xla_cpu_something_else=1 {ONE_THREAD}")
    assert threads() == 1
