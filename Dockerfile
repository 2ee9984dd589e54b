# syntax=docker/dockerfile:1
#
# Image of Plimsoll: for NVIDIA GPUs, or for processors only. Both have MPI.
#
# Build, from the root of the repository. The first build compiles Burn: about 15 minutes on two cores for processors, 30 for
# GPUs. The builder keeps what it has compiled, LLVM included, for the next one:
#
#   docker build -t plimsoll .
#   docker build -t plimsoll:cpu --build-arg BACKEND=cpu .
#
# Run, on a host with NVIDIA's driver (525.60.13 or newer) and the NVIDIA Container Toolkit. Runs are written into the
# current folder, with the rights of the current user. Without a GPU leave `--gpus all` out:
#
#   docker run --rm --gpus all --user "$(id -u):$(id -g)" -v "$PWD:/project" plimsoll doctor
#   docker run --rm -it --gpus all --user "$(id -u):$(id -g)" -v "$PWD:/project" plimsoll train
#   docker run --rm --user "$(id -u):$(id -g)" -v "$PWD:/project" --entrypoint mpirun plimsoll:cpu -n 2 plimsoll train
#
# Neither image holds a CUDA toolkit or a driver: the host's driver is passed in by `--gpus all`. The image for GPUs holds
# libdevice.10.bc from NVIDIA's package nvidia-cuda-nvcc-cu12, which the build fetches from PyPI, and its license beside
# it: read that before you publish an image.
#
# `xtask/image.sh` builds an image without Docker and tries it.

ARG RUST_VERSION=1.95
# One Debian for both stages, so that the program meets the C library that it was linked with.
ARG DEBIAN=bookworm

# --- Stage 1: compile -------------------------------------------------------------------------------------------------

FROM rust:${RUST_VERSION}-slim-${DEBIAN} AS build

# cuda or cpu.
ARG BACKEND=cuda

# The compilers for LLVM's archives and for C sources of dependencies; Open MPI's headers, and libclang that reads them; the
# two libraries that LLVM links; pip for the package with libdevice; curl, with which the setup asks whether the prebuilt
# LLVM can be downloaded.
RUN apt-get update \
    && apt-get install -y --no-install-recommends \
        build-essential ca-certificates curl libclang-dev libopenmpi-dev libzstd-dev pkg-config python3 python3-pip zlib1g-dev \
    && rm -rf /var/lib/apt/lists/*

# LLVM and libdevice go here, and not into a home folder.
ENV XDG_DATA_HOME=/data

WORKDIR /src
COPY . .

# What `git rev-parse --short=12 HEAD` prints, for the plans of runs: the image sees no history.
ARG COMMIT=unknown

# One step, because the folders of the cache exist only while it runs. `cuda setup` does nothing when both are there. The
# sources get a new time: those that were changed while an earlier build ran would seem to be compiled.
# The usual profile, with which everything here was measured: what computes is compiled at level 3.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    --mount=type=cache,target=/data \
    mkdir -p /out/cuda \
    && case "$BACKEND" in \
        cuda) cargo xtask cuda setup && cp -r /data/plimsoll/cuda/. /out/cuda/ && features=cuda,mpi ;; \
        cpu) features=mpi ;; \
        *) echo "BACKEND is cuda or cpu, and not $BACKEND" >&2; exit 2 ;; \
    esac \
    && find . -path ./target -prune -o -type f -exec touch {} + \
    && PLIMSOLL_COMMIT="$COMMIT" cargo build --locked -p plimsoll --bin plimsoll --features "$features" \
    && strip -o /out/plimsoll target/debug/plimsoll

# --- Stage 2: run -----------------------------------------------------------------------------------------------------

FROM debian:${DEBIAN}-slim AS run

# What the program loads besides the C library: that of C++, the two that LLVM was linked with, and Open MPI, which starts
# processes on other machines by ssh.
RUN apt-get update \
    && apt-get install -y --no-install-recommends libstdc++6 libzstd1 openmpi-bin openssh-client zlib1g \
    && rm -rf /var/lib/apt/lists/*

COPY --from=build /out/plimsoll /usr/local/bin/plimsoll
COPY --from=build /out/cuda /opt/plimsoll/cuda

# A missing library ends the build of the image here, and not a run later. The driver is not among them: the program
# looks for it when it opens a GPU.
RUN ! ldd /usr/local/bin/plimsoll | grep 'not found'

# Where the program finds libdevice. The last two have the NVIDIA Container Toolkit pass in CUDA and nvidia-smi.
ENV CUDA_PATH=/opt/plimsoll/cuda \
    NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility

# Open MPI copies from one process into another by a call that containers forbid; it has other ways.
ENV OMPI_MCA_btl_vader_single_copy_mechanism=none

# A user without rights. Its home is open to others, so that `--user` can name the user of the host: caches go there.
RUN useradd --create-home --uid 10001 plimsoll \
    && chmod 1777 /home/plimsoll \
    && mkdir /project \
    && chown plimsoll:plimsoll /project
ENV HOME=/home/plimsoll LANG=C.UTF-8
USER plimsoll

# Configurations, corpora and runs: the folder of the host that `-v` names.
WORKDIR /project

ENTRYPOINT ["plimsoll"]
CMD ["--help"]
