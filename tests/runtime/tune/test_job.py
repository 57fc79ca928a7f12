"""What a job asks for."""

from __future__ import annotations

import pytest

from flipbit.runtime.errors import ArgumentError
from flipbit.runtime.tune.job import Job
from flipbit.runtime.tune.methods import METHODS, buffer_start


def test_rates_fall_in_a_line() -> None:
    rates = Job("sr+bias", 4, rate_bits=0.4, rate_bias=0.2).rates
    assert rates.bits == pytest.approx([0.4, 0.3, 0.2, 0.1])
    assert rates.bias == pytest.approx([0.2, 0.15, 0.1, 0.05])


@pytest.mark.parametrize("method", METHODS)
def test_a_methods_configuration_learns_what_it_says(method: str) -> None:
    config, chosen = Job(method, seed=9).config, METHODS[method]
    assert (config.seed, config.bits, config.bias) == (9, chosen.bits, chosen.bias)
    assert (config.buffer_bits, config.rule) == (chosen.buffer_bits, 0)
    assert config.start == (buffer_start(chosen.buffer_bits) if chosen.buffer_bits else 0)


@pytest.mark.parametrize(("job", "says"), [
    (Job(steps=0), "--steps"), (Job(seed=-1), "--seed"), (Job(seed=2**32), "--seed"), (Job(arena=0), "--arena"),
    (Job("sr", buffer_bits=2), "--method buffer"), (Job("buffer", buffer_bits=9), "1 to 8"),
    (Job(rate_bits=0.0), "--rate"), (Job(rate_bias=1.1), "--bias-rate"),
])  # fmt: skip
def test_a_job_that_cannot_be_is_refused_by_its_option(job: Job, says: str) -> None:
    with pytest.raises(ArgumentError, match=says):
        job.check()
