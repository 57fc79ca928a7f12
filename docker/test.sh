#!/usr/bin/env bash
# Builds flipbit's images and runs them: a line for each thing that was tried. Exit status 1 if one failed.
#
#   docker/test.sh                  edge, wheels, firmware, train: all of them
#   docker/test.sh edge firmware    only these; wheels run in the images of edge
#   docker/test.sh --engine 'CMD'   with an engine that CMD starts, gives to the command behind it, and stops
#
# Needs Docker with buildx and, to run Arm on a PC, qemu-user registered in the kernel; a line says SKIPPED, and why,
# where something is not there. PYTHON names a Python that has flipbit: the images must compute what it computes.
# NETWORK=host if builds have no network of their own.
# shellcheck disable=SC2329 # row calls functions by name
set -euo pipefail
cd "$(dirname "$0")/.."

if [ "${1:-}" = --engine ]; then
  read -ra engine <<<"${2:?--engine needs a command}"
  shift 2
  exec "${engine[@]}" docker/test.sh "$@"
fi
for part in "$@"; do
  case $part in
    edge | wheels | firmware | train) ;;
    *) echo "error: no part '$part'; there are: edge wheels firmware train" >&2; exit 2 ;;
  esac
done

PYTHON=${PYTHON:-$([ -x .venv/bin/python ] && echo .venv/bin/python || echo python3)}
NETWORK=${NETWORK:-default}
LIMIT=200 # MB of an edge image
WORK=$(mktemp -d)
trap 'rm -rf "$WORK"' EXIT
chmod 755 "$WORK"
failed=() skipped=()

# row NAME COMMAND…: what it says goes to a log, of which the end is shown when it fails. In a function that is called
# so, set -e has no effect: commands are joined by &&.
row() {
  local title=$1 begin=$SECONDS result=ok
  shift
  if ! "$@" >"$WORK/$title.log" 2>&1; then
    result=FAILED failed+=("$title")
    tail -n 40 "$WORK/$title.log" >&2
  fi
  printf '%-26s %-7s %5d s\n' "$title" "$result" $((SECONDS - begin))
  [ "$result" = ok ]
}

skip() {
  printf '%-26s SKIPPED: %s\n' "$1" "$2"
  skipped+=("$1")
}

# image NAME PLATFORM TAG: as the bake file has it (bake of some versions cannot be told the network)
image() {
  docker buildx build --network "$NETWORK" --platform "$2" ${BASE:+--build-arg "BASE=$BASE"} \
    -t "$3" --load -f "docker/$1.Dockerfile" .
}

run() { docker run --init --rm --network=none "$@"; }

# megabytes PLATFORM TAG: unpacked, as on a board's SD card
megabytes() {
  local container
  container=$(docker create --platform "$1" "$2" true) \
    && docker export "$container" | wc -c | awk '{ printf "%.1f", $1 / 1000000 }' \
    && docker rm "$container" >/dev/null
}

small() {
  megabytes "$1" "$2" >"$WORK/size" \
    && awk -v limit="$LIMIT" '{ exit !($1 > 0 && $1 < limit) }' "$WORK/size"
}

# health WANTED IMAGE OPTION…: what Docker says after the image's own check, which is asked for at once
health() {
  local wanted=$1 tag=$2 container status=starting
  shift 2
  container=$(docker run -d --init --network=none --health-interval=1s --health-retries=1 "$@" "$tag" sleep 600) \
    || return 1
  for _ in $(seq 120); do
    status=$(docker inspect -f '{{.State.Health.Status}}' "$container")
    [ "$status" = starting ] || break
    sleep 1
  done
  docker inspect -f '{{json .State.Health}}' "$container"
  docker rm -f "$container" >/dev/null
  [ "$status" = "$wanted" ]
}

nobody_special() { [ "$(run "$@" id -u)" = 1000 ]; }

LEARN=(--target sim:nucleo-l4r5zi --method sr+bias --steps 5)

