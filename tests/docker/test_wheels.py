"""Wheels of the runtime for three CPUs, built here; those for Arm also run, emulated, on Debian's Python for it."""

from __future__ import annotations

import concurrent.futures
import importlib.util
import json
import os
import platform
import re
import shutil
import struct
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.checkout import ROOT

SMOKE = ROOT / "docker" / "smoke.py"
KEYS = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
ELF_MACHINES = {"x86_64": 62, "aarch64": 183, "armv7l": 40}
FAST_KERNELS = {"x86_64": b"fb_conv_bin_vnni", "aarch64": b"fb_conv_bin_neon", "armv7l": b"fb_conv_bin_neon"}
# Debian's name of the architecture, emulator, CPU to emulate: those of a Raspberry Pi 3 and 2
FOREIGN = {"aarch64": ("arm64", "qemu-aarch64", "cortex-a53"), "armv7l": ("armhf", "qemu-arm", "cortex-a7")}


def load_wheels():
    spec = importlib.util.spec_from_file_location("wheels", ROOT / "docker" / "wheels.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["wheels"] = module  # dataclasses look it up
    spec.loader.exec_module(module)
    return module


wheels = load_wheels()
each_machine = pytest.mark.parametrize("machine", [target.machine for target in wheels.TARGETS])


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Wheels by machine, of those whose compiler is here. Raises if auditwheel objects."""
    folder = tmp_path_factory.mktemp("wheels")
    targets = [target for target in wheels.TARGETS if shutil.which(target.compiler)]
    with concurrent.futures.ThreadPoolExecutor() as pool:
        made = pool.map(lambda target: wheels.make(target, folder).path, targets)
    return {target.machine: path for target, path in zip(targets, made)}


def wheel_of(machine: str, built: dict[str, Path]) -> Path:
    if machine not in built:
        pytest.skip(f"needs a compiler for {machine}")
    return built[machine]


def test_wheels_refuses_an_unknown_machine_and_names_a_missing_compiler(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with pytest.raises(SystemExit, match="2"):
        wheels.main(["sparc"])
    assert "no machine sparc; there are: x86_64, aarch64, armv7l" in capsys.readouterr().err
    monkeypatch.setenv("PATH", str(tmp_path))
    assert wheels.main(["aarch64", "-o", str(tmp_path)]) == 2
    assert "apt install gcc-aarch64-linux-gnu libc6-dev-arm64-cross" in capsys.readouterr().err


def test_every_package_is_copied_before_a_wheel_is_built_here_and_in_the_edge_image() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    folders = re.findall(r'^"flipbit\.\w+" = "(\w+)"$', text, re.MULTILINE)
    assert {"train", "export", "runtime", "studies"} <= set(folders) <= set(wheels.SOURCES)
    edge = (ROOT / "docker" / "edge.Dockerfile").read_text(encoding="utf-8")
    copied = {word for line in re.findall(r"^COPY (?!--)(.*) \S+$", edge, re.MULTILINE) for word in line.split()}
    assert set(wheels.SOURCES) <= copied


@pytest.mark.slow
@each_machine
def test_a_wheel_holds_a_core_for_its_cpu_with_its_fast_kernels(machine: str, built: dict[str, Path]) -> None:
    wheel = wheel_of(machine, built)
    assert wheel.name.endswith(f"-py3-none-manylinux_2_17_{machine}.whl")
    with zipfile.ZipFile(wheel) as archive:
        core = archive.read("flipbit/runtime/core/_core.so")
        assert "flipbit/runtime/board/profiles/microbit/board.toml" in archive.namelist()
    assert core[:4] == b"\x7fELF"
    assert struct.unpack_from("<H", core, 18)[0] == ELF_MACHINES[machine]
    assert FAST_KERNELS[machine] in core
    assert b"fb_train_sample" in core
    assert b"fb_flash_sim" in core  # every source of setup.py went along


@pytest.mark.slow
@each_machine
def test_a_wheel_with_the_name_of_another_cpu_is_refused(machine: str, built: dict[str, Path], tmp_path: Path) -> None:
    if not importlib.util.find_spec("auditwheel"):
        pytest.skip("needs auditwheel")
    wheel = wheel_of(machine, built)
    other = "x86_64" if machine != "x86_64" else "aarch64"
    wrong = tmp_path / wheel.name.replace(machine, other)
    with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(wrong, "w") as new:
        for item in old.infolist():
            new.writestr(item, old.read(item).replace(f"2_17_{machine}".encode(), f"2_17_{other}".encode()))
    with pytest.raises(wheels.WheelError, match="is not what it says"):
        wheels.audit(wrong)


# ---- on Arm, emulated ----


def debian_root(architecture: str, folder: Path) -> Path:
    """Python and NumPy of the Debian release this machine has, for another CPU."""
    release = re.search(r"^VERSION_CODENAME=(\w+)", Path("/etc/os-release").read_text(), re.MULTILINE)
    if not shutil.which("apt-get") or not KEYS.exists() or not release:
        pytest.skip("needs a Debian machine: its apt fetches the packages for Arm")
    targets = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE)"], capture_output=True, text=True
    )
    archives = [line.split()[0] for line in targets.stdout.splitlines() if line.split()[1:] == [release[1]]]
    if not archives:
        pytest.skip("needs package lists: apt-get update")
    sources = folder / "sources.list"
    sources.write_text(f"deb [signed-by={KEYS}] {archives[0]} {release[1]} main\n")
    root = folder / "root"
    done = subprocess.run(
        [ROOT / "docker" / "debian_root.sh", architecture, root, "python3", "python3-numpy"],
        env={**os.environ, "SOURCES": str(sources)},
        capture_output=True,
        text=True,
    )
    if done.returncode == 100:  # apt's own
        pytest.skip(f"apt cannot fetch packages for {architecture}: {done.stderr.splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    return root


def smoke(python: list[str | Path], package: Path, *options: str | Path) -> subprocess.CompletedProcess[str]:
    """docker/smoke.py with the flipbit in a folder."""
    environment = {**os.environ, "PYTHONPATH": str(package), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run([*python, SMOKE, *options], env=environment, capture_output=True, text=True)


@pytest.mark.slow
@pytest.mark.parametrize("machine", FOREIGN)
def test_a_wheel_for_arm_runs_a_net_and_learns_with_the_bits_of_this_machine(
    machine: str, built: dict[str, Path], tmp_path: Path
) -> None:
    architecture, emulator, cpu = FOREIGN[machine]
    if not shutil.which(emulator):
        pytest.skip(f"needs {emulator}: apt install qemu-user")
    root = debian_root(architecture, tmp_path)
    for name in (machine, platform.machine()):
        with zipfile.ZipFile(wheel_of(name, built)) as archive:
            archive.extractall(tmp_path / name)
    here = smoke([sys.executable], tmp_path / platform.machine())
    assert here.returncode == 0, here.stderr
    (tmp_path / "here.json").write_text(here.stdout)
    done = smoke(
        [emulator, "-cpu", cpu, "-L", root, root / "usr/bin/python3"],
        tmp_path / machine,
        "--expect",
        tmp_path / "here.json",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    facts = json.loads(done.stdout)
    assert facts["here"]["machine"] == machine
    assert "fb_conv_bin_neon" in facts["kernels"]
