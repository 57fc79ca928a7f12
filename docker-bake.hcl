// docker buildx bake [train | firmware | edge | wheels | test]: docs/docker.md
variable "TAG" { default = "latest" }
variable "BASE" { default = "debian:bookworm-slim" }  // a dated tag or a digest, for images that never change
variable "QEMU_CPU" { default = "" }                  // for tests of foreign platforms, such as cortex-a53

group "default" { targets = ["train", "firmware", "edge"] }
group "test" { targets = ["train-test", "firmware-test", "edge-test"] }

target "all" {
  context = "."
  args    = { BASE = BASE }
}

target "train" {
  inherits   = ["all"]
  dockerfile = "docker/train.Dockerfile"
  tags       = ["flipbit/train:${TAG}"]
}

target "firmware" {
  inherits   = ["all"]
  dockerfile = "docker/firmware.Dockerfile"
  tags       = ["flipbit/firmware:${TAG}"]
}

target "edge" {
  inherits   = ["all"]
  dockerfile = "docker/edge.Dockerfile"
  platforms  = ["linux/amd64", "linux/arm64", "linux/arm/v7"]
  tags       = ["flipbit/edge:${TAG}"]
}

// Wheels of the runtime for the three platforms, into dist/.
target "wheels" {
  inherits = ["edge"]
  target   = "wheel"
  tags     = []
  output   = ["type=local,dest=dist,platform-split=false"]
}

target "train-test" {
  inherits = ["train"]
  target   = "test"
  tags     = []
  output   = ["type=cacheonly"]
}

target "firmware-test" {
  inherits = ["firmware"]
  target   = "test"
  tags     = []
  output   = ["type=cacheonly"]
}

target "edge-test" {
  inherits = ["edge"]
  target   = "test"
  args     = { QEMU_CPU = QEMU_CPU }
  tags     = []
  output   = ["type=cacheonly"]
}
