"""The stack that a program must leave to the core is what docs/trust.md states."""

from __future__ import annotations

import importlib.util
import re
import shutil
import sys

import pytest

from flipbit.runtime.board.profile import load_profile
from tests.checkout import ROOT
from tests.samples import sample

spec = importlib.util.spec_from_file_location("stack_depth", ROOT / "firmware/fuzz/stack_depth.py")
assert spec and spec.loader
stack_depth = importlib.util.module_from_spec(spec)
sys.modules["stack_depth"] = stack_depth  # dataclasses look their module up
spec.loader.exec_module(stack_depth)


def stated() -> dict[str, int]:
    """Bytes for each call, from the table in docs/trust.md."""
    rows = re.findall(r"^\| `(fb_\w+)` \| ([\d,]+) \|", (ROOT / "docs/trust.md").read_text(), re.M)
    return {call: int(number.replace(",", "")) for call, number in rows}


def test_every_call_is_stated() -> None:
    assert set(stated()) == {call for calls in stack_depth.CALLS.values() for call in calls}


@pytest.mark.parametrize("header", stack_depth.CALLS)
def test_every_call_stands_in_its_header(header: str) -> None:
    text = (ROOT / "firmware/core/include" / header).read_text()
    for call in stack_depth.CALLS[header]:
        assert re.search(rf"^\w[\w ]*\*?{call}\(", text, re.M), f"{header} has no {call}"


@pytest.mark.parametrize("core", sample(stack_depth.CORES, ("Cortex-M0", "RV32IMAC")))
def test_no_call_takes_more_stack_than_stated(core: str) -> None:
    compiler = stack_depth.CORES[core]
    if not shutil.which(compiler.split()[0]):
        pytest.skip(f"needs {compiler.split()[0]}")
    limits = stated()
    for call, (depth, chain) in stack_depth.depths(compiler).items():
        assert depth <= limits[call], f"{call} takes {depth} bytes of stack, by way of {' → '.join(chain)}"


@pytest.mark.parametrize("board", ["microbit", "hifive1", "netduinoplus2", "mps3-an547"])
def test_the_stack_kept_free_while_a_board_learns_is_enough_for_all_of_its_firmware(board: str) -> None:
    for tool in ("make", f"{load_profile(board).facts['build']['compiler']}gcc"):
        if not shutil.which(tool):
            pytest.skip(f"needs {tool}")
    source = (ROOT / "firmware/app/fb_commands_learn.c").read_text()
    helium, others = map(int, re.findall(r"#define STACK (\d+)u", source))
    depth, chain = stack_depth.firmware_depth(board)
    assert depth <= (helium if board == "mps3-an547" else others), f"{depth} bytes, by way of {' → '.join(chain)}"
    assert any("fb_train" in name for name in chain)  # it is learning that goes deepest


def test_recursion_is_noticed() -> None:
    functions = {
        "a": stack_depth.Function(8, True, {"b"}),
        "b": stack_depth.Function(8, True, {"a"}),
    }
    with pytest.raises(stack_depth.StackError, match="calls itself"):
        stack_depth.deepest("a", functions)


def test_the_deepest_chain_is_added_up() -> None:
    functions = {
        "a": stack_depth.Function(8, True, {"b", "c"}),
        "b": stack_depth.Function(100, True, set()),
        "c": stack_depth.Function(24, True, {"d", "memcpy"}),
        "d": stack_depth.Function(80, True, set()),
    }
    assert stack_depth.deepest("a", functions) == (112, ("a", "c", "d"))
