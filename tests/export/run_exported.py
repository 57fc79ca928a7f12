"""Runs exported files and writes what they say: for tests that start this on a CPU other than this machine's.

    run_exported.py FOLDER [OPTION=VALUE …]    model.onnx and model.tflite on images.npy; options of onnxruntime

Only what a user of such files has is imported: no TensorFlow, none of the exporter.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np


def run_onnx(path: Path, images: np.ndarray, options: list[str]) -> np.ndarray:
    import onnxruntime

    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = 1
    for option in options:
        settings.add_session_config_entry(*option.split("=", 1))
    session = onnxruntime.InferenceSession(str(path), settings, providers=["CPUExecutionProvider"])
    (output,) = session.run(None, {session.get_inputs()[0].name: images})
    return output


def run_tflite(path: Path, pixels: np.ndarray, reference: bool) -> np.ndarray:
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    kernels = OpResolverType.BUILTIN_REF if reference else OpResolverType.AUTO
    interpreter = Interpreter(str(path), num_threads=1, experimental_op_resolver_type=kernels)
    source = interpreter.get_input_details()[0]
    interpreter.resize_tensor_input(source["index"], pixels.shape)
    interpreter.allocate_tensors()
    interpreter.set_tensor(source["index"], pixels)
    interpreter.invoke()
    return interpreter.get_tensor(interpreter.get_output_details()[0]["index"])


if __name__ == "__main__":
    folder, options = Path(sys.argv[1]), sys.argv[2:]
    images, pixels = np.load(folder / "images.npy"), np.load(folder / "pixels.npy")
    said = {"onnx": run_onnx(folder / "model.onnx", images, options)}
    if not options:
        for name, reference in (("tflite-reference", True), ("tflite-fast", False)):
            said[name] = run_tflite(folder / "model.tflite", pixels, reference)
    np.savez(folder / "said.npz", **said)
