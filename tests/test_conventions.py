"""What all tests keep to."""

from __future__ import annotations

import ast
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import account, remedy

TESTS = Path(__file__).parent
LEAST = 300  # seconds
WAITING = {"run", "communicate", "wait", "check_output", "check_call", "call"}


def test_no_test_gives_another_process_less_than_five_minutes() -> None:
    short = []
    for path in sorted(TESTS.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in WAITING:
                given = [k.value for k in node.keywords if k.arg == "timeout" and isinstance(k.value, ast.Constant)]
                short += [f"{path.name}:{node.lineno}" for value in given if value.value and value.value < LEAST]
    assert short == [], "use tests.patience.PATIENCE"


def says_nothing(test: ast.expr) -> bool:
    """Whether an assert of this passes, or may pass, whatever was computed: ``x == y if z else True``, ``(x, "why")``,
    ``x or True``, ``(f(x) for x in xs)``. A condition belongs into an if around the assert."""
    if isinstance(test, ast.BoolOp):
        return any(says_nothing(value) for value in test.values)
    if isinstance(test, ast.UnaryOp):
        return says_nothing(test.operand)
    always = (ast.IfExp, ast.Tuple, ast.Constant, ast.JoinedStr, ast.GeneratorExp, ast.Lambda)
    return isinstance(test, always)


def test_every_assert_can_fail() -> None:
    hollow = []
    for path in sorted(TESTS.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Assert) and says_nothing(node.test):
                hollow.append(f"{path.relative_to(TESTS)}:{node.lineno}: {ast.unparse(node)}")
    assert hollow == []


@pytest.mark.parametrize(
    ("text", "hollow"),
    [
        ("x == 1 if y else True", True),
        ("(x == 1, 'why')", True),
        ("x or True", True),
        ("not False", True),
        ("'text'", True),
        ("f'{x}'", True),
        ("(x > 1 for x in y)", True),
        ("lambda: x", True),
        ("x == (1 if y else 2)", False),
        ("all(x > 1 for x in y)", False),
        ("x and not y or z == (1, 2)", False),
    ],
)
def test_an_assert_that_cannot_fail_is_known(text: str, hollow: bool) -> None:
    assert says_nothing(ast.parse(text, mode="eval").body) == hollow


def test_reasons_for_skipping_are_counted_under_the_command_that_helps() -> None:
    reasons = ["needs clang", "takes long", "needs clang", "this CPU has no AVX2", "set FLIPBIT_DATA to the folder"]
    assert account(reasons) == [
        "To run them: make test-all",
        "      2  needs clang",
        "      1  takes long",
        f"To run them: {remedy('FLIPBIT_DATA')}",
        "      1  set FLIPBIT_DATA to the folder",
        "Nothing to install makes these run here:",
        "      1  this CPU has no AVX2",
    ]


@pytest.mark.parametrize("workers", ["0", "1"])
def test_a_run_ends_with_what_it_skipped_and_the_command_that_runs_it(workers: str, tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text((TESTS / "conftest.py").read_text(encoding="utf-8"), encoding="utf-8")
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = slow\n", encoding="utf-8")
    (tmp_path / "test_module.py").write_text("import pytest\npytest.importorskip('no_such_module')\n", encoding="utf-8")
    (tmp_path / "test_some.py").write_text(
        "import pytest\n"
        "@pytest.mark.slow\ndef test_slow(): pass\n"
        "def test_tool(): pytest.skip('needs a-tool')\n",
        encoding="utf-8",
    )  # fmt: skip
    command = [sys.executable, "-m", "pytest", "-q", "-n", workers, "-p", "no:cacheprovider"]
    said = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True).stdout
    for line in ("3 skipped", "To run them: make test-all", "1  takes long", "1  needs a-tool", "no_such_module"):
        assert line in said, said
    every = subprocess.run([*command, "--slow"], cwd=tmp_path, capture_output=True, text=True).stdout
    assert "1 passed, 2 skipped" in every, every


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP], ids=lambda number: number.name)
def test_signals_reach_the_children_of_a_run_in_the_background(number: signal.Signals) -> None:
    assert signal.getsignal(number) is not signal.SIG_IGN
