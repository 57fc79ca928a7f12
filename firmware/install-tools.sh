#!/usr/bin/env bash
# Install what firmware and its tests need beside Python: cross-compilers, emulators, a debugger, a C compiler.
# On Debian and Ubuntu; elsewhere it says what is missing. Does nothing where everything is there.
set -euo pipefail

# command:package
wanted=(
  cc:gcc arm-none-eabi-gcc:gcc-arm-none-eabi
  riscv64-unknown-elf-gcc:gcc-riscv64-unknown-elf qemu-system-arm:qemu-system-arm
  qemu-system-riscv32:qemu-system-misc gdb-multiarch:gdb-multiarch git:git
)
if [ "${1:-}" = --all ]; then # for every test: other compilers, analysis
  wanted+=(
    clang:clang clang:libclang-rt-14-dev llvm-cov:llvm cppcheck:cppcheck qemu-aarch64:qemu-user cmake:cmake
    aarch64-linux-gnu-gcc:gcc-aarch64-linux-gnu aarch64-linux-gnu-gcc:libc6-dev-arm64-cross
    arm-linux-gnueabihf-gcc:gcc-arm-linux-gnueabihf arm-linux-gnueabihf-gcc:libc6-dev-armhf-cross
    riscv64-unknown-elf-gcc:picolibc-riscv64-unknown-elf
  )
fi
missing=() packages=()
for pair in "${wanted[@]}"; do
  if ! command -v "${pair%%:*}" >/dev/null; then
    missing+=("${pair%%:*}") packages+=("${pair#*:}")
  fi
done
[ ${#missing[@]} -eq 0 ] && exit 0

if ! command -v apt-get >/dev/null; then
  echo "missing: ${missing[*]}. Install them with your system's package manager; boards and their tests need them." >&2
  exit 1
fi
root=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || { echo "missing: ${missing[*]}. As root: apt-get install ${packages[*]}" >&2; exit 1; }
  root=(sudo)
fi
echo "installing ${packages[*]}"
"${root[@]}" apt-get update -qq
DEBIAN_FRONTEND=noninteractive "${root[@]}" apt-get install -qq -y --no-install-recommends "${packages[@]}" >/dev/null
