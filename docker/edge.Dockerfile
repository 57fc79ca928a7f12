# flipbit's runtime for PCs and edge boards: linux/amd64, linux/arm64 (Raspberry Pi 3 and later), linux/arm/v7 (Pi 2).
#
#   docker buildx bake edge
#   docker run --rm -v $PWD:/data flipbit/edge flipbit run net.fbit photos/
#
# Everything is compiled and fetched on the machine that builds; only apt and the test run on the target's CPU.
ARG BASE=debian:bookworm-slim

FROM --platform=$BUILDPLATFORM ${BASE} AS build
ARG BUILDARCH
ARG TARGETARCH
RUN case "$TARGETARCH" in \
      "$BUILDARCH") set -- gcc libc6-dev ;; \
      amd64) set -- gcc-x86-64-linux-gnu libc6-dev-amd64-cross ;; \
      arm64) set -- gcc-aarch64-linux-gnu libc6-dev-arm64-cross ;; \
      arm) set -- gcc-arm-linux-gnueabihf libc6-dev-armhf-cross ;; \
      *) echo "no edge image for $TARGETARCH: amd64, arm64 and arm (v7) only" >&2; exit 1 ;; \
    esac \
 && apt-get update \
 && apt-get install -y --no-install-recommends "$@" python3 python3-pip \
 && rm -rf /var/lib/apt/lists/*
WORKDIR /src

# Pillow reads pictures (it has no wheel for 32-bit Arm, and Debian's brings 70 MB: .ppm, .pgm and .npy only there).
# TFLite's interpreter runs the .tflite of an export beside the .fbit; LiteRT would add 90 MB.
COPY constraints.txt ./
RUN set -- tflite-runtime pillow \
 && case "$TARGETARCH" in \
      amd64) machine=x86_64 ;; \
      arm64) machine=aarch64 ;; \
      arm) machine=armv7l; set -- tflite-runtime ;; \
    esac \
 && echo "$machine" > /machine \
 && pip install --no-cache-dir --no-deps --only-binary=:all: --target /site -c constraints.txt \
      --python-version 3.11 --implementation cp --abi cp311 \
      --platform "manylinux2014_$machine" --platform "manylinux_2_27_$machine" \
      --platform "manylinux_2_28_$machine" --platform "manylinux_2_34_$machine" "$@"

COPY pyproject.toml setup.py MANIFEST.in README.md LICENSE ./
COPY train train
COPY export export
COPY runtime runtime
COPY firmware/core firmware/core
COPY firmware/sim firmware/sim
COPY docker/wheels.py docker/
RUN machine=$(cat /machine) \
 && python3 docker/wheels.py "$machine" -o /wheels \
 && pip install --no-cache-dir --no-deps --target /site --platform "manylinux_2_17_$machine" --only-binary=:all: \
      /wheels/*.whl

# The wheel alone: docker buildx bake wheels
FROM scratch AS wheel
COPY --from=build /wheels/ /

FROM ${BASE} AS edge
RUN apt-get update \
 && apt-get install -y --no-install-recommends python3 python3-numpy \
 && apt-get clean \
 && find /usr/lib/python3/dist-packages/numpy -type d -name tests -prune -exec rm -r {} + \
 && rm -rf /var/lib/apt/lists/* \
 && useradd --uid 1000 --create-home flipbit
COPY --from=build /site/ /usr/local/lib/python3.11/dist-packages/
RUN printf '#!/bin/sh\nexec python3 -m flipbit.runtime "$@"\n' > /usr/local/bin/flipbit \
 && chmod +x /usr/local/bin/flipbit
COPY docker/smoke.py docker/digits.fbit /opt/flipbit/
LABEL org.opencontainers.image.title="flipbit edge" \
      org.opencontainers.image.description="Runs and fine-tunes convolutional nets with one-bit weights" \
      org.opencontainers.image.licenses="Apache-2.0"
USER 1000
WORKDIR /data
HEALTHCHECK --interval=30m --timeout=2m CMD ["python3", "/opt/flipbit/smoke.py"]
CMD ["flipbit", "--help"]

# Fails where a fast kernel and the NumPy reference differ.
FROM edge AS test
ARG QEMU_CPU
RUN python3 /opt/flipbit/smoke.py

FROM edge
