"""flipbit.d.ts says what flipbit.js has: every name, and with the TypeScript compiler every type."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.checkout import ROOT
from tests.patience import PATIENCE

PACKAGE = ROOT / "firmware" / "wasm"
HERE = Path(__file__).parent
DIGITS = ROOT / "models" / "digits-vgg-small" / "model.fbit"
STRICT = (
    "--strict --noUncheckedIndexedAccess --target es2022 --lib es2022,dom --module nodenext "
    "--moduleResolution nodenext --skipLibCheck false --types node"
).split()
# What Node has and the program uses: its own types are another package.
NODE_TYPES = """declare module "node:fs" { export function readFileSync(path: string): Uint8Array; }
declare const process: { argv: string[] };
"""


def run(*command: object) -> str:
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def declared() -> dict[str, list[str]]:
    """Names of members by class or interface, and the exports, as flipbit.d.ts has them."""
    text = re.sub(r"/\*\*.*?\*/", "", (PACKAGE / "flipbit.d.ts").read_text(encoding="utf-8"), flags=re.DOTALL)
    found = {
        name: sorted(set(re.findall(r"^  (?:readonly )?(\w+)\??[:(]", body, re.MULTILINE)) - {"constructor"})
        for name, body in re.findall(r"export (?:class|interface) (\w+)[^{]*\{(.*?)\n\}", text, re.DOTALL)
    }
    found["exports"] = sorted(re.findall(r"export (?:class|const|function) (\w+)", text))
    return found


def test_the_types_name_what_the_module_has() -> None:
    if not shutil.which("node"):
        pytest.skip("needs node")
    real: dict[str, list[str]] = json.loads(run("node", HERE / "members.mjs", PACKAGE / "flipbit.js", DIGITS))
    given = declared()
    assert len(given["Net"]) > 15
    assert {name: given[name] for name in real} == real


def test_a_program_in_typescript_compiles_and_runs(tmp_path: Path) -> None:
    for tool in ("node", "tsc"):
        if not shutil.which(tool):
            pytest.skip(f"needs {tool}")
    shutil.copy(HERE / "uses.ts", tmp_path)
    shutil.copytree(PACKAGE, tmp_path / "node_modules" / "flipbit", ignore=shutil.ignore_patterns("*.c", "Makefile"))
    types = tmp_path / "node_modules" / "@types" / "node"
    types.mkdir(parents=True)
    (types / "index.d.ts").write_text(NODE_TYPES, encoding="utf-8")
    (types / "package.json").write_text('{"name": "@types/node", "version": "1.0.0", "types": "index.d.ts"}')
    (tmp_path / "package.json").write_text('{"type": "module"}')
    done = subprocess.run(
        ["tsc", *STRICT, "uses.ts"], cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert done.returncode == 0, done.stdout
    assert "refused with FB_ERR_LENGTH" in run("node", tmp_path / "uses.js", DIGITS)
