"""Jobs for the core in WebAssembly, and what the C core on this machine says to them."""

from __future__ import annotations

import base64
import zlib
from typing import Any

import numpy as np

from flipbit.export.write.fbit import fbit_bytes
from flipbit.runtime import Model
from flipbit.runtime.core.learner import Learner, LearnerConfig
from flipbit.runtime.errors import FlipbitError
from flipbit.runtime.image.inputs import to_planes
from tests.checkout import ROOT
from tests.nets.small_nets import EXAMPLES, FORMULA, graph_with, small_image
from tests.nets.tiny_net import tiny_image

Job = dict[str, Any]
SHIPPED = sorted((ROOT / "models").glob("*/model.fbit"))
CORPUS = sorted((ROOT / "firmware" / "fuzz" / "corpus" / "image").iterdir())


def text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def nets() -> dict[str, bytes]:
    """Every shipped net, one of every kind of operation, and small ones with random weights."""
    found = {path.parent.name: path.read_bytes() for path in SHIPPED}
    found |= {f"with {kind}": fbit_bytes(graph_with(kind), FORMULA) for kind in EXAMPLES}
    found |= {f"small {seed}": small_image(seed) for seed in range(8)}
    return found | {f"tiny {seed}": tiny_image(seed) for seed in range(8)}


def inspect_job(image: bytes) -> Job:
    return {"what": "inspect", "image": text(image)}


def run_job(image: bytes, count: int = 3, seed: int = 0, pixels: bool = False) -> Job:
    model, random = Model(image), np.random.default_rng(seed)
    inputs = [random.integers(0, 256, model.input_shape, np.uint8) for _ in range(count)]
    if not pixels and len(model.input_shape) == 3:
        planes = [np.moveaxis(x, -1, 0) for x in inputs]
        inputs = [np.ascontiguousarray(x) for x in planes]
    return {"what": "run", "image": text(image), "inputs": [text(x.tobytes()) for x in inputs], "pixels": pixels}


def learn_job(image: bytes, count: int = 4, arena: int = 0, **config: Any) -> Job:
    model, random = Model(image), np.random.default_rng(1)
    size, classes = int(np.prod(model.input_shape)), int(np.prod(model.output_shape))
    inputs = [random.integers(-128, 128, size).astype(np.int8) for _ in range(count)]
    return {
        "what": "learn", "image": text(image), "inputs": [text(x.tobytes()) for x in inputs],
        "labels": [int(i) for i in random.integers(0, classes, count)],
        "rates": [[0.02, 0.1], [0.01, 0.05], [0.3, 0.0]], "arena": arena, "config": config,
    }  # fmt: skip


def expected(job: Job) -> Any:
    """The answer of this machine's C core."""
    image = base64.b64decode(job["image"])
    try:
        return {"run": _run, "learn": _learn, "inspect": _inspect}[job["what"]](image, job)
    except FlipbitError as error:
        return {"error": error.status}


def _inspect(image: bytes, job: Job) -> Any:
    model = Model(image)
    return {
        "size": len(image), "crc": int.from_bytes(image[12:16], "little"), "labels": model.labels,
        "layers": [
            {"name": op.name, "kind": layer.kind, "description": layer.description, "bits": layer.bits or 0,
             "weights": layer.weights, "bytes": layer.bytes, "macs": layer.macs, "live": layer.live}
            for op, layer in zip(model.image.operations, model.layers)
        ],
        "tensors": [
            {"height": t.height, "width": t.width, "channels": t.channels, "zeroPoint": t.zero_point,
             "rank": t.rank & 0x7F, "bits": t.bits, "scale": t.scale, "size": t.bytes}
            for t in model.image.tensors
        ],
        "arenaLeast": model.arena_least,
        "pixels": model.pixels and {"offset": model.pixels.offset, "scale": model.pixels.scale},
    }  # fmt: skip


def _run(image: bytes, job: Job) -> Any:
    model = Model(image)
    shape = model.input_shape
    found = []
    for data in job["inputs"]:
        if job["pixels"]:
            x = np.frombuffer(base64.b64decode(data), np.uint8).reshape(shape)
        else:
            planes = np.frombuffer(base64.b64decode(data), np.int8)
            x = planes.reshape(-1, *shape[:2]).transpose(1, 2, 0) if len(shape) == 3 else planes
        values, _ = to_planes(x, model.image.tensors[model.image.input], model.pixels)
        layers = model.stored(values)
        output = _planes(model.predict(x, raw=True)).reshape(-1)
        real = _planes(model.predict(x)).reshape(-1)
        found.append({
            "output": output.tolist(), "best": int(output.argmax()),
            "layers": [zlib.crc32(v.tobytes()) for v in layers], "real": [float(v) for v in real],
        })  # fmt: skip
    return found


def _planes(values: np.ndarray) -> np.ndarray:
    return np.moveaxis(values, -1, 0) if values.ndim == 3 else values


def _learn(image: bytes, job: Job) -> Any:
    config = dict(job["config"])
    if "bufferBits" in config:
        config["buffer_bits"] = config.pop("bufferBits")
    learner = Learner(image, LearnerConfig(**config), job["arena"])
    x = np.array([np.frombuffer(base64.b64decode(data), np.int8) for data in job["inputs"]])
    steps = [learner.step(x, job["labels"], bits, bias) for bits, bias in job["rates"]]
    return {
        "steps": [{"accuracy": s.accuracy, "loss": s.loss, "flips": s.flips} for s in steps],
        "image": zlib.crc32(learner.image), "state": zlib.crc32(learner.state), "done": learner.steps,
    }  # fmt: skip
