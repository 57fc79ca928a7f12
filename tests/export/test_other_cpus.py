"""Exported files give the same bits on CPUs that this machine is not: QEMU emulates them.

Tools choose their integer kernels by the CPU's instructions. Those for AVX2 without VNNI add products in pairs of 16
bits, which may saturate; those with VNNI do not. A file has to be right with both.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.checkout import ROOT

pytest.importorskip("onnxruntime")
pytest.importorskip("ai_edge_litert")

from flipbit.export import oracle
from flipbit.export.calibrate import calibrate
from flipbit.export.graph import Conv, Dense, Flatten, Graph, Tensor
from flipbit.export.quantize import quantize_graph
from flipbit.export.write.fbit import fbit_bytes
from flipbit.export.write.onnx_file import write_onnx
from flipbit.export.write.tflite_file import write_tflite
from flipbit.runtime import Model

SCRIPT = Path(__file__).with_name("run_exported.py")
SHIPPED = ("digits-vgg-small", "cifar10-resnet8")
IMAGES = 16
# QEMU 7.2 has no AVX-512: with VNNI and AMX, files run where this machine has them, in every other test.
EMULATED = {"AVX2, no VNNI": "Haswell", "no AVX": "Nehalem"}


def emulator(cpu: str) -> list[str]:
    if platform.machine() != "x86_64":
        pytest.skip(f"this machine is {platform.machine()}, not x86_64")
    if not shutil.which("qemu-x86_64"):
        pytest.skip("needs qemu-x86_64 (Debian: qemu-user)")
    return ["qemu-x86_64", "-cpu", cpu]


def images_for(shape: tuple[int, ...], count: int = IMAGES, seed: int = 1) -> np.ndarray:
    """Of the pixels' steps and their extremes, so that sums are large."""
    values = np.random.default_rng(seed).choice([-128, -100, 0, 90, 127], (count, *shape))
    return (values / 128).astype(np.float32)


def in_integers(graph: Graph) -> Graph:
    seen = images_for(graph.tensors[graph.input].shape, 16, seed=2)
    return quantize_graph(graph, calibrate(graph, seen), (1 / 128, 0))


@cache
def shipped(name: str) -> Graph:
    """A trained model in integers."""
    from flipbit.export.read.from_keras import from_keras
    from flipbit.train.nets.model_file import load_model

    graph = from_keras(load_model(ROOT / "models" / name / "model.h5"))
    return quantize_graph(
        graph, calibrate(graph, images_for(graph.tensors[graph.input].shape, 16, seed=2)), (1 / 128, 0)
    )


@cache
def extreme() -> Graph:
    """int8 weights at their limits, with signs that let neighbours add up: where 16 bits are first too few."""
    random = np.random.default_rng(3)
    kernel = random.choice([-1.0, -0.9, 0.9, 1.0, 1.0, 1.0], (3, 3, 4, 8))
    units = random.choice([-1.0, 1.0, 1.0, 1.0], (6 * 6 * 8, 10))
    ones, zeros = np.ones, np.zeros
    ops = [
        Conv("conv", ("x",), "conv", weights=kernel, scale=ones(8), bias=zeros(8), padding=(1, 1, 1, 1), relu=True),
        Flatten("flat", ("conv",), "flat"),
        Dense("logits", ("flat",), "logits", weights=units, scale=ones(10), bias=zeros(10)),
    ]
    shapes = {"x": (6, 6, 4), "conv": (6, 6, 8), "flat": (288,), "logits": (10,)}
    graph = Graph("x", "logits", ops, {name: Tensor(name, shape) for name, shape in shapes.items()}, [])
    return in_integers(graph)


NETS: dict[str, Any] = {"int8 weights at their limits": extreme, **{n: lambda n=n: shipped(n) for n in SHIPPED}}
# Steps of the output that a file may be off the oracle: 0 but for residual nets, whose sums other tools round in
# their own way; on these images, which are all extremes, 2.
OFF = {name: 2 * (name == "cifar10-resnet8") for name in NETS}


def said_by(graph: Graph, folder: Path, command: list[str], *options: str) -> dict[str, np.ndarray]:
    """What the files of a net say, in steps of its output, where ``command`` runs them."""
    images = images_for(graph.tensors[graph.input].shape)
    output = graph.tensors[graph.output]
    np.save(folder / "images.npy", images)
    np.save(folder / "pixels.npy", oracle.quantize(images, graph.tensors[graph.input]))
    write_onnx(graph, folder / "model.onnx")
    write_tflite(graph, folder / "model.tflite")
    done = subprocess.run(
        [*command, sys.executable, str(SCRIPT), str(folder), *options], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    with np.load(folder / "said.npz") as file:
        said = dict(file)
    said["onnx"] = oracle.quantize(said["onnx"], output)
    return said


def steps_off(graph: Graph, said: np.ndarray) -> int:
    """How far from the oracle's, in steps of the output, at most."""
    expected = oracle.run(graph, images_for(graph.tensors[graph.input].shape))[graph.output]
    return int(np.abs(said.reshape(IMAGES, -1).astype(int) - expected).max())


@pytest.mark.parametrize("kind", ["onnx", "tflite-reference"])
@pytest.mark.parametrize("name", NETS)
def test_files_give_the_same_bits_with_avx2_and_no_vnni(name: str, kind: str, tmp_path: Path) -> None:
    graph = NETS[name]()
    there = said_by(graph, tmp_path, emulator("Haswell"))
    here = said_by(graph, tmp_path, [])
    assert steps_off(graph, there[kind]) <= OFF[name]
    assert np.array_equal(there[kind], here[kind])
    # XNNPACK rounds in another way than the oracle, but in the same way on every CPU.
    assert np.array_equal(there["tflite-fast"], here["tflite-fast"])


@pytest.mark.parametrize("option", ["session.x64quantprecision=0", "session.x64quantprecision=1"])
@pytest.mark.parametrize("name", NETS)
def test_onnx_files_are_right_here_whatever_the_option_for_precision(name: str, option: str, tmp_path: Path) -> None:
    graph = NETS[name]()
    assert steps_off(graph, said_by(graph, tmp_path, [], option)["onnx"]) <= OFF[name]


@pytest.mark.parametrize("cpu", EMULATED)
@pytest.mark.parametrize("name", NETS)
def test_the_core_gives_the_same_bits_on_older_cpus(name: str, cpu: str, tmp_path: Path) -> None:
    graph = NETS[name]()
    image = tmp_path / "model.fbit"
    image.write_bytes(fbit_bytes(graph))
    images = images_for(graph.tensors[graph.input].shape)
    np.save(tmp_path / "images.npy", images)
    program = (
        "import sys, numpy as np; from flipbit.runtime import Model; "
        "np.save(sys.argv[3], Model(sys.argv[1]).predict(np.load(sys.argv[2]), raw=True))"
    )
    paths = [str(image), str(tmp_path / "images.npy"), str(tmp_path / "said.npy")]
    command = [*emulator(EMULATED[cpu]), sys.executable, "-c", program, *paths]
    # NumPy's OpenBLAS goes by the CPU's model number, which QEMU leaves as it is here: name a core without AVX.
    environment = {**os.environ, **({"OPENBLAS_CORETYPE": "Nehalem"} if cpu == "no AVX" else {})}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    said = np.load(tmp_path / "said.npy")
    assert np.array_equal(said, Model(image).predict(images, raw=True))
    assert steps_off(graph, said) == 0
