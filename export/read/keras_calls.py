"""The uses of a Keras model's layers, in running order: a layer may be used at several places, each its own call."""

from __future__ import annotations

from typing import Any

import numpy as np


class Call:
    """A layer at one place of the net: what it reads and gives there. All else is the layer's own."""

    def __init__(self, layer: Any, inputs: list[Any], outputs: list[Any]):
        self.layer, self.inputs, self.outputs = layer, inputs, outputs  # Keras tensors
        self.kind = type(layer).__name__
        self.input_shape: Any = None  # batch first; of several tensors, of the first
        self.output_shape: Any = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.layer, name)

    @property
    def input(self) -> Any:
        return self.inputs[0]

    @property
    def output(self) -> Any:
        return self.outputs[0]

    def settle_shapes(self, known: dict[int, tuple[int, ...]]) -> None:
        """Shapes from those of the tensors read (by id, without the batch): a model inside may leave its own open."""
        read = [(None, *known[id(tensor)]) for tensor in self.inputs]
        self.input_shape = read[0]
        given = tuple(self.output.shape)
        if None in given[1:]:
            given = tuple(self.layer.compute_output_shape(read[0] if len(read) == 1 else read))
        self.output_shape = given
        for tensor in self.outputs:
            known[id(tensor)] = given[1:] if tensor is self.output else tuple(tensor.shape)[1:]


def calls_of(model: Any) -> list[Call]:
    """What the model's outputs are made of, inputs apart, each call behind those that it reads."""
    writer: dict[int, Call] = {}
    for layer in model.layers:
        for node in layer.inbound_nodes:
            call = Call(layer, list(node.keras_inputs), _flat(node.outputs))
            if call.inputs and call.kind != "InputLayer":
                writer.update((id(tensor), call) for tensor in call.outputs)
    known = {id(tensor) for tensor in model.inputs}
    needed: set[int] = set()  # ids of calls
    asked = list(model.outputs)
    while asked:
        tensor = asked.pop()
        found = writer.get(id(tensor))
        if id(tensor) not in known and found is not None and id(found) not in needed:
            needed.add(id(found))
            asked += found.inputs
    pending = [call for call in dict.fromkeys(writer.values()) if id(call) in needed]
    ordered: list[Call] = []
    while pending:
        late = []
        for call in pending:
            if all(id(tensor) in known for tensor in call.inputs):
                ordered.append(call)
                known.update(id(tensor) for tensor in call.outputs)
            else:
                late.append(call)
        if len(late) == len(pending):
            break  # reads what no layer gives: not a model that Keras makes
        pending = late
    return ordered


def per_channel(values: Any, channels: int) -> np.ndarray | None:
    """Numbers that Keras broadcasts over a tensor, one per channel; None where they differ within a channel."""
    given = np.asarray(values, np.float64)
    if given.size == 1:
        return np.full(channels, float(given.reshape(-1)[0]))
    return given.reshape(-1) if given.shape[-1] == given.size == channels else None


def _flat(found: Any) -> list[Any]:
    if isinstance(found, dict):
        found = list(found.values())
    return [tensor for part in found for tensor in _flat(part)] if isinstance(found, (list, tuple)) else [found]
