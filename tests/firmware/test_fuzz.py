"""Whatever bytes the core gets, in an image, a state, a flash or a sound, it refuses them or keeps its promises.

The fuzz targets (firmware/fuzz/fuzz_*.c) hold the promises of docs/trust.md; here they meet their corpora, damaged
images, a short run of the fuzzer and other word sizes. Planted bugs show that they would notice.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.checkout import ROOT
from tests.patience import PATIENCE

CORE = ROOT / "firmware/core"
FUZZ = ROOT / "firmware/fuzz"
CORPUS = {folder.name: sorted(folder.iterdir()) for folder in (FUZZ / "corpus").iterdir()}
# Runs and seconds: whichever end first.
SHORT = {"image": (60_000, 20), "learning": (3_000, 15), "store": (30_000, 10), "audio": (30_000, 5)}


def run(command: list[str | Path], **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, errors="replace", **options)  # type: ignore[call-overload,no-any-return]


def build(target: str, folder: Path, **variables: str | Path) -> Path:
    """One program of firmware/fuzz/Makefile, built in `folder`."""
    program = folder / target
    settings = [f"{name}={value}" for name, value in {"BUILD": folder, "CFLAGS": "-g1 -O1", **variables}.items()]
    made = run(["make", "-s", f"-j{os.cpu_count()}", "-C", FUZZ, program, *settings])
    assert made.returncode == 0, made.stderr[-4000:]
    return program


def compiles(compiler: str, folder: Path, *flags: str) -> bool:
    """Whether a compiler is there and links a program with these flags."""
    if not shutil.which(compiler.split()[0]):
        return False
    source = folder / "probe.c"
    entry = "int LLVMFuzzerTestOneInput(const char *d, unsigned long n) { return d && n > 1; }\n"
    source.write_text(
        "#include <stdlib.h>\n" + (entry if "-fsanitize=fuzzer" in flags else "int main(void) { return 0; }")
    )
    return run([*compiler.split(), *flags, source, "-o", folder / "probe"]).returncode == 0


SANITIZERS = ("-fsanitize=address,undefined",)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz")


@pytest.fixture(scope="module")
def replay(folder: Path) -> Callable[[str], Path]:
    """Makes the program that runs files through a target."""
    for compiler in ("clang", "gcc"):
        if compiles(compiler, folder, *SANITIZERS):
            return lambda target: build(f"replay-{target}", folder, CC=compiler)
    pytest.skip("needs clang or gcc with the address sanitizer (Debian: clang libclang-rt-14-dev)")


@pytest.fixture(scope="module")
def fuzzer(folder: Path) -> Callable[[str], Path]:
    """Makes the fuzzer of a target."""
    if not compiles("clang", folder, "-fsanitize=fuzzer", *SANITIZERS):
        pytest.skip("needs clang with libFuzzer (Debian: clang libclang-rt-14-dev)")
    return lambda target: build(f"fuzzer-{target}", folder)


def fuzz(program: Path, folder: Path, runs: int, seconds: int) -> subprocess.CompletedProcess[str]:
    """A run from the target's corpus with a fixed seed; what it finds stays in `folder`."""
    found = folder / "found"
    found.mkdir(parents=True, exist_ok=True)
    # The peak of memory that libFuzzer reads is also that of the process which started it, and TensorFlow may be in
    # there: limit single allocations instead.
    memory = ["-rss_limit_mb=0", "-malloc_limit_mb=2048"]
    target = program.name.removeprefix("fuzzer-")
    length = 65536 if target == "learning" else 1024  # nets of many channels are long
    limits = [f"-runs={runs}", f"-max_total_time={seconds}", f"-max_len={length}", "-seed=1", f"-timeout={PATIENCE}"]
    corpus = FUZZ / "corpus" / target
    return run([program, *memory, *limits, f"-artifact_prefix={folder}/", found, corpus])


def test_every_target_has_a_corpus_and_a_short_run() -> None:
    targets = {path.stem.removeprefix("fuzz_") for path in FUZZ.glob("fuzz_*.c")}
    assert set(CORPUS) == set(SHORT) == targets


@pytest.mark.parametrize("target", SHORT)
def test_the_corpus_keeps_the_promises(replay: Callable[[str], Path], target: str) -> None:
    result = run([replay(target), *CORPUS[target]])
    assert result.returncode == 0, result.stderr[-4000:]
    assert f"{len(CORPUS[target])} runs" in result.stdout


@pytest.mark.parametrize("name", ["conv-taps-2x4", "projection"])
def test_every_flipped_bit_truncation_and_changed_byte_of_an_image(replay: Callable[[str], Path], name: str) -> None:
    """Flips and truncations are refused; a changed byte whose CRC was repaired is refused or runs."""
    image = FUZZ / "corpus" / "image" / f"{name}.fbit"
    size = image.stat().st_size
    result = run([replay("image"), "--damage", image])
    assert result.returncode == 0, result.stderr[-4000:]
    assert result.stdout.startswith(f"{1 + 8 * size + size + 8 + 256 * size} runs")


@pytest.mark.parametrize("target", SHORT)
def test_a_short_run_of_the_fuzzer_finds_nothing(fuzzer: Callable[[str], Path], folder: Path, target: str) -> None:
    place = folder / f"short-{target}"
    result = fuzz(fuzzer(target), place, *SHORT[target])
    crashes = [path for path in place.iterdir() if path.is_file()]
    report = [result.stderr[-4000:]]
    for path in crashes:
        program = f"build/replay-{target}"
        report.append(f"reproduce: echo {base64.b64encode(path.read_bytes()).decode()} | base64 -d > {path.name}")
        report.append(f"           make -C firmware/fuzz {program} && firmware/fuzz/{program} {path.name}")
    assert result.returncode == 0 and not crashes, "\n".join(report)
    assert "Done" in result.stderr


