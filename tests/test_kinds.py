"""A kind of operation is described once, and everything that must know it does.

The rows of firmware/core/run/fb_kinds.c and of runtime/image/kinds.py are the same and say what docs/fbit-format.md
says; each kind goes through every place with a branch per kind; a number that is no kind is refused in all of them.
"""

from __future__ import annotations

import ctypes
import re
import struct
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from flipbit.export import oracle
from flipbit.export.calibrate import Range
from flipbit.export.commands.describe import describe, graph_nodes
from flipbit.export.commands.table import rows
from flipbit.export.graph import ExportError, Graph, Op, Tensor, Weighted
from flipbit.export.planar import in_graph_order, orders
from flipbit.export.quantize import quantize_graph
from flipbit.export.write import fbit
from flipbit.export.write.save import SUFFIXES
from flipbit.runtime import Model
from flipbit.runtime.board.plan import board_plan
from flipbit.runtime.core import library as core
from flipbit.runtime.core.learner import Learner, LearnerConfig
from flipbit.runtime.errors import ArgumentError, FlipbitError, KindError
from flipbit.runtime.image import kinds, reader, reference
from flipbit.runtime.image.inputs import to_planes
from flipbit.runtime.image.kinds import KINDS, Back, CutOff, Kind, Shape
from tests.checkout import ROOT
from tests.nets.small_nets import EXAMPLES, graph_with, repaired

CORE, FUZZ = ROOT / "firmware/core", ROOT / "firmware/fuzz"
NAMES = [kind.name for kind in KINDS]
NO_KINDS = (0, KINDS[-1].number + 1, 255)
TRAITS = {  # names in Python and in C
    "kernel": "FB_KERNEL_FIELDS",
    "stride": "FB_STRIDE_FIELDS",
    "padding": "FB_PADDING_FIELDS",
    "weights": "FB_WEIGHTS",
    "shifts": "FB_SHIFTS",
    "keeps_scale": "FB_KEEPS_SCALE",
    "to_vector": "FB_TO_VECTOR",
    "in_place": "FB_IN_PLACE",
    "moves_nothing": "FB_MOVES_NOTHING",
    "per_channel": "FB_PER_CHANNEL",
    "looks_up": "FB_LOOKS_UP",
    "padding_new": "FB_PADDING_NEW",
    "thresholds": "FB_THRESHOLDS",
    "reads_bits": "FB_READS_BITS",
    "writes_bits": "FB_WRITES_BITS",
}
FLAGS = ("RELU", "BINARY", "CHUNKS", "TRAINABLE", "REFERENCES", "ONES")


def enumerators(header: str, name: str) -> dict[str, int]:
    """Names and values of an enumeration in a header of firmware/core/run."""
    text = re.sub(r"/\*.*?\*/", "", (CORE / "run" / header).read_text(encoding="utf-8"), flags=re.DOTALL)
    (body,) = re.findall(rf"enum {name} {{(.*?)}}", text, re.DOTALL)
    found: dict[str, int] = {}
    for item in filter(None, (part.strip() for part in body.split(","))):
        word, _, value = item.partition(" = ")
        found[word] = int(value) if value else len(found) and max(found.values()) + 1
    return found


def compiled(source: str, folder: Path, *files: Path) -> Path:
    (folder / "program.c").write_text(source, encoding="utf-8")
    includes = [f"-I{CORE}", f"-I{CORE / 'include'}", f"-I{FUZZ}"]
    command = ["cc", "-std=gnu99", "-O1", *includes, str(folder / "program.c"), *map(str, files)]
    subprocess.run([*command, "-o", str(folder / "program")], check=True)
    return folder / "program"


# The tables


def test_kinds_stand_in_the_order_of_their_numbers_and_are_named_as_in_c() -> None:
    expected = {f"FB_{kind.name.upper()}": kind.number for kind in KINDS}
    numbers = [kind.number for kind in KINDS]
    assert numbers == sorted(set(numbers)) and numbers[0] == 1
    assert enumerators("fb_kinds.h", "fb_kind") == {**expected, "FB_KIND_END": numbers[-1] + 1}


def test_columns_have_the_same_words_in_c_and_python() -> None:
    assert set(enumerators("fb_kinds.h", "fb_trait")) == set(TRAITS.values())
    unknown = {"FB_SHAPE_UNKNOWN": 0}
    assert enumerators("fb_kinds.h", "fb_shape") == {**unknown, **{f"FB_SHAPE_{s.name}": s.value for s in Shape}}
    assert enumerators("fb_kinds.h", "fb_back") == {f"FB_BACK_{b.name}": b.value for b in Back}
    assert enumerators("fb_kinds.h", "fb_cut") == {f"FB_CUT_{c.name}": c.value for c in CutOff}
    flags = {f"FB_FLAG_{name}": getattr(kinds, name) for name in FLAGS}
    assert enumerators("fb_format.h", "fb_flag") == flags


