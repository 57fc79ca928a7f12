#!/usr/bin/env bash
# Install what flipbit needs beside Python, from the packages of Debian or Ubuntu:
#
#   install-tools.sh --compiler   a C compiler with its headers (the package compiles its C core)
#   install-tools.sh              that, cross-compilers with their C libraries, emulators and a debugger (boards)
#   install-tools.sh --all        that, and what the optional tests use: other compilers, analysis, other CPUs
#
# Does nothing where everything is there. Elsewhere it says what is missing, and ends with status 1.
set -euo pipefail

case "${1:-}" in
  --compiler) level=1 ;;
  "") level=2 ;;
  --all) level=3 ;;
  -h | --help) sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0"; exit 0 ;;
  *) echo "install-tools.sh: unknown option $1 (there are --compiler and --all)" >&2; exit 2 ;;
esac

has() { command -v "$1" >/dev/null; }
# Debian's compilers come without headers: what counts is whether a program that uses the C library compiles.
# No pipe: a compiler that ends before it has read everything would make the writer fail, at times.
compiles() { has "$1" && "$@" -x c -E - <<<'#include <string.h>' >/dev/null 2>&1; }
links() { has "$1" && "$@" -x c - -o /dev/null <<<'int main(void){return 0;}' >/dev/null 2>&1; }

missing=() packages=()
want() { # want LEVEL PACKAGE CHECK...
  if [ "$1" -le "$level" ] && ! "${@:3}"; then
    missing+=("$2") packages+=("$2")
  fi
}
want 1 gcc has cc
want 1 libc6-dev compiles cc
want 2 git has git
want 2 gcc-arm-none-eabi has arm-none-eabi-gcc
want 2 libnewlib-arm-none-eabi compiles arm-none-eabi-gcc
want 2 gcc-riscv64-unknown-elf has riscv64-unknown-elf-gcc
want 2 picolibc-riscv64-unknown-elf compiles riscv64-unknown-elf-gcc --specs=picolibc.specs
want 2 qemu-system-arm has qemu-system-arm
want 2 qemu-system-misc has qemu-system-riscv32
want 2 gdb-multiarch has gdb-multiarch
want 3 g++ has g++
want 3 clang has clang
want 3 libclang-rt-dev links clang -fsanitize=address
if [ "$(uname -m)" = x86_64 ]; then # for 32 bits
  want 3 libc6-dev-i386 links clang -m32
  want 3 lib32gcc-dev links clang -m32
fi
want 3 llvm has llvm-cov
want 3 lld has wasm-ld
want 3 binaryen has wasm-opt
want 3 nodejs has node
want 3 chromium has chromium
want 3 cppcheck has cppcheck
want 3 cmake has cmake
want 3 qemu-user has qemu-aarch64
want 3 gcc-aarch64-linux-gnu has aarch64-linux-gnu-gcc
want 3 libc6-dev-arm64-cross compiles aarch64-linux-gnu-gcc
want 3 gcc-arm-linux-gnueabihf has arm-linux-gnueabihf-gcc
want 3 libc6-dev-armhf-cross compiles arm-linux-gnueabihf-gcc
[ ${#missing[@]} -eq 0 ] && exit 0

if ! has apt-get; then
  echo "not installed: ${missing[*]} (Debian's names). Install them with this system's package manager." >&2
  exit 1
fi
root=()
if [ "$(id -u)" -ne 0 ]; then
  has sudo || { echo "not installed: ${missing[*]}. As root: apt-get install ${packages[*]}" >&2; exit 1; }
  root=(sudo)
fi
echo "installing ${packages[*]}"
said=$("${root[@]}" apt-get update -qq 2>&1 </dev/null) || { echo "$said" >&2; exit 1; }
# Libraries of compilers carry the compiler's version in their package's name. No pipe here either: a reader that ends
# early would make apt-cache fail, at times, and with it this script.
version() {
  local depends
  depends=$(apt-cache depends "$1")
  [[ $depends =~ $1-([0-9]+) ]] || { echo "install-tools.sh: apt-cache knows no version of $1" >&2; return 1; }
  echo "${BASH_REMATCH[1]}"
}
for i in "${!packages[@]}"; do
  case "${packages[i]}" in
    libclang-rt-dev) packages[i]="libclang-rt-$(version clang)-dev" ;;
    lib32gcc-dev) packages[i]="lib32gcc-$(version gcc)-dev" ;;
  esac
done
install=(env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "${packages[@]}")
said=$("${root[@]}" "${install[@]}" 2>&1 </dev/null) || { echo "$said" >&2; exit 1; }
