#!/usr/bin/env bash
# Builds the image of the Dockerfile without Docker, and tries it: xtask/image.sh [cpu|cuda]
#
# Needs buildah, and the right to mount (root, or a user with subordinate ids). Where no registry of images can be reached,
# the two images below it are made here: Debian from its packages by mmdebstrap, Rust from the toolchain that is installed.
# IMAGE_FOLDER keeps images and what was compiled between builds (default: a folder in the user's cache, some 10 GB).
# IMAGE_FRESH=1 begins with new images below, and with the newest packages; it keeps what was compiled.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

backend="${1:-cpu}"
case "$backend" in
    cpu | cuda) ;;
    *) echo "usage: xtask/image.sh [cpu|cuda]" >&2; exit 2 ;;
esac
command -v buildah > /dev/null || { echo "there is no buildah: apt-get install buildah mmdebstrap" >&2; exit 2; }

folder="${IMAGE_FOLDER:-${XDG_CACHE_HOME:-$HOME/.cache}/plimsoll/images}"
mkdir -p "$folder"
export TMPDIR="$folder/tmp"
mkdir -p "$TMPDIR"
builder=(buildah --root "$folder/storage" --runroot "$folder/run" --storage-driver "${STORAGE_DRIVER:-overlay}")
# Neither a network nor a namespace of its own: so it works inside of another container, too.
isolation=(--isolation chroot --network host)
debian="$(sed -n 's/^ARG DEBIAN=//p' Dockerfile)"
rust="$(sed -n 's/^ARG RUST_VERSION=//p' Dockerfile)"
# What an interrupted build left behind.
"${builder[@]}" rm --all > /dev/null 2>&1 || true
caching=(--layers)
if [ -n "${IMAGE_FRESH:-}" ]; then
    "${builder[@]}" rmi --all --force > /dev/null
    caching=(--no-cache)
fi
say() { echo "==> $(date +%T) $*"; }

# The host's certificates, for a network that has its own: Debian's package adds what lies in this folder.
certificates=()
if [ -f /etc/ssl/certs/ca-certificates.crt ]; then
    certificates=(--volume /etc/ssl/certs/ca-certificates.crt:/usr/local/share/ca-certificates/host.crt:ro)
fi

# Makes an image from a folder or an archive.
image_of() { # NAME CONTENT TARGET BASE SETTINGS...
    local name="$1" content="$2" target="$3" base="$4" container
    shift 4
    container="$("${builder[@]}" from --pull-never "$base")"
    "${builder[@]}" add --quiet "$container" "$content" "$target" > /dev/null
    [ $# = 0 ] || "${builder[@]}" config "$@" "$container"
    "${builder[@]}" commit --quiet --rm "$container" "$name" > /dev/null
}

has() { "${builder[@]}" inspect --type image "$1" > /dev/null 2>&1; }

debian_image="docker.io/library/debian:$debian-slim"
rust_image="docker.io/library/rust:$rust-slim-$debian"
for image in "$debian_image" "$rust_image"; do
    has "$image" || timeout 1200 "${builder[@]}" pull --quiet "$image" > /dev/null || true
done
if ! has "$debian_image"; then
    say "$debian_image cannot be pulled: making it from packages"
    # Without a mirror that was asked for it takes updates of security, too.
    TMPDIR=/tmp mmdebstrap --quiet --variant=minbase "$debian" "$TMPDIR/debian.tar" ${DEBIAN_MIRROR:+"$DEBIAN_MIRROR"}
    image_of "$debian_image" "$TMPDIR/debian.tar" / scratch
    rm "$TMPDIR/debian.tar"
fi
if ! has "$rust_image"; then
    found="$(rustc --version | cut -d' ' -f2)"
    case "$found" in
        "$rust" | "$rust".*) ;;
        *) echo "the image wants Rust $rust, and Rust $found is installed" >&2; exit 2 ;;
    esac
    say "$rust_image cannot be pulled: making it from the installed toolchain"
    image_of "$rust_image" "$(rustc --print sysroot)" /usr/local/rust "$debian_image" \
        --env CARGO_HOME=/usr/local/cargo \
        --env PATH=/usr/local/cargo/bin:/usr/local/rust/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
fi

say "building the image for $backend"
"${builder[@]}" build "${isolation[@]}" "${certificates[@]}" --pull-never "${caching[@]}" --build-arg "BACKEND=$backend" \
    --build-arg "COMMIT=$(git rev-parse --short=12 HEAD 2> /dev/null || echo unknown)" --tag "localhost/plimsoll:$backend" .

say "trying it"
project="$(mktemp -d)"
container="$("${builder[@]}" from --pull-never "localhost/plimsoll:$backend")"
clean() {
    # The files of a user of the image may not be ours.
    in_image find /project -mindepth 1 -delete || true
    "${builder[@]}" rm "$container" > /dev/null || true
    rm -rf "$project" || true
}
trap clean EXIT
# The user of the image, who has no rights: the folder must be open to him.
chmod 777 "$project"
in_image() { "${builder[@]}" run "${isolation[@]}" --volume "$project:/project" "$container" -- "$@"; }
in_image plimsoll --version
in_image plimsoll doctor
in_image plimsoll train --steps 2 --name alone
in_image mpirun -n 2 --oversubscribe plimsoll train --steps 2 --name two
for run in alone two; do
    ls "$project/runs/$run/checkpoints" | grep -q step-0000002 || { echo "run $run has no checkpoint" >&2; exit 1; }
done
[ "$(in_image id -u)" != 0 ] || { echo "the program runs as root" >&2; exit 1; }
say "the image for $backend works: $("${builder[@]}" images --format '{{.Size}}' "localhost/plimsoll:$backend")"
