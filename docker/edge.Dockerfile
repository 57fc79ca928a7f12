# flipbit's runtime for PCs and edge boards: linux/amd64, linux/arm64 (Raspberry Pi 3 and later), linux/arm/v7 (Pi 2).
#
#   docker buildx bake edge
#   docker run --rm -v $PWD:/data flipbit/edge flipbit run net.fbit photos/
#
# Everything is fetched, unpacked and compiled on the machine that builds; only the test stage runs on the target's CPU.
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

# Debian's packages for the target, only those the runtime needs; Python compiled ahead, as a user cannot do it there.
WORKDIR /src
COPY docker/debian_root.sh docker/
RUN if [ "$TARGETARCH" = arm ]; then debian=armhf; else debian=$TARGETARCH; fi \
 && docker/debian_root.sh "$debian" /fs base-files coreutils dash findutils libc-bin python3 python3-numpy python3-pil \
 && python3 -m compileall -q --invalidation-mode unchecked-hash -s /fs /fs/usr/lib/python3* \
 && printf 'root:x:0:0:root:/root:/bin/sh\nflipbit:x:1000:1000::/home/flipbit:/bin/sh\n' > /fs/etc/passwd \
 && printf 'root:x:0:\ndialout:x:20:\nflipbit:x:1000:\n' > /fs/etc/group \
 && install -d -o 1000 -g 1000 /fs/home/flipbit /fs/data \
 && install -d -m 1777 /fs/tmp

# TFLite's interpreter runs the .tflite of an export beside the .fbit; LiteRT is 56 MB larger, and has no wheel for arm.
COPY constraints.txt ./
RUN case "$TARGETARCH" in amd64) machine=x86_64 ;; arm64) machine=aarch64 ;; arm) machine=armv7l ;; esac \
 && echo "$machine" > /machine \
 && pip install --no-cache-dir --no-deps --only-binary=:all: --target /site -c constraints.txt \
      --python-version 3.11 --implementation cp --abi cp311 \
      --platform "manylinux2014_$machine" --platform "manylinux_2_34_$machine" tflite-runtime

COPY pyproject.toml setup.py MANIFEST.in README.md LICENSE ./
COPY train train
COPY export export
COPY runtime runtime
COPY studies studies
COPY firmware/core firmware/core
COPY firmware/sim firmware/sim
COPY firmware/boards firmware/boards
COPY docs/try docs/try
COPY docker/wheels.py docker/
RUN machine=$(cat /machine) \
 && python3 docker/wheels.py "$machine" -o /wheels \
 && pip install --no-cache-dir --no-deps --target /site --platform "manylinux_2_17_$machine" --only-binary=:all: \
      /wheels/*.whl \
 && rm -rf /site/bin \
 && find /site -name __pycache__ -prune -exec rm -r {} + \
 && python3 -m compileall -q --invalidation-mode unchecked-hash -s /site -p /usr/local/lib/python3.11/dist-packages /site \
 && printf '#!/bin/sh\nexec python3 -m flipbit.runtime "$@"\n' > /flipbit \
 && chmod 755 /flipbit

# The wheel alone: docker buildx bake wheels
FROM scratch AS wheel
COPY --from=build /wheels/ /

FROM scratch AS edge
COPY --from=build /fs/ /
COPY --from=build /site/ /usr/local/lib/python3.11/dist-packages/
COPY --from=build /flipbit /usr/local/bin/
COPY docker/smoke.py docker/digits.fbit /opt/flipbit/
LABEL org.opencontainers.image.title="flipbit edge" \
      org.opencontainers.image.description="Runs and fine-tunes convolutional nets with one-bit weights" \
      org.opencontainers.image.licenses="Apache-2.0"
ENV PATH=/usr/local/bin:/usr/bin:/bin \
    LANG=C.UTF-8
USER 1000
WORKDIR /data
HEALTHCHECK --interval=30m --timeout=2m CMD ["python3", "/opt/flipbit/smoke.py"]
CMD ["flipbit", "--help"]

# Fails where a fast kernel and the NumPy reference differ.
FROM edge AS test
ARG QEMU_CPU
RUN python3 /opt/flipbit/smoke.py \
 && python3 -c 'import PIL.Image, tflite_runtime.interpreter'

FROM edge
