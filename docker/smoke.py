"""Does flipbit work on this CPU? Runs a small net, lets it learn, and prints checksums that are the same everywhere.

  python3 smoke.py                what it computed, as JSON
  python3 smoke.py --expect FILE  and compare with what another machine printed
  python3 smoke.py --tflite FILE  and run the same net's .tflite with TFLite's interpreter

The C core's fast kernels are compared with the NumPy reference here, and learning in little RAM (in many passes) with
learning in plenty. Exit status 1 if anything differs, 2 for bad input. The net is digits.fbit beside
this file: models/digits-vgg-small, exported.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import zlib
from pathlib import Path

import numpy as np

from flipbit.runtime import FlipbitError, Model
from flipbit.runtime.core.learner import Learner, LearnerConfig
from flipbit.runtime.image import reference

NET = Path(__file__).with_name("digits.fbit")
SAMPLES, STEPS = 8, 2
CONFIGS = {
    "sr": LearnerConfig(seed=7, bits=True, bias=True),
    "buffered": LearnerConfig(seed=7, bits=True, bias=True, buffer_bits=3),
}


def samples(size: int) -> np.ndarray:
    """Numbers that no library's random generator can change."""
    n = np.arange(SAMPLES * size, dtype=np.uint64) + 1
    return ((n * 2654435761 % 2**32) >> 13).astype(np.uint8).view(np.int8).reshape(SAMPLES, size)


def crc(data: bytes) -> str:
    return f"{zlib.crc32(data):08x}"


def infer(model: Model, x: np.ndarray) -> dict[str, str]:
    """Checksum of each layer's output; all of them checked against the reference."""
    image = model.image
    planes = x.reshape(SAMPLES, *image.tensors[image.input].shape)
    expected = reference.run(image, planes)
    pictures = planes.transpose(0, 2, 3, 1) if planes.ndim == 4 else planes
    found = model.tensors(np.ascontiguousarray(pictures))
    sums = {}
    for layer in model.layers:
        value = found[layer.name]
        wanted = expected[layer.output]
        wanted = wanted.transpose(0, 2, 3, 1) if wanted.ndim == 4 else wanted
        if value.shape != wanted.shape or not np.array_equal(value, wanted):
            raise SystemExit(f"{layer.name}: {layer.kernel or 'the core'} and the reference differ on this CPU")
        sums[layer.name] = crc(np.ascontiguousarray(wanted).tobytes())
    return sums


def learn(config: LearnerConfig, net: bytes, x: np.ndarray, classes: int) -> dict[str, object]:
    """Checksums of the net and its learner after a few steps, with much RAM and with little."""
    labels = np.arange(SAMPLES) % classes
    ends = []
    enough = Learner(net, config)
    for arena in (enough.arena_fast, max(enough.arena_fast // 8, enough.arena_least)):
        learner = Learner(net, config, arena)
        done = [learner.step(x, labels, rate_bits=0.01, rate_bias=0.1) for _ in range(STEPS)]
        ends.append({"image": crc(learner.image), "state": crc(learner.state), "flips": sum(s.flips for s in done)})
        if learner.image == net:
            raise SystemExit("learning changed nothing")
    if ends[0] != ends[1]:
        raise SystemExit(f"learning with little RAM gave {ends[1]}, with much {ends[0]}")
    return ends[0]


def run_tflite(file: Path, model: Model, x: np.ndarray) -> None:
    """TFLite rounds otherwise in its last layer, by one step at most (docs/export.md)."""
    from tflite_runtime.interpreter import Interpreter, OpResolverType

    tflite = Interpreter(str(file), experimental_op_resolver_type=OpResolverType.BUILTIN_REF)
    tflite.allocate_tensors()
    source, sink = tflite.get_input_details()[0], tflite.get_output_details()[0]
    for picture, wanted in zip(x, model.predict(x.reshape(SAMPLES, *model.input_shape), raw=True)):
        tflite.set_tensor(source["index"], picture.reshape(source["shape"]))
        tflite.invoke()
        found = tflite.get_tensor(sink["index"])[0]
        if np.abs(found.astype(int) - wanted).max() > 1:
            raise SystemExit(f"TFLite computed {found.tolist()}, flipbit {wanted.tolist()}")


def check(net: Path, tflite: Path | None) -> dict[str, object]:
    model = Model(net)
    x = samples(int(np.prod(model.input_shape)))
    if tflite:
        run_tflite(tflite, model, x)
    data = net.read_bytes()
    return {
        "net": crc(data),
        "layers": infer(model, x),
        "learned": {name: learn(config, data, x, model.output_shape[-1]) for name, config in CONFIGS.items()},
    }


def main() -> int:
    description, more = (__doc__ or "").split("\n\n", 1)
    p = argparse.ArgumentParser(
        description=description, epilog=more, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("net", nargs="?", type=Path, default=NET, metavar="IMAGE", help="another .fbit file")
    p.add_argument("--expect", type=Path, metavar="FILE", help="output of this script on another machine")
    p.add_argument("--tflite", type=Path, metavar="FILE", help="export of the same net")
    given = p.parse_args()
    try:
        found = check(given.net, given.tflite)
        kernels = sorted({layer.kernel for layer in Model(given.net).layers if layer.kernel})
        expected = json.loads(given.expect.read_text())["computed"] if given.expect else found
    except (FlipbitError, ImportError, OSError, ValueError, KeyError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    here = {"machine": platform.machine(), "python": platform.python_version(), "numpy": np.__version__}
    print(json.dumps({"here": here, "kernels": kernels, "computed": found}, indent=1))
    if found != expected:
        print(f"differs from {given.expect}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
