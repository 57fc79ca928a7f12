"""The core in WebAssembly, in Node: the bits of this machine's C core, for every net and every broken image."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import re
import shutil
import subprocess
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flipbit.export.graph import ExportError
from flipbit.export.write.fbit import fbit_bytes
from flipbit.runtime import Model
from flipbit.runtime.board.plan import board_plan
from flipbit.runtime.core.library import status_name
from flipbit.runtime.errors import FlipbitError
from flipbit.runtime.image.kinds import KINDS
from flipbit.runtime.image.reader import read_image
from tests.checkout import ROOT
from tests.firmware.wasm.jobs import CORPUS, Job, expected, inspect_job, learn_job, nets, run_job, text
from tests.nets.raw_image import CONV, Layer, Shape
from tests.nets.raw_image import image as raw_image
from tests.nets.small_nets import repaired, small_image
from tests.nets.tiny_net import tiny_image
from tests.patience import PATIENCE

PACKAGE = ROOT / "firmware" / "wasm"
HERE = Path(__file__).parent
LIMIT = 60 * 1024  # bytes of flipbit.wasm: a page must be quick on a phone
BUILT_BY = {"clang": "14.0.6", "wasm-opt": "108"}  # the committed module

Ask = Callable[[list[Job]], list[Any]]


def ask_node(package: Path, jobs: list[Job]) -> list[Any]:
    node = shutil.which("node")
    if not node:
        pytest.skip("needs node")
    command = [node, str(HERE / "run_answers.mjs"), str(package)]
    done = subprocess.run(command, input=json.dumps(jobs), capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    found: list[Any] = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def ask() -> Ask:
    return lambda jobs: ask_node(PACKAGE, jobs)


def check_equal(found: list[Any], jobs: list[Job]) -> None:
    """Answers are those of this machine; where one has more, such as sizes of an arena, that is not compared."""
    for job, one in zip(jobs, found, strict=True):
        wanted = expected(job)
        if isinstance(wanted, dict):
            one = {key: one.get(key) for key in wanted}
        assert one == wanted


def test_every_layer_of_every_net_has_the_bits_of_the_host(ask: Ask) -> None:
    jobs = [
        run_job(image, pixels=pixels)
        for image in nets().values()
        for pixels in (False, True)
        if formula(image) or not pixels
    ]
    assert len(jobs) > 40
    check_equal(ask(jobs), jobs)


def formula(image: bytes) -> bool:
    return "input" in read_image(image).metadata


@pytest.mark.slow
def test_nets_of_random_layers_have_the_bits_of_the_host(ask: Ask) -> None:
    if importlib.util.find_spec("tensorflow") is None:
        pytest.skip("needs tensorflow")
    from tests.nets.random_graphs import random_graph
    from tests.nets.random_nets import int8_graph

    jobs = []
    for seed in range(30):
        with contextlib.suppress(ExportError):  # some have layers that an image cannot have
            jobs.append(run_job(fbit_bytes(int8_graph(random_graph(seed))[1])))
    assert len(jobs) >= 12
    check_equal(ask(jobs), jobs)


LEARNING: list[dict[str, Any]] = [
    {"seed": 3, "bits": True, "bias": True},
    {"seed": 9, "bits": True, "bufferBits": 3, "start": 2},
    {"seed": 2**32 - 1, "bits": False, "bias": True},
]


def test_learning_gives_the_bits_of_the_host_also_from_a_state_that_was_kept(ask: Ask) -> None:
    digits = (ROOT / "models/digits-vgg-small/model.fbit").read_bytes()
    images = [small_image(0), small_image(1), tiny_image(0), digits]
    jobs = [learn_job(image, **config) for image in images for config in LEARNING]
    answers = ask(jobs)
    for job, answer in zip(jobs, answers, strict=True):
        wanted = expected(job)
        for step, other in zip(answer["steps"], wanted["steps"], strict=True):
            assert step.pop("loss") == pytest.approx(other.pop("loss"))
        assert {key: answer[key] for key in wanted} == wanted
    assert sum(step["flips"] for answer in answers for step in answer["steps"]) > 100


def test_less_arena_takes_more_passes_and_gives_the_same_bits(ask: Ask) -> None:
    whole = learn_job(small_image(0), **LEARNING[0])
    (answer,) = ask([whole])
    tight = {**whole, "arena": answer["arenaLeast"]}
    assert answer["arenaLeast"] < answer["arenaFast"]
    (again,) = ask([tight])
    assert (again["image"], again["state"]) == (answer["image"], answer["state"])


def test_what_an_image_holds_is_what_the_host_reads_in_it(ask: Ask) -> None:
    jobs = [inspect_job(image) for image in nets().values()]
    answers = ask(jobs)
    for job, answer in zip(jobs, answers, strict=True):
        wanted = expected(job)
        for layer, other in zip(answer["layers"], wanted["layers"], strict=True):
            layer["bytes"] = layer["weightsBytes"] + layer["parametersBytes"]
            assert {key: layer[key] for key in other} == other
        del wanted["layers"]
        assert {key: answer[key] for key in wanted} == wanted


def test_ram_is_that_of_a_risc_v_microcontroller(ask: Ask) -> None:
    for path in sorted((ROOT / "models").glob("*/model.fbit")):
        (answer,) = ask([inspect_job(path.read_bytes())])
        plan = board_plan(Model(path), "rv32-virt")
        assert [layer["function"] for layer in answer["layers"]] == [layer.kernel for layer in plan.layers]
        assert (answer["ram"], answer["ramLeast"]) == (plan.ram_fastest, plan.ram_needed)


def status_of(image: bytes) -> str:
    try:
        Model(image)
    except FlipbitError as error:
        return error.status
    return "FB_OK"


def test_broken_images_get_the_status_that_the_host_gives_them(ask: Ask) -> None:
    whole = small_image(0)
    images = [path.read_bytes() for path in CORPUS]
    images += [whole[:size] for size in (0, 1, 31, 32, 100, len(whole) - 4, len(whole) - 1)]
    images += [whole + bytes(4), b"GIF89a" + bytes(100)]
    for at in range(0, 400, 3):
        damaged = bytearray(whole)
        damaged[at] ^= 0x41
        images += [bytes(damaged), repaired(damaged)]
    answers = ask([inspect_job(image) for image in images])
    found = [answer.get("error", "FB_OK") for answer in answers]
    wanted = [status_of(image) for image in images]
    # The core does not read metadata.
    pairs = [(a, b) for a, b in zip(found, wanted) if b != "FB_ERR_METADATA"]
    assert [a for a, _ in pairs] == [b for _, b in pairs]
    assert len(set(found)) > 8
    assert all("FB_" not in answer["message"] for answer in answers if "error" in answer)


def test_every_status_of_an_image_has_words() -> None:
    module = (PACKAGE / "flipbit.js").read_text(encoding="utf-8")
    names = [status_name(i) for i in range(1, 23)]  # to FB_ERR_ARGUMENT: the others are of flash and of order
    assert names[-1] == "FB_ERR_ARGUMENT"
    assert [name for name in names if f"{name}: " not in module] == []


def test_kinds_are_named_as_in_python() -> None:
    module = (PACKAGE / "flipbit.js").read_text(encoding="utf-8")
    (listed,) = re.findall(r"export const KINDS = \[(.*?)\];", module, re.DOTALL)
    names = re.findall(r'"(\w*)"', listed)
    assert {kind.number: kind.name for kind in KINDS}.items() <= dict(enumerate(names)).items()


def test_crc_is_that_of_zlib(ask: Ask) -> None:
    data = [b"", b"a", bytes(range(256)) * 700]
    assert ask([{"what": "crc", "bytes": text(d)} for d in data]) == [zlib.crc32(d) for d in data]


def test_a_net_that_needs_more_memory_than_there_is_gets_an_error(ask: Ask) -> None:
    """A file of a few hundred bytes may describe activations of gigabytes."""
    large, larger = Shape(20_000, 20_000, 1), Shape(20_000, 20_000, 4)
    image = raw_image([large, larger, large], [Layer(CONV, (1, 1), shift=8), Layer(CONV, (1, 1), shift=8)])
    assert len(image) < 500
    (answer,) = ask([{"what": "reserve", "image": text(image)}])
    assert answer["error"] == "FB_ERR_ARENA"
    assert "2,401 MB of memory" in answer["message"]


def test_the_module_is_small_and_its_types_name_what_it_exports() -> None:
    assert (PACKAGE / "flipbit.wasm").stat().st_size < LIMIT
    module, types = ((PACKAGE / name).read_text(encoding="utf-8") for name in ("flipbit.js", "flipbit.d.ts"))
    names = set(re.findall(r"^export (?:async )?(?:class|function|const) (\w+)", module, re.MULTILINE))
    assert names == set(re.findall(r"^export (?:class|function|const) (\w+)", types, re.MULTILINE))
    assert {"loadCore", "Net", "Learner"} <= names
    files = json.loads((PACKAGE / "package.json").read_text(encoding="utf-8"))["files"]
    assert all((PACKAGE / name).is_file() for name in files)


@pytest.fixture(scope="module")
def rebuilt(tmp_path_factory: pytest.TempPathFactory) -> Path:
    for tool in ("clang", "wasm-ld", "make"):
        if not shutil.which(tool):
            pytest.skip(f"needs {tool}")
    folder = tmp_path_factory.mktemp("wasm")
    shutil.copy(PACKAGE / "flipbit.js", folder)
    shutil.copy(PACKAGE / "package.json", folder)
    subprocess.run(["make", "-C", str(PACKAGE), f"BUILD={folder}"], check=True, capture_output=True, timeout=PATIENCE)
    return folder


def test_the_committed_module_is_what_the_core_compiles_to(rebuilt: Path) -> None:
    for tool, version in BUILT_BY.items():
        said = subprocess.run([tool, "--version"], capture_output=True, text=True).stdout if shutil.which(tool) else ""
        if version not in said:
            pytest.skip(f"needs {tool} {version} to compare bytes")
    assert (rebuilt / "flipbit.wasm").read_bytes() == (PACKAGE / "flipbit.wasm").read_bytes(), (
        "the core has changed: make -C firmware/wasm page"
    )


def test_a_module_built_here_has_the_bits_of_the_host(rebuilt: Path) -> None:
    jobs = [run_job(small_image(0)), run_job(tiny_image(0)), learn_job(tiny_image(1), **LEARNING[1])]
    for job, answer in zip(jobs, ask_node(rebuilt, jobs), strict=True):
        wanted = expected(job)
        if job["what"] == "learn":
            assert (answer["image"], answer["state"]) == (wanted["image"], wanted["state"])
        else:
            assert answer == wanted