def test_every_row_is_the_same_in_c_and_python(tmp_path: Path) -> None:
    columns = "t->has, t->shape, t->inputs, t->factors, t->flags, t->back, t->cut, t->version"
    source = f"""
#include <stdio.h>
#include "run/fb_kinds.h"
int main(void) {{
    for (unsigned kind = 0; kind < 256; kind++) {{
        const fb_traits *t = fb_traits_of(kind);
        printf("%d %d %d %d %d %d %d %d\\n", {columns});
    }}
    return fb_traits_of(1u << 31)->shape;
}}
"""
    program = compiled(source, tmp_path, CORE / "run/fb_kinds.c")
    lines = subprocess.run([program], check=True, capture_output=True, text=True).stdout.splitlines()
    bits = enumerators("fb_kinds.h", "fb_trait")
    for number, line in enumerate(lines):
        kind = kinds.kind_of(number)
        expected = [0] * 8
        if kind is not None:
            has = sum(bits[TRAITS[name]] for name in TRAITS if getattr(kind, name))
            expected = [has, kind.shape, kind.inputs, kind.factors, kind.flags, kind.back, kind.cut, kind.version]
        assert list(map(int, line.split())) == expected, f"kind {number}: C has {line}, Python {expected}"
    assert len(lines) == 256


@pytest.mark.parametrize(("name", "enum"), [("HEADER", "header"), ("TENSOR", "tensor"), ("OP", "op")])
def test_offsets_of_the_core_are_those_of_reader_and_writer(name: str, enum: str) -> None:
    fields = list(enumerators("fb_format.h", f"fb_{enum}_field").values())
    for layout in (getattr(reader, name), getattr(fbit, name)):
        codes = re.findall(r"\d*\w", layout.format.lstrip("<"))
        starts = [struct.calcsize("<" + "".join(codes[:i])) for i in range(len(codes) + 1)]
        assert starts == fields


def test_the_document_says_what_the_table_says() -> None:
    text = (ROOT / "docs/fbit-format.md").read_text(encoding="utf-8")

    def numbers(pattern: str) -> set[int]:
        (found,) = re.findall(pattern, text)
        return set(map(int, re.findall(r"\d+", found)))

    def having(trait: str) -> set[int]:
        return {kind.number for kind in KINDS if getattr(kind, trait)}

    assert numbers(r"\| kind: (.*) \|") == {kind.number for kind in KINDS}, "docs/fbit-format.md lists every kind"
    assert numbers(r"kernel or window height, width \(kinds (.*); else 0\)") == having("kernel")
    assert numbers(r"stride down, across \((.*); else 0\)") == having("stride")
    assert numbers(r"padding top, bottom, left, right \((.*); else 0\)") == having("padding")
    assert numbers(r"shift \((.*); else 0\)") == having("shifts")
    assert numbers(r"offset of the weights \(([\d, ]*)\)") == having("weights")
    assert numbers(r"multiplier of the \(first\) input \(([\d, ]*)\)") == having("factors")
    assert numbers(r"multiplier of the second input \(([\d, ]*)\)") == {k.number for k in KINDS if k.factors == 2}
    words_of = {1: "ReLU fused", 2: "binary weights", 4: "layout `chunks`", 8: "may be trained", 32: r"padding is \+1"}
    for flag, words in words_of.items():
        pattern = rf"{flag} {words} \((?:kinds )?(\d+(?:, \d+)*)"
        assert numbers(pattern) == {kind.number for kind in KINDS if kind.flags & flag}, words


def test_a_row_does_not_contradict_itself() -> None:
    for kind in KINDS:
        assert kind.padding <= kind.kernel <= kind.stride, kind.name
        assert not (kind.shifts and kind.keeps_scale), kind.name
        assert kind.factors in (0, kind.inputs), kind.name
        assert kind.moves_nothing <= kind.in_place, kind.name
        assert (kind.back is Back.WEIGHTS) == (kind.weights and kind.back is not Back.NONE), kind.name
        assert not (kind.thresholds and kind.weights), kind.name


# Every kind, everywhere


