# Training and export on the CPU: TensorFlow, Larq, ONNX, LiteRT in the tested versions.
#
#   docker buildx bake train
#   docker run --rm -v $PWD/runs:/src/runs flipbit/train python train/run.py --method bc
ARG BASE=debian:bookworm-slim

FROM ${BASE} AS build
RUN apt-get update \
 && apt-get install -y --no-install-recommends gcc libc6-dev python3 python3-venv \
 && apt-get clean \
 && rm -rf /var/lib/apt/lists/*
WORKDIR /src
RUN python3 -m venv /opt/flipbit
# What pyproject.toml asks for comes first, so that other sources need no new download.
COPY constraints.txt pyproject.toml ./
RUN python3 -c "import tomllib; wanted = tomllib.load(open('pyproject.toml', 'rb'))['project']['optional-dependencies']; print(*wanted['train'], *wanted['export'], sep='\n')" > /wanted \
 && /opt/flipbit/bin/pip install --no-cache-dir -c constraints.txt -r /wanted setuptools==84.2.1
COPY . .
# A checkout mounted over /src hides the compiled core there: it stays beside the packages.
RUN /opt/flipbit/bin/pip install --no-cache-dir --no-deps --no-build-isolation -e . \
 && cp runtime/core/_core.so runtime/core/_plan.so /opt/flipbit/

FROM ${BASE} AS train
RUN apt-get update \
 && apt-get install -y --no-install-recommends python3 \
 && apt-get clean \
 && rm -rf /var/lib/apt/lists/* \
 && useradd --uid 1000 --create-home flipbit \
 && install -d -o flipbit /src /src/runs
COPY --from=build /opt/flipbit /opt/flipbit
WORKDIR /src
COPY --chown=flipbit . .
USER 1000
ENV PATH=/opt/flipbit/bin:$PATH \
    FLIPBIT_CORE=/opt/flipbit/_core.so
LABEL org.opencontainers.image.title="flipbit train" \
      org.opencontainers.image.description="Trains and exports convolutional nets with one-bit weights" \
      org.opencontainers.image.licenses="Apache-2.0"
HEALTHCHECK --interval=30m --timeout=2m CMD ["python", "docker/smoke.py"]
CMD ["python", "train/run.py", "--help"]

# A little training, and exports that are held against the net on every runtime.
FROM train AS test
RUN python docker/smoke.py \
 && python train/run.py --method bc --epochs 2 -o /tmp/run \
 && for format in fbit onnx tflite c; do python "export/to_$format.py" /tmp/run/model.h5 || exit 1; done \
 && python export/verify.py /tmp/run/model.h5 /tmp/run/model.fbit /tmp/run/model.onnx /tmp/run/model.tflite

FROM train
