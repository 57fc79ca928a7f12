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
COPY . .
RUN /opt/flipbit/bin/pip install --no-cache-dir -c constraints.txt '.[train,export]'

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
ENV PATH=/opt/flipbit/bin:$PATH
LABEL org.opencontainers.image.title="flipbit train" \
      org.opencontainers.image.description="Trains and exports convolutional nets with one-bit weights" \
      org.opencontainers.image.licenses="Apache-2.0"
HEALTHCHECK --interval=30m --timeout=2m CMD ["python", "docker/smoke.py"]
CMD ["python", "train/run.py", "--help"]

# A few steps of training and an export that is checked on every runtime.
FROM train AS test
RUN python docker/smoke.py \
 && python train/run.py --method bc --epochs 2 -o /tmp/run \
 && python export/to_fbit.py /tmp/run/model.h5

FROM train