# What this machine computes: checksums, and a net that learned from noise with labels
host() {
  "$PYTHON" docker/smoke.py >"$WORK/host.json" \
    && cp docker/digits.fbit "$WORK/" \
    && pictures "$WORK/pictures" \
    && FLIPBIT_FIRMWARE=firmware "$PYTHON" -m flipbit.runtime finetune "$WORK/digits.fbit" --data "$WORK/pictures" \
      "${LEARN[@]}" -o "$WORK/tuned.fbit" \
    && ! cmp -s "$WORK/digits.fbit" "$WORK/tuned.fbit"
}

pictures() {
  "$PYTHON" - "$1" <<'END'
import sys
from pathlib import Path

import numpy as np

random = np.random.default_rng(5)
for i in range(30):
    path = Path(sys.argv[1], str(i % 10), f"{i}.pgm")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"P5\n8 8\n255\n" + random.integers(0, 256, 64, np.uint8).tobytes())
END
}

tflite_file() { "$PYTHON" export/to_tflite.py models/digits-vgg-small/model.h5 -o "$WORK/digits.tflite"; }

# name, platform, CPU to emulate, machine
PLATFORMS=("amd64 linux/amd64 - x86_64" "arm64 linux/arm64 cortex-a53 aarch64" "armv7 linux/arm/v7 cortex-a7 armv7l")
each_platform() {
  local line
  for line in "${PLATFORMS[@]}"; do
    read -r name platform cpu machine <<<"$line"
    here=(--platform "$platform" -v "$WORK:/expect:ro")
    [ "$cpu" = - ] || here+=(-e "QEMU_CPU=$cpu")
    "$@"
  done
}

# Can the image's programs run here at all?
emulated() {
  local said
  said=$(run "${here[@]}" "flipbit/edge:$name" true 2>&1) || ! grep -q "exec format error" <<<"$said"
}
NO_EMULATOR="this machine cannot run programs of that CPU (Debian: apt install qemu-user-static binfmt-support)"

learns() {
  run "${here[@]}" "flipbit/edge:$name" sh -c "flipbit finetune /expect/digits.fbit --data /expect/pictures ${LEARN[*]} \
      -o /tmp/tuned.fbit >&2 && cat /tmp/tuned.fbit" >"$WORK/$name.fbit" \
    && cmp "$WORK/$name.fbit" "$WORK/tuned.fbit"
}

edge() {
  local tag=flipbit/edge:$name
  row "edge-$name-build" image edge "$platform" "$tag" || return 0
  row "edge-$name-small" small "$platform" "$tag" || true
  printf '%26s %s MB\n' "" "$(cat "$WORK/size")"
  emulated || { skip "edge-$name-run" "$NO_EMULATOR"; return 0; }
  row "edge-$name-same-bits" run "${here[@]}" "$tag" python3 /opt/flipbit/smoke.py --expect /expect/host.json || true
  row "edge-$name-learns-same" learns || true
  if [ -e "$WORK/digits.tflite" ]; then
    row "edge-$name-tflite" run "${here[@]}" "$tag" python3 /opt/flipbit/smoke.py --tflite /expect/digits.tflite || true
  else
    skip "edge-$name-tflite" "$PYTHON cannot export (flipbit[train,export])"
  fi
  row "edge-$name-user" nobody_special "${here[@]}" "$tag" || true
  row "edge-$name-healthy" health healthy "$tag" "${here[@]}" || true
  row "edge-$name-sick-is-seen" health unhealthy "$tag" "${here[@]}" \
    -v "$WORK/host.json:/opt/flipbit/digits.fbit:ro" || true
}

