"""Compiles the C core into the runtime, and gives it the boards. What is said in pyproject.toml is not repeated here.

The library is plain C without Python's headers, loaded with ctypes: one file serves every Python version, and it can be
cross-compiled by any C compiler (CC).
"""

from __future__ import annotations

import os
import shlex
import shutil
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py
from setuptools.errors import PlatformError

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:  # setuptools before 70.1
    from wheel.bdist_wheel import bdist_wheel

# The core, and the simulated flash that runtime/core/store.py puts under its store.
SOURCES = [*Path("firmware/core").rglob("*"), *Path("firmware/sim").glob("*")]
# The profiles of boards, and where runtime/board/profile.py looks for them outside a checkout.
PROFILES = sorted(Path("firmware/boards").glob("*/board.toml"))
SHIPPED = Path("flipbit/runtime/board/profiles")
# The page of `flipbit serve`, and where runtime/commands/serve.py looks for it.
PAGE = Path("docs/try")
SHIPPED_PAGE = Path("flipbit/runtime/page")


class BuildPackage(build_py):
    """Puts the profiles of boards and the page into the package. An editable install reads them where they are."""

    def _copied(self) -> list[tuple[Path, Path]]:
        """From where to where."""
        if self.editable_mode:
            return []
        library = Path(self.build_lib)
        page = sorted(path for path in PAGE.rglob("*") if path.is_file())
        return [
            *((path, library / SHIPPED / path.parent.name / path.name) for path in PROFILES),
            *((path, library / SHIPPED_PAGE / path.relative_to(PAGE)) for path in page),
        ]

    def run(self) -> None:
        super().run()
        for source, target in self._copied():
            self.mkpath(str(target.parent))
            self.copy_file(str(source), str(target))

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        return [*super().get_outputs(include_bytecode), *(str(target) for _, target in self._copied())]


class BuildCore(build_ext):
    """Names the libraries _core.so and _plan.so, without the tag of a Python version."""

    def get_ext_filename(self, fullname: str) -> str:
        return fullname.replace(".", "/") + ".so"

    def build_extension(self, ext: Extension) -> None:
        command = os.environ.get("CC") or self.compiler.compiler_so[0]
        if not shutil.which(shlex.split(command)[0]):
            raise PlatformError(
                f"flipbit compiles its C core, and there is no C compiler here (looked for {command!r}): install one "
                "(Debian, Ubuntu, Raspberry Pi OS: apt install gcc libc6-dev), or name another in the variable CC"
            )
        if "CC" in os.environ:  # maybe for another CPU: without the flags and folders of this machine's Python
            self.compiler.set_executables(compiler_so=f"{command} -fPIC", linker_so=f"{command} -shared")
            self.compiler.set_library_dirs([])
        super().build_extension(ext)


class CoreWheel(bdist_wheel):
    """A wheel for any Python 3 on one platform."""

    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", super().get_tag()[2]


core = Extension(
    "flipbit.runtime.core._core",
    sources=sorted(str(path) for path in SOURCES if path.suffix == ".c"),
    depends=sorted(str(path) for path in SOURCES if path.suffix == ".h"),
    extra_compile_args=["-std=c99", "-O3", "-g0", "-Wall", "-Wextra"],
)
# The core once more, to plan for boards (runtime/board/plan.py): with their kernels and the size of their pointers.
plan = Extension(
    "flipbit.runtime.core._plan",
    sources=sorted(s for s in core.sources if "firmware/core" in s and not {"x86", "neon"} & set(Path(s).parts)),
    depends=core.depends,
    define_macros=[("FB_PLAN_BOARDS", None)],
    extra_compile_args=["-std=c99", "-O1", "-g0", "-Wall", "-Wextra"],
)
setup(ext_modules=[core, plan], cmdclass={"build_py": BuildPackage, "build_ext": BuildCore, "bdist_wheel": CoreWheel})
