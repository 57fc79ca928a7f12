# Compilers, emulators and debugger for flipbit's boards: Arm Cortex-M and RISC-V.
#
#   docker buildx bake firmware
#   docker run --rm -v $PWD:/src flipbit/firmware make -C firmware BOARD=microbit MODEL=../docker/digits.fbit
#   docker run --rm flipbit/firmware pytest tests/firmware/test_boards.py
#
# /src holds the sources the image was made with; mount your own over them.
ARG BASE=debian:bookworm-slim

FROM ${BASE} AS firmware
RUN apt-get update \
 && apt-get install -y --no-install-recommends \
      gcc libc6-dev make python3 python3-venv \
      gcc-arm-none-eabi gcc-riscv64-unknown-elf gdb-multiarch qemu-system-arm qemu-system-misc \
 && apt-get clean \
 && rm -rf /var/lib/apt/lists/* \
 && useradd --uid 1000 --create-home flipbit \
 && install -d -o flipbit /src /opt/flipbit
USER 1000
ENV PATH=/opt/flipbit/bin:$PATH \
    FLIPBIT_CORE=/opt/flipbit/_core.so
WORKDIR /src
COPY constraints.txt ./
RUN python3 -m venv /opt/flipbit \
 && pip install --no-cache-dir -c constraints.txt numpy pytest hypothesis setuptools==84.2.1 capstone==5.0.9
COPY --chown=flipbit . .
# A checkout mounted over /src hides the compiled core there: it stays beside the packages.
RUN pip install --no-cache-dir --no-deps --no-build-isolation -e . \
 && cp runtime/core/_core.so runtime/core/_plan.so /opt/flipbit/
LABEL org.opencontainers.image.title="flipbit firmware" \
      org.opencontainers.image.description="Builds and emulates flipbit's boards" \
      org.opencontainers.image.licenses="Apache-2.0"
HEALTHCHECK --interval=30m --timeout=2m CMD ["python3", "docker/smoke.py"]
CMD ["make", "-C", "firmware", "boards"]

# Every board: built, and run where there is an emulator.
FROM firmware AS test
RUN python3 docker/smoke.py \
 && pytest -q tests/firmware/test_boards.py

FROM firmware