wheel() {
  if ! docker image inspect "flipbit/edge:$name" >/dev/null 2>&1; then
    skip "wheel-$name-same-bits" "no image flipbit/edge:$name: docker/test.sh edge wheels"
  elif ! emulated; then
    skip "wheel-$name-same-bits" "$NO_EMULATOR"
  else
    row "wheel-$name-same-bits" run "${here[@]}" "flipbit/edge:$name" sh -c "
      python3 -m zipfile -e /expect/dist/*_$machine.whl /tmp/wheel && export PYTHONPATH=/tmp/wheel &&
      python3 /opt/flipbit/smoke.py --expect /expect/host.json &&
      python3 -c 'import flipbit.runtime as r; assert r.__file__.startswith(\"/tmp/wheel\"), r.__file__'" || true
  fi
}

# As a user has it: what git knows, nothing compiled, owned by user 1000
checkout() {
  mkdir -p "$WORK/checkout" \
    && git ls-files -co --exclude-standard -z | tar -c --null --ignore-failed-read -T - | tar -x -C "$WORK/checkout" \
    && chown -R 1000 "$WORK/checkout"
}

firmware() {
  local tag=flipbit/firmware:test mounted=(-v "$WORK/checkout:/src")
  row firmware-build image firmware linux/amd64 "$tag" || return 0
  printf '%26s %s MB\n' "" "$(megabytes linux/amd64 "$tag")"
  row checkout checkout || return 0
  row firmware-mounted-build run "${mounted[@]}" "$tag" \
    make -C firmware BOARD=microbit MODEL=../docker/digits.fbit || true
  row firmware-mounted-gdb run "${mounted[@]}" "$tag" \
    gdb-multiarch -batch -ex 'disassemble fb_invoke' firmware/build/microbit/flipbit.elf || true
  row firmware-mounted-board run "${mounted[@]}" "$tag" pytest -q tests/firmware/test_boards.py -k microbit || true
  row firmware-all-boards run "$tag" pytest -q tests/firmware/test_boards.py || true
  tail -n 1 "$WORK/firmware-all-boards.log"
  row firmware-same-bits run -v "$WORK:/expect:ro" "$tag" python3 docker/smoke.py --expect /expect/host.json || true
  row firmware-user nobody_special "$tag" || true
  row firmware-healthy health healthy "$tag" || true
}

train() {
  local tag=flipbit/train:test
  row train-build image train linux/amd64 "$tag" || return 0
  printf '%26s %s MB\n' "" "$(megabytes linux/amd64 "$tag")"
  install -d -o 1000 "$WORK/runs"
  row train-trains run -v "$WORK/runs:/src/runs" "$tag" python train/run.py --method bc --epochs 2 -o runs/first || true
  row train-exports run -v "$WORK/runs:/src/runs" "$tag" sh -c \
    "for format in fbit onnx tflite c; do python export/to_\$format.py runs/first/model.h5 || exit 1; done" || true
  row train-verifies run -v "$WORK/runs:/src/runs" -w /src/runs/first "$tag" \
    python /src/export/verify.py model.h5 model.fbit model.onnx model.tflite || true
  grep ' % ' "$WORK/train-verifies.log" | head -n 7 || true
  row train-same-bits run -v "$WORK:/expect:ro" "$tag" python docker/smoke.py --expect /expect/host.json || true
  row train-user nobody_special "$tag" || true
  row train-healthy health healthy "$tag" || true
}

echo "flipbit $(git describe --always --dirty 2>/dev/null || echo '(no git)'), $(date -u '+%Y-%m-%d %H:%M') UTC," \
  "$(uname -sm), $(nproc) cores, load $(cut -d' ' -f1 /proc/loadavg)"
row host host || exit 1
if server=$(docker version -f '{{.Server.Version}}' 2>&1) && docker buildx version >/dev/null 2>&1; then
  echo "Docker $server, $(docker buildx version | cut -d' ' -f2)"
  [ $# -gt 0 ] || set -- edge wheels firmware train
  row bake-file docker buildx bake --print default wheels test || true
elif [ $# -gt 0 ] && [ "$*" != wheels ]; then
  echo "error: $* cannot be tried without Docker and buildx (${server##*$'\n'})" >&2
  exit 2
else
  for part in edge firmware train; do skip $part "no Docker engine with buildx here"; done
  set -- wheels
fi
for part in "$@"; do
  case $part in
    edge)
      row tflite-export tflite_file || true
      each_platform edge
      ;;
    wheels)
      row wheels "$PYTHON" docker/wheels.py -o "$WORK/dist" || continue
      cat "$WORK/wheels.log"
      each_platform wheel
      ;;
    *) "$part" ;;
  esac
done
echo "${#failed[@]} failed${failed[*]:+: ${failed[*]}}; ${#skipped[@]} skipped${skipped[*]:+: ${skipped[*]}}"
[ ${#failed[@]} -eq 0 ]
