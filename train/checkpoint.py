"""``checkpoint.npz``: all a run needs to go on as if it had never stopped.

Plain arrays, no pickles: the model's weights, the optimizer's variables, the signs the run started
with (packed), and the history as JSON. Written after each epoch.
"""

from __future__ import annotations

import io
import json
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from flipbit.runtime.files import replacing
from flipbit.train.settings import InputError


@dataclass
class Checkpoint:
    epochs_done: int
    weights: list[np.ndarray]
    optimizer: list[np.ndarray]
    first_signs: list[np.ndarray]
    history: list[dict[str, Any]]

    def save(self, path: Path) -> None:
        # Through memory: a zip that runs into a full disk while open complains again when it is collected.
        content = self.content()
        with replacing(path) as temporary:
            temporary.write_bytes(content)

    def content(self) -> bytes:
        """The file's bytes."""
        arrays: dict[str, np.ndarray] = {"epochs_done": np.array(self.epochs_done)}
        arrays["history"] = np.frombuffer(json.dumps(self.history).encode(), np.uint8)
        for kind, values in (("weight", self.weights), ("optimizer", self.optimizer)):
            arrays.update({f"{kind}_{i:04}": np.asarray(v) for i, v in enumerate(values)})
        for i, signs in enumerate(self.first_signs):
            arrays[f"signs_{i:04}"] = np.packbits(signs)
            arrays[f"signs_shape_{i:04}"] = np.array(signs.shape)
        content = io.BytesIO()
        np.savez(content, **arrays)
        return content.getvalue()

    @staticmethod
    def load(path: Path) -> Checkpoint:
        try:
            return Checkpoint.of(path.read_bytes(), str(path))
        except OSError as error:
            raise InputError(f"{path}: not a readable checkpoint ({error})") from None

    @staticmethod
    def of(content: bytes, name: str) -> Checkpoint:
        try:
            with np.load(io.BytesIO(content), allow_pickle=False) as saved:
                arrays = {name: saved[name] for name in saved.files}
        except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
            raise InputError(f"{name}: not a readable checkpoint ({error})") from None

        def all_of(kind: str) -> list[np.ndarray]:
            return [
                arrays[name] for name in sorted(arrays) if name.startswith(kind + "_") and name[len(kind) + 1].isdigit()
            ]

        signs = [
            np.unpackbits(bits, count=int(np.prod(shape))).astype(bool).reshape(shape)
            for bits, shape in zip(all_of("signs"), all_of("signs_shape"))
        ]
        return Checkpoint(
            int(arrays["epochs_done"]),
            all_of("weight"),
            all_of("optimizer"),
            signs,
            json.loads(arrays["history"].tobytes()),
        )