def test_every_kind_has_an_example_and_an_operation_of_the_graph() -> None:
    assert set(EXAMPLES) == set(NAMES), "tests/nets/small_nets.py has an example of each kind"
    classes = [kind for kind in _leaves(Op) if kind.__module__ == Op.__module__]
    assert sorted(kind.traits.name for kind in classes) == sorted(NAMES), "export/graph.py has a class of each kind"


def _leaves(kind: type[Op]) -> list[type[Op]]:
    below = kind.__subclasses__()
    return [leaf for other in below for leaf in _leaves(other)] if below else [kind]


def example(name: str) -> tuple[Graph, Op, Model]:
    """A net with an operation of this kind, that operation, and the net's image as the core runs it."""
    assert name in EXAMPLES, f"tests/nets/small_nets.py has no example of {name}"
    graph = graph_with(name)
    op = next(op for op in graph.ops[1:] if op.traits.name == name)
    return graph, op, Model(fbit.fbit_bytes(graph))


@pytest.mark.parametrize("name", NAMES)
def test_an_operation_of_the_graph_has_the_fields_that_its_row_promises(name: str) -> None:
    _, op, _ = example(name)
    for trait, attribute in {"kernel": "size", "stride": "stride", "padding": "padding", "shifts": "shift"}.items():
        assert hasattr(op, attribute) or not getattr(op.traits, trait), f"{op.kind} has no {attribute}"
    assert len(op.inputs) == op.traits.inputs
    assert isinstance(op, Weighted) == op.traits.weights
    if op.traits.factors:
        assert len(op.factors) == op.traits.factors and min(op.factors) > 0, "quantize.py sets them"


@pytest.mark.parametrize("name", NAMES)
def test_core_reference_and_oracle_give_the_same_bits(name: str) -> None:
    graph, op, model = example(name)
    x = np.random.default_rng(1).integers(-128, 128, (4, 6, 6, 3)).astype(np.int8)
    expected = oracle.run(graph, x)
    planes, _ = to_planes(x, model.image.tensors[model.image.input], None)
    mine = reference.run(model.image, planes)
    tensor = list(graph.tensors).index(op.output)
    value = mine[tensor] if mine[tensor].ndim == 2 else np.moveaxis(mine[tensor], 1, -1)
    np.testing.assert_array_equal(in_graph_order({op.output: value}, graph)[op.output], expected[op.output])
    fewest = 2 if op.traits.writes_bits else 4
    assert len(np.unique(expected[op.output])) >= fewest, "an example that computes nothing shows nothing"
    np.testing.assert_array_equal(model.predict(x, raw=True), expected[graph.output])
    shown = model.tensors(x)
    for layer, operation in zip(model.layers, graph):
        found = in_graph_order({operation.output: shown[layer.name]}, graph)[operation.output]
        np.testing.assert_array_equal(found, expected[operation.output], layer.name)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("board", ["microbit", "nrf52840-dk"])
def test_a_board_has_a_plan_for_it(name: str, board: str) -> None:
    _, op, model = example(name)
    plan = board_plan(model, board)
    (there,) = [p for layer, p in zip(model.layers, plan.layers) if layer.name == op.name]
    assert plan.fits and (there.kernel or op.traits.moves_nothing)


@pytest.mark.parametrize("name", NAMES)
def test_gradients_reach_the_layer_below_it_or_learning_says_that_they_cannot(name: str) -> None:
    _, op, model = example(name)
    config = LearnerConfig(bits=True, bias=True)
    if op.traits.back is Back.NONE:
        with pytest.raises(ArgumentError, match="cannot pass"):
            Learner(model.image.data, config)
        return
    learner = Learner(model.image.data, config)
    below: list[float] = []
    learner.on_gradient(lambda at, _filter, _bias, values: below.append(np.abs(values).sum()) if at == 0 else None)
    random = np.random.default_rng(2)
    for _ in range(2):
        learner.step(random.integers(-128, 128, (8, 3, 6, 6)).astype(np.int8), random.integers(0, 3, 8), 0.1, 0.1)
    assert sum(below) > 0 and reader.read_image(learner.image)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_every_exporter_writes_it_and_what_it_wrote_gives_the_result_of_the_oracle(
    name: str, suffix: str, tmp_path: Path
) -> None:
    if suffix == ".onnx":
        pytest.importorskip("onnxruntime")
    if suffix == ".tflite":
        pytest.importorskip("ai_edge_litert")
    graph, *_ = example(name)
    graph.save(tmp_path / f"net{suffix}")  # compared with the oracle before it is written
    if suffix != ".c":
        assert describe(tmp_path / f"net{suffix}").nodes
    if suffix in (".onnx", ".tflite"):
        assert graph.real is not None
        graph.real.save(tmp_path / f"real{suffix}")


