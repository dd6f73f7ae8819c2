"""The garbage collector of a caller's process is left as it was."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
from sandstream_bus.nats.collector import CollectorRelief

DEFAULT = (700, 10, 10)


@pytest.fixture(autouse=True)
def thresholds() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(*DEFAULT)
    yield
    gc.set_threshold(*before)


def test_it_is_relieved_only_while_many_runs_are_under_way() -> None:
    relief = CollectorRelief()
    relief.follow(199)
    assert gc.get_threshold() == DEFAULT
    relief.follow(200)
    assert gc.get_threshold()[0] > DEFAULT[0]
    relief.follow(51)
    assert gc.get_threshold()[0] > DEFAULT[0]
    relief.follow(50)
    assert gc.get_threshold() == DEFAULT


def test_what_the_program_has_chosen_stays() -> None:
    gc.set_threshold(1000, 5, 5)
    relief = CollectorRelief()
    relief.follow(5000)
    relief.follow(0)
    assert gc.get_threshold() == (1000, 5, 5)


def test_what_the_program_chooses_meanwhile_stays() -> None:
    relief = CollectorRelief()
    relief.follow(5000)
    gc.set_threshold(1000, 5, 5)
    relief.follow(0)
    assert gc.get_threshold() == (1000, 5, 5)
