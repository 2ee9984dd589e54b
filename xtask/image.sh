#!/usr/bin/env bash
# Builds the image of the Dockerfile without Docker, and tries it: xtask/image.sh [cpu|cuda]
#
# Needs buildah, and the right to mount (root, or a user with subordinate ids). Where no registry of images can be reached,
# the two images below it are made here: Debian from its packages by mmdebstrap, Rust from the toolchain that is installed.
# IMAGE_FOLDER keeps images between builds (default: a folder in the user's cache, about 10 GB).
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
    has "$image" || timeout 60 "${builder[@]}" pull --quiet "$image" > /dev/null 2>&1 || true
done
if ! has "$debian_image"; then
    say "$debian_image cannot be pulled: making it from packages"
    mmdebstrap --quiet --variant=minbase "$debian" "$TMPDIR/debian.tar" "${DEBIAN_MIRROR:-http://deb.debian.org/debian}"
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
"${builder[@]}" build "${isolation[@]}" "${certificates[@]}" --pull-never --layers --build-arg "BACKEND=$backend" \
    --tag "localhost/plimsoll:$backend" .

say "trying it"
project="$(mktemp -d)"
container="$("${builder[@]}" from --pull-never "localhost/plimsoll:$backend")"
trap '"${builder[@]}" rm "$container" > /dev/null; rm -rf "$project"' EXIT
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