@pytest.mark.parametrize("name", NAMES)
def test_people_can_read_what_it_is(name: str) -> None:
    graph, op, model = example(name)
    layer = next(layer for layer in model.layers if layer.name == op.name)
    assert name.replace("_", " ") in layer.description and layer.kind == name
    at = graph.ops.index(op)
    assert rows(graph)[at]["kind"] and any(op.name == node.name for node in graph_nodes(graph))


def test_the_corpus_of_the_fuzzers_has_every_kind() -> None:
    images = [path for path in (FUZZ / "corpus/image").glob("*.fbit") if not path.name.startswith("found-")]
    found = {op.kind for path in images for op in reader.read_image(path).operations}
    assert found == set(NAMES), "firmware/fuzz/make_corpus.py makes a net of each kind"


def test_the_mutator_of_the_fuzzers_makes_valid_images_with_every_kind(tmp_path: Path) -> None:
    source = """
#include <stdio.h>
#include <string.h>
#include "mutate.h"
#include "run/fb_kinds.h"
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t most) { return (void)data, (void)most, size; }
int main(void) {
    static uint32_t made[256], kept[256];
    size_t size = 0, base = 0;
    unsigned runs[256] = {0}, kind;
    for (unsigned seed = 1; seed < 20000; seed++) {
        fb_model model;
        memcpy(made, kept, size = base);
        size = mutate_image((uint8_t *)made, size, sizeof made, seed);
        if (fb_model_open(&model, made, size) != FB_OK) continue;
        for (unsigned op = 0; op < model.ops; op++) runs[fb_op_record(&model, op)[FB_OP_KIND]]++;
        memcpy(kept, made, base = seed % 16 ? size : 0);
    }
    for (kind = 0; kind < 256; kind++) if (runs[kind]) printf("%u %u\\n", kind, runs[kind]);
    return 0;
}
"""
    core_files = [path for path in CORE.rglob("*.c") if path.parent.name == "run" or "kernels" in path.parts]
    program = compiled(source, tmp_path, FUZZ / "mutate_image.c", *core_files)
    lines = subprocess.run([program], check=True, capture_output=True, text=True).stdout.splitlines()
    runs = dict(map(int, line.split()) for line in lines)
    assert set(runs) == {kind.number for kind in KINDS} and min(runs.values()) > 100, runs


# What is no kind


def kind_at(data: bytes, op: int) -> int:
    """Where an operation's kind stands in an image."""
    return int(reader.HEADER.size + reader.TENSOR.size * struct.unpack_from("<H", data, 16)[0] + reader.OP.size * op)


@pytest.mark.parametrize("number", NO_KINDS)
def test_a_number_that_is_no_kind_is_refused_when_an_image_is_opened(number: int) -> None:
    image = bytearray(fbit.fbit_bytes(graph_with("relu")))
    image[kind_at(image, 1)] = number
    for opens in (core.Opened, reader.read_image):
        with pytest.raises(KindError):
            opens(repaired(image))


class _Kernel(ctypes.Structure):
    _fields_ = (("name", ctypes.c_char_p), ("scratch", ctypes.c_void_p), ("run", ctypes.c_void_p))


def test_every_kind_has_a_list_of_kernels_and_what_is_none_has_an_empty_one() -> None:
    kernels_of = core.library().fb_kernels_of
    kernels_of.restype, kernels_of.argtypes = ctypes.POINTER(_Kernel), [ctypes.c_void_p]
    for number in range(256):
        kind = kinds.kind_of(number)
        for flags in (0, kinds.BINARY):
            layer = ctypes.create_string_buffer(bytes([number, flags]), 256)  # fb_layer: kind, flags, …
            assert bool(kernels_of(layer)[0].name) == (kind is not None), f"fb_kernels.c: kind {number}, flags {flags}"


@pytest.mark.parametrize("number", NO_KINDS)
def test_a_number_that_is_no_kind_is_refused_by_plan_run_and_learning_even_if_it_got_past_the_check(
    number: int,
) -> None:
    data = fbit.fbit_bytes(graph_with("relu"))
    opened = core.Opened(data)
    opened._memory[kind_at(data, 1)] = number  # as if fb_model_open had let it through
    arena, y = core.aligned(1 << 16), np.zeros(3, np.int8)
    assert opened.arena_size == opened.arena_least == 0
    for refused in (lambda: opened.plan(1 << 16, 2), lambda: opened.invoke(arena, np.zeros(108, np.int8), y)):
        with pytest.raises(KindError):
            refused()
    learner = Learner(data, LearnerConfig())
    learner.begin(1, 0.1)
    learner._image.view(np.uint8)[kind_at(data, 1)] = number
    with pytest.raises(KindError):
        learner.sample(np.zeros((3, 6, 6), np.int8), 0)


