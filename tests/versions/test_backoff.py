"""Waiting between attempts: by chance, within bounds that double up to a limit."""

import time

import intarsia


def waits(backoff, monkeypatch):
    waited = []
    monkeypatch.setattr(time, "sleep", waited.append)
    assert list(backoff.tries()) == list(range(backoff.attempts))
    return waited


def test_bounds_double_up_to_the_longest(monkeypatch):
    backoff = intarsia.types.Backoff(attempts=9, first_wait=1.0, longest_wait=10.0)
    monkeypatch.setattr("random.uniform", lambda low, high: high)
    assert waits(backoff, monkeypatch) == [1, 2, 4, 8, 10, 10, 10, 10]


def test_waits_are_drawn_by_chance(monkeypatch):
    waited = waits(intarsia.types.Backoff(attempts=50, first_wait=1.0, longest_wait=1.0), monkeypatch)
    assert len(waited) == 49
    assert all(0 <= wait <= 1 for wait in waited)
    assert len(set(waited)) > 40


def test_one_attempt_waits_for_nothing(monkeypatch):
    assert waits(intarsia.types.Backoff(attempts=1), monkeypatch) == []