PLANTED = {  # target, file, what is right, what is not
    "no check of offsets": (
        "image",
        "run/fb_open.c",
        "return at >= start && at <= model->size && size <= model->size - at;",
        "return at >= start || size > 0;",
    ),
    "tensors that overlap": (
        "image",
        "run/fb_blocks.c",
        "placed->size = fb_aligned(size);",
        "placed->size = fb_aligned(size / 2);",
    ),
    "a saved place that is believed": (
        "learning",
        "learn/fb_train_state.c",
        "found = at->head->filter < layer.out.channels;",
        "found = true;",
    ),
    "a length that is believed": (
        "store",
        "store/fb_store.c",
        "&& words[2] <= end - at - overhead(store)",
        "",
    ),
    "a window that is one value too long": (
        "audio",
        "audio/fb_audio.c",
        "(config->window + 1u) / 2 + 1 + *bins",
        "(config->window + 1u) / 2 + *bins",
    ),
}


@pytest.mark.parametrize("bug", PLANTED)
def test_the_fuzzer_finds_a_planted_bug(fuzzer: Callable[[str], Path], tmp_path: Path, bug: str) -> None:
    target, name, right, wrong = PLANTED[bug]
    core = tmp_path / "core"
    shutil.copytree(CORE, core)
    source = (core / name).read_text()
    assert right in source, f"{name} has changed: plant the bug elsewhere"
    (core / name).write_text(source.replace(right, wrong))
    for path in fuzzer(target).parent.glob("*.[oa]"):  # only the changed file is compiled again
        shutil.copy2(path, tmp_path)
    result = fuzz(build(f"fuzzer-{target}", tmp_path, CORE=core), tmp_path, 50_000, 30)
    assert result.returncode != 0
    assert "AddressSanitizer" in result.stderr or "broken promise" in result.stderr


LEARNING = (
    "fb_train.c",
    "fb_train_state.c",
    "fb_train_plan.c",
    "fb_backward.c",
    "fb_update.c",
    "fb_recalibrate.c",
    "fb_moments.c",
)
COVERED = {  # files, and percent of branches: null pointers and flash that fails are for other tests
    "image": (("fb_open.c", "fb_plan.c", "fb_blocks.c", "fb_layer.c"), 84),
    "learning": (LEARNING, 70),
    "store": (("fb_store.c",), 70),
    "audio": (("fb_audio.c", "fb_audio_fft.c", "fb_audio_bands.c", "fb_audio_tables.c"), 70),
}


@pytest.mark.parametrize("target", COVERED)
def test_the_corpus_reaches_nearly_all_of_what_it_is_for(folder: Path, target: str) -> None:
    if not (shutil.which("llvm-cov") and compiles("clang", folder, "-fprofile-instr-generate", "-fcoverage-mapping")):
        pytest.skip("needs clang with coverage and llvm-cov (Debian: clang llvm libclang-rt-14-dev)")
    covered = folder / "coverage"
    covered.mkdir(exist_ok=True)
    program = build(f"replay-{target}", covered, CC="clang", SANITIZE="-fprofile-instr-generate -fcoverage-mapping")
    assert (
        run([program, *CORPUS[target]], env={**os.environ, "LLVM_PROFILE_FILE": str(covered / "raw")}).returncode == 0
    )
    profile = covered / "profile"
    assert run(["llvm-profdata", "merge", "-sparse", covered / "raw", "-o", profile]).returncode == 0
    exported = run(["llvm-cov", "export", "-summary-only", program, f"-instr-profile={profile}"])
    files = {Path(file["filename"]).name: file["summary"] for file in json.loads(exported.stdout)["data"][0]["files"]}
    names, least = COVERED[target]
    for name in names:
        lines, branches = files[name]["lines"]["percent"], files[name]["branches"]["percent"]
        assert lines >= 95 and branches >= least, f"{name}: {lines:.1f} % of lines, {branches:.1f} % of branches"


MACHINES = {
    "x86, 32 bits": ("clang -m32", "-fsanitize=address,undefined -fno-sanitize-recover=all", "", ""),
    "Arm, 32 bits": ("arm-linux-gnueabihf-gcc", "", "-static", "qemu-arm"),
    "Arm, 64 bits": ("aarch64-linux-gnu-gcc", "", "-static", "qemu-aarch64"),
}


@pytest.mark.parametrize("machine", MACHINES)
def test_the_corpus_keeps_the_promises_on_another_machine(tmp_path: Path, machine: str) -> None:
    compiler, sanitize, link, emulator = MACHINES[machine]
    if not compiles(compiler, tmp_path, *sanitize.split(), *link.split()):
        pytest.skip(f"needs {compiler} with its libraries")
    if emulator and not shutil.which(emulator):
        pytest.skip(f"needs {emulator} (Debian: qemu-user)")
    for target, files in CORPUS.items():
        program = build(f"replay-{target}", tmp_path, CC=compiler, SANITIZE=sanitize, LDFLAGS=link)
        result = run([*([emulator] if emulator else []), program, *files])
        assert result.returncode == 0, f"{target}: {result.stderr[-4000:]}"


def test_the_generator_gives_the_bytes_of_the_corpus(tmp_path: Path) -> None:
    made = run([sys.executable, FUZZ / "make_corpus.py", tmp_path])
    assert made.returncode == 0, made.stderr
    for path in tmp_path.glob("*/*"):
        assert path.read_bytes() == (FUZZ / "corpus" / path.relative_to(tmp_path)).read_bytes(), path.name
