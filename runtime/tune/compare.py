"""Several methods on the same samples."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from flipbit.runtime.tune.job import Job
from flipbit.runtime.tune.methods import COMPARED
from flipbit.runtime.tune.result import TuningResult
from flipbit.runtime.tune.run import tune
from flipbit.runtime.tune.samples import Samples


def compare(image: bytes, samples: Samples, board: str, job: Job, checkpoint: Path | None = None) -> list[TuningResult]:
    """A run of each method, all else as in ``job``; each keeps its checkpoint in a folder of its own."""
    results = []
    for method in COMPARED:
        one = replace(job, method=method, buffer_bits=job.buffer_bits if method == "buffer" else None)
        results.append(tune(image, samples, board, one, checkpoint=checkpoint / method if checkpoint else None))
    return results


def best_of(results: list[TuningResult]) -> TuningResult:
    """The most accurate afterwards; the first among equals."""
    return max(results, key=lambda result: result.after)
