"""Samplers decide by ids and flags, like OpenTelemetry's own, and everywhere the same."""

from __future__ import annotations

import random

import pytest
from opentelemetry.sdk.trace.sampling import Decision, TraceIdRatioBased
from sandstream_actors.tracing.export.sampling import Sampler, SamplerName
from sandstream_bus.wire.trace_context import trace_id_of

CALLERS = "c" * 32
OWN = trace_id_of("r")


@pytest.mark.parametrize(
    ("name", "trace_id", "sampled", "kept"),
    [
        ("always_on", OWN, True, True),
        ("always_on", CALLERS, False, True),
        ("always_off", OWN, True, False),
        ("always_off", CALLERS, True, False),
        ("parentbased_always_on", OWN, True, True),
        ("parentbased_always_on", CALLERS, True, True),
        ("parentbased_always_on", CALLERS, False, False),
        ("parentbased_always_off", OWN, True, False),
        ("parentbased_always_off", CALLERS, True, True),
        ("parentbased_always_off", CALLERS, False, False),
        ("parentbased_traceidratio", OWN, True, False),
        ("parentbased_traceidratio", CALLERS, True, True),
        ("parentbased_traceidratio", CALLERS, False, False),
        ("traceidratio", CALLERS, True, False),
    ],
)
def test_a_callers_decision_counts_where_the_sampler_says_so(
    name: SamplerName, trace_id: str, sampled: bool, kept: bool
) -> None:
    assert Sampler(name, 0.0).keeps(trace_id, sampled=sampled, root="r") is kept


def test_without_a_variable_everything_goes_but_what_the_caller_left_out() -> None:
    assert Sampler().keeps(OWN, sampled=True, root="r")
    assert not Sampler().keeps(CALLERS, sampled=False, root="r")


@pytest.mark.parametrize("ratio", [0.0, 0.001, 0.25, 0.5, 1.0])
def test_a_ratio_picks_the_traces_that_opentelemetry_picks(ratio: float) -> None:
    ours, theirs = Sampler("traceidratio", ratio), TraceIdRatioBased(ratio)
    dice = random.Random(5)
    for number in (0, 1, 2**64 - 1, 2**64, *(dice.getrandbits(128) for _ in range(300))):
        wanted = theirs.should_sample(None, number, "x").decision is Decision.RECORD_AND_SAMPLE
        assert ours.keeps(f"{number:032x}", sampled=True) is wanted


def test_a_share_of_the_runs_is_kept_with_all_their_children() -> None:
    sampler = Sampler("parentbased_traceidratio", 0.25)
    runs = [f"run-{number}" for number in range(2000)]
    kept = [run for run in runs if sampler.keeps(trace_id_of(run), sampled=True, root=run)]
    assert 400 < len(kept) < 600
    assert kept == [run for run in runs if sampler.keeps(trace_id_of(run), sampled=True, root=run)]
