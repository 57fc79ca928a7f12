"""What export adds to the ``flipbit`` command (entry points in pyproject.toml)."""

from __future__ import annotations

from flipbit.runtime.commands.verb import Verb

EXPORT = Verb(
    "export", "write a model as .fbit, ONNX, TFLite or C", "flipbit export model.h5", "flipbit.export.commands.export"
)
VERIFY = Verb(
    "export", "do files answer as their model does?", "flipbit verify model.h5 model.fbit model.onnx",
    "flipbit.export.commands.verify",
)  # fmt: skip
SHOW = Verb(
    "export", "a model file as a table or picture", "flipbit show model.onnx --picture graph.png",
    "flipbit.export.commands.show",
)  # fmt: skip
