"""Who may import whom: runtime is the ground, train and export stand on it, studies on all of them.

Every import counts, also one inside a function, and a module that is only named in a string
(``import_module``, ``runpy``, :class:`flipbit.runtime.commands.verb.Verb`).
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.checkout import ROOT
from tests.nets.small_nets import small_image

# Prefixes of modules that the files of a folder may import.
RULE = {
    "runtime": ("flipbit.runtime",),
    "train": ("flipbit.runtime", "flipbit.train"),
    "export": ("flipbit.runtime", "flipbit.export", "flipbit.train.nets.model_file"),  # what opens models
    "studies": ("flipbit.runtime", "flipbit.export", "flipbit.train", "flipbit.studies"),
    "firmware": ("flipbit.runtime", "flipbit.export"),
    "docker": ("flipbit.runtime", "flipbit.export"),
}
# What the runtime imports beside the standard library: NumPy, and where a verb needs it, what that verb needs.
ALWAYS = {"numpy"}
LAZILY = {"PIL", "serial", "matplotlib", "sklearn", "shtab", "tomli"}  # tomli: TOML for Python 3.10
MODULE = re.compile(r"flipbit\.(runtime|train|export|studies)(\.\w+)*(:\w+)?")


@dataclass(frozen=True)
class Import:
    path: str
    line: int
    module: str
    lazy: bool

    def __str__(self) -> str:
        return f"{self.path}:{self.line} imports {self.module}"


def imports(root: Path, path: Path) -> Iterator[Import]:
    """What a file imports, or names as a module."""
    name = path.relative_to(root).as_posix()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    inside = {id(each) for node in ast.walk(tree) if _a_function(node) for each in ast.walk(node)}
    typing = {id(each) for node in ast.walk(tree) if _for_types(node) for each in ast.walk(node)}
    package = [] if name.startswith(("firmware/", "docker/")) else ["flipbit", *path.relative_to(root).parts[:-1]]
    for node in ast.walk(tree):
        found: list[str] = []
        if isinstance(node, ast.Import):
            found = [each.name for each in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) + 1 - node.level] if node.level else []
            home = ".".join([*above, *filter(None, [node.module])])
            found = [f"{home}.{each.name}" for each in node.names] if home == "flipbit" else [home]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and MODULE.fullmatch(node.value):
            found = [node.value.partition(":")[0]]
        elif isinstance(node, ast.JoinedStr) and isinstance(node.values[0], ast.Constant):  # f"flipbit.train.{name}"
            start = str(node.values[0].value)
            found = [start.rstrip(".")] if re.fullmatch(r"flipbit(\.\w+)+\.", start) else []
        for module in found:
            yield Import(name, node.lineno, module, id(node) in inside or id(node) in typing)


def _a_function(node: ast.AST) -> bool:
    return isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))


def _for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def all_imports(root: Path, folder: str) -> list[Import]:
    paths = sorted(path for path in (root / folder).rglob("*.py") if "build" not in path.parts)
    return [found for path in paths for found in imports(root, path)]


def upwards(root: Path, folder: str) -> list[str]:
    """Imports of flipbit that the rule does not allow."""
    allowed = RULE[folder]
    return [
        str(found)
        for found in all_imports(root, folder)
        if found.module.partition(".")[0] == "flipbit"
        and not any(f"{found.module}.".startswith(f"{prefix}.") for prefix in allowed)
    ]


def foreign(root: Path, folder: str, lazy: bool) -> set[str]:
    """Packages that are neither flipbit nor of the standard library."""
    tops = {found.module.partition(".")[0] for found in all_imports(root, folder) if found.lazy == lazy}
    return tops - set(sys.stdlib_module_names) - {"flipbit"}


@pytest.mark.parametrize("folder", RULE)
def test_imports_go_downwards(folder: str) -> None:
    assert all_imports(ROOT, folder), "no imports found: the walk is broken"
    assert upwards(ROOT, folder) == []


def test_the_runtime_imports_numpy_and_else_only_where_a_verb_needs_it() -> None:
    assert foreign(ROOT, "runtime", lazy=False) == ALWAYS
    assert foreign(ROOT, "runtime", lazy=True) <= ALWAYS | LAZILY


@pytest.mark.parametrize(
    "line",
    [
        "from flipbit.studies import engines",
        "from flipbit import studies",
        "import flipbit.train.loop",
        "from ..train import loop",
        "def f():\n    from flipbit.export.graph import Graph",
        "import_module('flipbit.studies.learning')",
        "runpy.run_module('flipbit.studies.learning', run_name='__main__')",
        "import_module(f'flipbit.train.theory.{name}')",
        "VERB = Verb('flipbit.train.commands.train')",
    ],
)
def test_an_import_upwards_is_found(line: str, tmp_path: Path) -> None:
    (tmp_path / "runtime").mkdir()
    (tmp_path / "runtime/fine.py").write_text("import numpy\nfrom flipbit.runtime import errors\nfrom . import fine\n")
    assert upwards(tmp_path, "runtime") == []
    (tmp_path / "runtime/bad.py").write_text(f"{line}\n")
    (found,) = upwards(tmp_path, "runtime")
    assert found.startswith("runtime/bad.py:")


def test_a_package_that_the_runtime_may_not_need_is_found(tmp_path: Path) -> None:
    (tmp_path / "runtime").mkdir()
    (tmp_path / "runtime/a.py").write_text("import PIL\ndef f():\n    import onnx.helper\n")
    assert foreign(tmp_path, "runtime", lazy=False) == {"PIL"}
    assert foreign(tmp_path, "runtime", lazy=True) == {"onnx"}


# ---- as it runs ----

REFUSING = """
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {refused!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Refuse())
from flipbit.runtime.commands.cli import main
sys.exit(main(sys.argv[1:]))
"""
HEAVY = {
    *LAZILY, "tensorflow", "tf_keras", "keras", "larq", "onnx", "onnxruntime", "flatbuffers", "ai_edge_litert", "torch",
    "rich", "h5py", "scipy", "pandas",
}  # fmt: skip


def flipbit_without(refused: set[str], *words: str) -> subprocess.CompletedProcess[str]:
    """The command where packages are not installed."""
    return subprocess.run(
        [sys.executable, "-c", REFUSING.format(refused=refused), *words], capture_output=True, text=True
    )


def test_info_needs_numpy_only(tmp_path: Path) -> None:
    (tmp_path / "m.fbit").write_bytes(small_image())
    done = flipbit_without(HEAVY, "info", str(tmp_path / "m.fbit"))
    assert done.returncode == 0, done.stderr
    assert "conv0" in done.stdout
    assert flipbit_without({"numpy"}, "info", str(tmp_path / "m.fbit")).returncode != 0  # the refusal works


def test_the_list_of_verbs_needs_numpy_only() -> None:
    done = flipbit_without(HEAVY)
    assert done.returncode == 0, done.stderr
    assert "flipbit train" in done.stdout and "flipbit export" in done.stdout


@pytest.mark.parametrize(
    ("words", "extras"),
    [
        (["train", "--method", "bc", "-o", "RUN"], "train"),
        (["reproduce", "toy", "-o", "RUN"], "train"),
        (["export", "MODELS/digits-vgg-small/model.h5", "-o", "RUN.fbit"], "train,export"),
        (["verify", "MODELS/digits-vgg-small/model.h5", "MODELS/digits-vgg-small/model.fbit"], "train,export"),
        (["show", "MODELS/digits-vgg-small/model.fbit"], "train,export"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_a_verb_whose_packages_are_missing_says_what_to_install(words: list[str], extras: str, tmp_path: Path) -> None:
    words = [w.replace("RUN", str(tmp_path / "run")).replace("MODELS", str(ROOT / "models")) for w in words]
    done = flipbit_without(HEAVY, *words)
    assert done.returncode == 2, done.stderr
    (said,) = done.stderr.splitlines()
    assert re.fullmatch(rf"error: \w+ is not installed here: pip install 'flipbit\[{extras}\]'", said)


# ---- one of each ----


def calls(name: str) -> set[str]:
    """Files of the packages in which a function of this name is called on something (``os.replace``)."""
    found = set()
    for folder in ("runtime", "train", "export", "studies"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Call) and ast.unparse(node.func) == name:
                    found.add(path.relative_to(ROOT).as_posix())
    return found


def test_files_are_replaced_in_one_place() -> None:
    assert calls("os.replace") | calls("os.rename") == {"runtime/files.py"}


def test_errors_that_users_see_have_one_root() -> None:
    inside = {"FlatPickleError", "FrameError"}  # caught where they arise
    inside |= {
        "ProfileError",
        "NoBoardError",
    }  # of board_toml.py, which make runs alone; profile.py turns them into others
    bases: dict[str, set[str]] = {}
    for folder in ("runtime", "train", "export", "studies"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ClassDef) and node.name.endswith("Error"):
                    bases[node.name] = {ast.unparse(base).rpartition(".")[2] for base in node.bases}

    def rooted(name: str) -> bool:
        return name == "FlipbitError" or any(rooted(base) for base in bases.get(name, ()))

    assert {"InputError", "ExportError", "BoardError"} <= set(bases)
    assert [name for name in bases if not rooted(name) and name not in inside] == []


STUBS = {
    "'.[train]'": ("train/run.py", "train/reproduce.py", "train/bench.py"),
    "'.[train,export]'": (
        "export/to_fbit.py", "export/to_onnx.py", "export/to_tflite.py", "export/to_c.py", "export/verify.py",
        "export/show.py",
    ),
    ".": ("runtime/finetune.py", "runtime/study.py"),
}  # fmt: skip


@pytest.mark.parametrize(("what", "script"), [(what, script) for what, scripts in STUBS.items() for script in scripts])
def test_scripts_say_in_the_same_words_that_flipbit_is_not_installed(what: str, script: str) -> None:
    done = subprocess.run([sys.executable, "-S", "-E", str(ROOT / script)], capture_output=True, text=True)
    assert done.returncode == 1
    said = f"flipbit is not installed here; run: pip install -c constraints.txt -e {what} (or: make setup)\n"
    assert done.stderr == said


def test_no_script_is_left_out() -> None:
    scripts = {
        path.relative_to(ROOT).as_posix()
        for folder in ("train", "export", "runtime")
        for path in (ROOT / folder).glob("*.py")
        if '__name__ == "__main__"' in path.read_text(encoding="utf-8")
    }
    assert scripts == {script for scripts in STUBS.values() for script in scripts}
