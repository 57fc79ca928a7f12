"""Kernels of the backward pass with the largest values and sizes that learning accepts, under sanitizers."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.checkout import ROOT

HERE = Path(__file__).parent
CORE = ROOT / "firmware/core"


@pytest.mark.slow
def test_no_sum_of_gradients_overflows_at_the_bounds_of_learning(tmp_path: Path) -> None:
    program = tmp_path / "bounds"
    flags = (
        "-std=gnu99 -O1 -g -Wall -Wextra -Wconversion -Werror -fsanitize=address,undefined -fno-sanitize-recover=all"
    )
    sources = [HERE / "gradient_bounds.c", *sorted(CORE.rglob("*.c"))]
    subprocess.run(["cc", *flags.split(), f"-I{CORE}", *map(str, sources), "-o", str(program)], check=True)
    done = subprocess.run([program], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    assert done.stdout == "all right\n"
