"""Files of torch.export: read without running anything that they hold."""

from __future__ import annotations

import io
import json
import pickle
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")
from torch import nn  # noqa: E402

from flipbit.export import oracle  # noqa: E402
from flipbit.export.graph import ExportError  # noqa: E402
from flipbit.export.read.from_torch import from_torch, load_torch  # noqa: E402
from tests.nets.torch_nets import (  # noqa: E402
    ResNet,
    channels_last,
    kinds,
    pictures,
    saved,
    stirred,
)


def test_file_is_read_in_a_fresh_process_that_knows_no_classes(tmp_path: Path) -> None:
    module = stirred(ResNet("option A"), (3, 16, 12))
    path = saved(module, tmp_path / "net.pt2", dynamic_shapes={"x": {0: torch.export.Dim("n", min=1, max=64)}})
    images = channels_last(pictures((3, 16, 12), 4))
    np.save(tmp_path / "images.npy", images)
    program = (
        "import sys, numpy as np\n"
        "from flipbit.export.read.from_torch import from_torch, load_torch\n"
        "from flipbit.export import oracle\n"
        "graph = from_torch(load_torch(sys.argv[1]))\n"
        "np.save(sys.argv[3], oracle.logits(graph, np.load(sys.argv[2])))\n"
        "print(*(op.name for op in graph.weighted() if op.binary))\n"
    )
    files = [str(tmp_path / name) for name in ("net.pt2", "images.npy", "logits.npy")]
    assert path == Path(files[0])
    run = subprocess.run([sys.executable, "-c", program, *files], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert run.stdout.split()[:2] == ["conv", "blocks.0.conv1"]
    graph = from_torch(module, pictures((3, 16, 12), 1))
    assert np.allclose(np.load(files[2]), oracle.logits(graph, images), rtol=1e-9)


class Touch:
    """A pickle that leaves a file behind when it is opened."""

    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


def forged(source: Path, target: Path, change: Callable[[dict[str, bytes]], None]) -> Path:
    """A copy of an archive with some records changed."""
    with zipfile.ZipFile(source) as archive:
        records = {name.partition("/")[2]: archive.read(name) for name in archive.namelist()}
    change(records)
    with zipfile.ZipFile(target, "w") as archive:
        for name, data in records.items():
            archive.writestr(f"forged/{name}", data)
    return target


@pytest.fixture(scope="module")
def plain(tmp_path_factory: Any) -> Path:
    module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(4 * 4 * 2, 2))
    return saved(module, tmp_path_factory.mktemp("pt2") / "plain.pt2", (3, 6, 4))


def test_pickles_in_a_file_that_are_not_needed_are_never_opened(plain: Path, tmp_path: Path) -> None:
    def change(records: dict[str, bytes]) -> None:
        buffer = io.BytesIO()
        torch.save((Touch(tmp_path / "ran"), {}), buffer)
        records["data/sample_inputs/model.pt"] = buffer.getvalue()
        records["data/constants/model.pt"] = buffer.getvalue()
        records["data/weights/model.pt"] = buffer.getvalue()
        records["data/aotinductor/model/model.so"] = b"\x7fELF"

    path = forged(plain, tmp_path / "net.pt2", change)
    assert kinds(from_torch(load_torch(path))) == ["Conv", "Flatten", "Dense"]
    assert not (tmp_path / "ran").exists()


def test_files_that_could_run_code_are_refused(plain: Path, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    call = f"__import__('pathlib').Path({str(ran)!r}).touch()"

    def program(change: Callable[[Any], None]) -> Callable[[dict[str, bytes]], None]:
        def forge(records: dict[str, bytes]) -> None:
            found = json.loads(records["models/model.json"])
            change(found)
            records["models/model.json"] = json.dumps(found).encode()

        return forge

    def graph(found: Any) -> Any:
        return found["graph_module"]["graph"]

    def size(found: Any) -> None:
        graph(found)["tensor_values"]["conv2d"]["sizes"][0] = {"as_expr": {"expr_str": call, "hint": None}}

    def rename(found: Any) -> None:
        text = json.dumps(found).replace('"conv2d"', json.dumps(f"x=({call})"))
        found.update(json.loads(text))

    def target(found: Any) -> None:
        graph(found)["nodes"][0]["target"] = "torch.ops.load_library"

    def tree(found: Any) -> None:
        context = json.dumps([{"__enum__": True, "fqn": "antigravity:x", "name": "y"}])
        spec = json.dumps([1, {"type": "builtins.dict", "context": context, "children_spec": []}])
        found["graph_module"]["module_call_graph"][0]["signature"]["in_spec"] = spec

    def factory(found: Any) -> None:
        spec = json.dumps([1, {"type": "collections.defaultdict", "context": {}, "children_spec": []}])
        found["graph_module"]["module_call_graph"][0]["signature"]["out_spec"] = spec

    def weights(records: dict[str, bytes]) -> None:
        config = json.loads(records["data/weights/model_weights_config.json"])
        config["config"]["0.weight"]["use_pickle"] = True
        records["data/weights/model_weights_config.json"] = json.dumps(config).encode()
        records["data/weights/weight_0"] = pickle.dumps(Touch(ran))

    def constants(records: dict[str, bytes]) -> None:
        entry = {"path_name": "opaque_obj_0", "is_param": False, "use_pickle": True, "tensor_meta": None}
        records["data/constants/model_constants_config.json"] = json.dumps({"config": {"c": entry}}).encode()
        records["data/constants/opaque_obj_0"] = pickle.dumps(Touch(ran))

    for change, message in [
        (program(size), "might run"),
        (program(rename), "might run"),
        (program(target), "torch.ops.load_library"),
        (program(tree), "not plain"),
        (program(factory), "collections.defaultdict"),
        (weights, "pickle"),
        (constants, "pickle"),
    ]:
        with pytest.raises(ExportError, match=message):
            load_torch(forged(plain, tmp_path / "net.pt2", change))
    assert not ran.exists()


def test_files_that_are_none_are_refused(plain: Path, tmp_path: Path) -> None:
    torch.save(nn.Linear(2, 2), tmp_path / "net.pth")
    with pytest.raises(ExportError, match=r"pickle.*torch\.export\.save"):
        load_torch(tmp_path / "net.pth")
    (tmp_path / "net.pth").rename(tmp_path / "pickle.pt2")
    with pytest.raises(ExportError, match=r"torch\.export\.save"):
        load_torch(tmp_path / "pickle.pt2")
    with pytest.raises(ExportError, match="no such file"):
        load_torch(tmp_path / "absent.pt2")
    (tmp_path / "cut.pt2").write_bytes(plain.read_bytes()[:2000])
    with pytest.raises(ExportError, match="not a whole"):
        load_torch(tmp_path / "cut.pt2")

    def shorten(records: dict[str, bytes]) -> None:
        records["data/weights/weight_0"] = records["data/weights/weight_0"][:8]

    with pytest.raises(ExportError, match="cannot read"):
        load_torch(forged(plain, tmp_path / "short.pt2", shorten))
    path = forged(plain, tmp_path / "empty.pt2", lambda records: records.pop("models/model.json") and None)
    with pytest.raises(ExportError, match=r"torch\.export\.save"):
        load_torch(path)
