#!/usr/bin/env bash
# Builds flipbit's images and runs them: a line for each thing that was tried. Exit status 1 if one failed.
#
#   docker/test.sh                  edge, wheels, firmware, train: all of them
#   docker/test.sh edge firmware    only these; wheels run in the images of edge
#   docker/test.sh --engine 'CMD'   with an engine that CMD starts, gives to the command behind it, and stops
#
# Needs Docker with buildx and, for Arm on a PC, qemu-user registered in the kernel. PYTHON names a Python that has
# flipbit: the images must compute what it computes. NETWORK=host if builds have no network of their own.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ "${1:-}" = --engine ]; then
  read -ra engine <<<"${2:?--engine needs a command}"
  shift 2
  exec "${engine[@]}" docker/test.sh "$@"
fi
[ $# -gt 0 ] || set -- edge wheels firmware train
for part in "$@"; do
  case $part in
    edge | wheels | firmware | train) ;;
    *) echo "error: no part '$part'; there are: edge wheels firmware train" >&2; exit 2 ;;
  esac
done

PYTHON=${PYTHON:-$([ -x .venv/bin/python ] && echo .venv/bin/python || echo python3)}
NETWORK=${NETWORK:-default}
LIMIT=200 # MB of an edge image
LOGS=$(mktemp -d)
chmod 755 "$LOGS"
status=0

# row NAME COMMAND…: what it says goes to a log, which is shown when it fails
row() {
  local name=$1 begin=$SECONDS result=ok
  shift
  if ! "$@" >"$LOGS/$name.log" 2>&1; then
    result=FAILED status=1
    tail -n 40 "$LOGS/$name.log" >&2
  fi
  printf '%-26s %-7s %5d s\n' "$name" "$result" $((SECONDS - begin))
}

# image NAME PLATFORM TAG: as the bake file has it (bake of some versions cannot be told the network)
image() {
  docker buildx build --network "$NETWORK" --platform "$2" -t "$3" --load -f "docker/$1.Dockerfile" .
}

run() { docker run --init --rm --network=none "$@"; }

# unpacked, as on a board's SD card
megabytes() {
  local container
  container=$(docker create --platform "$1" "$2" true)
  docker export "$container" | wc -c | awk '{ printf "%d", $1 / 1000000 }'
  docker rm "$container" >/dev/null
}

# the whole image counts; the base's share is printed because bases differ
small() {
  local all base
  all=$(megabytes "$1" "$2")
  base=$(megabytes "$1" "${BASE:-debian:bookworm-slim}")
  echo "$all MB, $base of them the base" | tee "$LOGS/size"
  [ "$all" -lt "$LIMIT" ]
}

# name, platform, CPU to emulate, machine
PLATFORMS=("amd64 linux/amd64 - x86_64" "arm64 linux/arm64 cortex-a53 aarch64" "armv7 linux/arm/v7 cortex-a7 armv7l")
each_platform() {
  local line
  for line in "${PLATFORMS[@]}"; do
    read -r name platform cpu machine <<<"$line"
    here=(--platform "$platform" -v "$LOGS:/expect:ro")
    [ "$cpu" = - ] || here+=(-e "QEMU_CPU=$cpu")
    "$@"
  done
}

edge() {
  row "edge-$name-build" image edge "$platform" "flipbit/edge:$name"
  row "edge-$name-same-bits" run "${here[@]}" "flipbit/edge:$name" python3 /opt/flipbit/smoke.py --expect /expect/host.json
  row "edge-$name-small" small "$platform" "flipbit/edge:$name"
  printf '%26s %s\n' "" "$(cat "$LOGS/size")"
}

wheel() {
  row "wheel-$name-same-bits" run "${here[@]}" "flipbit/edge:$name" sh -c "
    python3 -m zipfile -e /expect/dist/*_$machine.whl /tmp/wheel &&
    PYTHONPATH=/tmp/wheel python3 /opt/flipbit/smoke.py --expect /expect/host.json &&
    PYTHONPATH=/tmp/wheel python3 -c 'import flipbit.runtime as r; assert r.__file__.startswith(\"/tmp/wheel\"), r.__file__'"
}

row host "$PYTHON" docker/smoke.py
cp "$LOGS/host.log" "$LOGS/host.json"
row bake-file docker buildx bake --print default wheels test
for part in "$@"; do
  case $part in
    edge)
      each_platform edge
      ;;
    wheels)
      row wheels "$PYTHON" docker/wheels.py -o "$LOGS/dist"
      cat "$LOGS/wheels.log"
      each_platform wheel
      ;;
    firmware)
      row firmware-build image firmware linux/amd64 flipbit/firmware:test
      row firmware-mounted-microbit run -v "$PWD:/src:ro" flipbit/firmware:test \
        make -C firmware BUILD=/tmp/build BOARD=microbit MODEL=../docker/digits.fbit
      row firmware-all-boards run flipbit/firmware:test pytest -q tests/firmware/test_boards.py
      row firmware-same-bits run -v "$LOGS:/expect:ro" flipbit/firmware:test python3 docker/smoke.py --expect /expect/host.json
      printf '%26s %s MB\n' "" "$(megabytes linux/amd64 flipbit/firmware:test)"
      ;;
    train)
      row train-build image train linux/amd64 flipbit/train:test
      row train-and-export run flipbit/train:test sh -c "
        python train/run.py --method bc --epochs 2 -o /tmp/run && python export/to_fbit.py /tmp/run/model.h5"
      row train-same-bits run -v "$LOGS:/expect:ro" flipbit/train:test python docker/smoke.py --expect /expect/host.json
      printf '%26s %s MB\n' "" "$(megabytes linux/amd64 flipbit/train:test)"
      ;;
  esac
done
rm -rf "$LOGS"
exit $status