def test_learning_refuses_what_has_no_way_back(tmp_path: Path) -> None:
    """No kind is so today: a row of the C table is changed."""
    data = fbit.fbit_bytes(graph_with("relu"))
    source = (CORE / "run/fb_kinds.c").read_text(encoding="utf-8")
    (row,) = re.findall(r"\[FB_RELU\] = {.*?}", source, re.DOTALL)
    source = source.replace(row, row.replace("FB_BACK_VALUES", "FB_BACK_NONE"))
    words = ",".join(map(str, struct.unpack(f"<{len(data) // 4}I", data)))
    source = (
        source.replace('"fb_kinds.h"', '"run/fb_kinds.h"')
        + f"""
#include <stdio.h>
#include "learn/fb_train_internal.h"
static const uint32_t image[] = {{{words}}};
int main(void) {{
    fb_model model;
    fb_train_config config = {{.bits = true, .last_op = 0xFFFF}};
    if (fb_model_open(&model, image, sizeof image) != FB_OK) return 1;
    puts(fb_status_name(fb_train_check(&model, &config)));
    config.bits = false, config.bias = true, config.first_op = 2; /* behind it */
    puts(fb_status_name(fb_train_check(&model, &config)));
    return 0;
}}
"""
    )
    files = [path for path in CORE.rglob("*.c") if path.name != "fb_kinds.c"]
    said = subprocess.run([compiled(source, tmp_path, *files)], check=True, capture_output=True, text=True).stdout
    assert said.split() == ["FB_ERR_KIND", "FB_OK"]


@dataclass(frozen=True)
class Strange(Op):
    """An operation that nobody knows."""


@dataclass(frozen=True)
class Scaled(Op):
    """One that has a row, and nothing else."""

    traits = Kind(99, "scaled", Shape.SAME, factors=1, shifts=True)
    factors = (1,)
    shift = 1


@pytest.mark.parametrize("kind", [Strange, Scaled])
def test_an_operation_that_nobody_knows_is_refused_by_everything_that_exports(kind: type[Op]) -> None:
    tensors = {name: Tensor(name, (4,)) for name in "xy"}
    real = Graph("x", "y", [kind("odd", ("x",), "y")], tensors)
    integers = replace(real, tensors={name: replace(t, scale=0.1) for name, t in tensors.items()})
    ranges = {name: Range(0.0, 1.0) for name in "xy"}
    for refused in (
        lambda: oracle.run(real, np.zeros((1, 4))),
        lambda: oracle.run(integers, np.zeros((1, 4))),
        lambda: quantize_graph(real, ranges),
    ):
        with pytest.raises(ExportError, match=r"odd: (Strange|Scaled) is"):
            refused()
    if kind is Strange:
        for write in (orders, fbit.fbit_bytes):
            with pytest.raises(ExportError, match="odd: Strange is not an operation that devices know"):
                write(integers)
    else:
        with pytest.raises(KindError):
            reader.read_image(fbit.fbit_bytes(integers))


@pytest.mark.parametrize("kind", [Strange, Scaled])
def test_an_operation_that_nobody_knows_is_refused_by_the_writers_of_other_formats(kind: type[Op]) -> None:
    pytest.importorskip("onnx")
    pytest.importorskip("ai_edge_litert")
    from flipbit.export.write.onnx_file import onnx_model
    from flipbit.export.write.tflite_file import tflite_bytes

    graph = Graph("x", "y", [kind("odd", ("x",), "y")], {name: Tensor(name, (4,)) for name in "xy"})
    for write, form in ((onnx_model, "ONNX"), (tflite_bytes, "TFLite")):
        with pytest.raises(ExportError, match=f"odd: {kind.__name__} has no {form} form here"):
            write(graph)


def test_the_reference_refuses_a_kind_that_it_does_not_know(monkeypatch: pytest.MonkeyPatch) -> None:
    assert set(reference._KERNELS) == set(NAMES), "runtime/image/reference.py has a function for each kind"
    image = reader.read_image(fbit.fbit_bytes(graph_with("relu")))
    monkeypatch.delitem(reference._KERNELS, "relu")
    with pytest.raises(FlipbitError, match="relu is not in the reference"):
        reference.run(image, np.zeros((1, 3, 6, 6), np.int8))
