#!/usr/bin/env bash
# Makes the folder of LLVM that a build with CUDA links, from Debian's unstable packages, for machines on which the
# prebuilt archive cannot be downloaded. Started by `cargo xtask cuda setup`, with five arguments:
#   the folder to make, the version of LLVM, its first number, the processor (x86_64 or aarch64), Debian's keyring
# It needs no root and installs nothing: lists and packages stay in a temporary folder. PLIMSOLL_DEBIAN_MIRROR names
# another mirror. Apt checks the signatures of the lists with Debian's keyring.
set -euo pipefail
bundle=$1 version=$2 major=$3 arch=$4 keyring=$5
release=${version%.*}
package="llvm-$major-dev"

work=$(mktemp -d)
new="$bundle.new-$$"
old="$bundle.old-$$"
trap 'rm -rf "$work" "$new"' EXIT
mkdir -p "$work/lists/partial" "$work/cache/archives/partial" "$work/root"

# The mirror that this machine already uses, if it is a Debian; else Debian's own.
mirror=${PLIMSOLL_DEBIAN_MIRROR:-}
if [ -z "$mirror" ]; then
  mirror=$(grep -hoE '(https?|file)://[^ ]+/debian/?( |$)' /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null |
    head -n 1 | tr -d ' ' || true)
fi
mirror=${mirror:-http://deb.debian.org/debian}
case $arch in x86_64) debian=amd64 ;; aarch64) debian=arm64 ;; *) echo "no packages for $arch" >&2; exit 1 ;; esac

echo "deb [signed-by=$keyring arch=$debian] $mirror sid main" > "$work/sources.list"
apt_() {
  apt-get -q -o Dir::Etc::sourcelist="$work/sources.list" -o Dir::Etc::sourceparts=- \
    -o Dir::State::lists="$work/lists" -o Dir::Cache="$work/cache" -o APT::Sandbox::User="$(id -un)" "$@"
}
echo "reading the list of packages from $mirror"
apt_ update
echo "fetching $package"
(cd "$work" && apt_ download "$package:$debian")
deb=$(ls "$work"/"${package}"_*.deb)
found=$(dpkg-deb -f "$deb" Version)
# The version may begin with an epoch, such as 1:23.1.1-1.
case ${found#*:} in
  "$release".*) ;;
  *) echo "Debian has $package $found, and $release is needed: use --llvm download" >&2; exit 1 ;;
esac
echo "unpacking $package $found"
dpkg -x "$deb" "$work/root"

mkdir -p "$(dirname "$bundle")" "$new/bin" "$new/lib" "$new/include"
cp -r "$work/root/usr/include/llvm-$major/." "$new/include/"
cp -r "$work/root/usr/include/llvm-c-$major/." "$new/include/"
cp "$work/root/usr/lib/llvm-$major/lib/"libLLVM*.a "$new/lib/"

# Two targets are enough: this processor and NVIDIA's GPUs. The others would only make the program larger.
case $arch in x86_64) host='AArch64' ;; aarch64) host='X86' ;; esac
others="$host|AMDGPU|ARM|AVR|BPF|Hexagon|Lanai|LoongArch|Mips|MSP430|PowerPC|RISCV|Sparc|SPIRV|SystemZ|VE|WebAssembly|XCore|M68k|Xtensa"
sed -i -E "/^LLVM_[A-Z_]+\(($others)\)\$/d" "$new"/include/llvm/Config/*.def
for library in "$new"/lib/libLLVM*.a; do
  name=$(basename "$library" .a)
  if [[ $name =~ ^libLLVM($others)(Info|Utils|Desc|CodeGen|AsmParser|Disassembler|TargetMCA|Analysis)$ ]]; then
    rm "$library"
  fi
done

# The archives were compiled against a newer C library, which renamed four functions. On a system that has the new names,
# these definitions do the same.
cat > "$work/compat.c" <<'C'
long strtol(const char *, char **, int);
long long strtoll(const char *, char **, int);
unsigned long strtoul(const char *, char **, int);
unsigned long long strtoull(const char *, char **, int);
long __isoc23_strtol(const char *s, char **e, int b) { return strtol(s, e, b); }
long long __isoc23_strtoll(const char *s, char **e, int b) { return strtoll(s, e, b); }
unsigned long __isoc23_strtoul(const char *s, char **e, int b) { return strtoul(s, e, b); }
unsigned long long __isoc23_strtoull(const char *s, char **e, int b) { return strtoull(s, e, b); }
C
"${CC:-cc}" -O2 -c "$work/compat.c" -o "$work/compat.o"
ar rcs "$new/lib/libisoc23compat.a" "$work/compat.o"

# The build script asks this program where LLVM is.
cat > "$new/bin/llvm-config" <<S
#!/bin/sh
# Answers what a build script asks, for the archives in ../lib.
home=\$(cd "\$(dirname "\$0")/.." && pwd)
names() { for library in "\$home"/lib/*.a; do basename "\$library" .a | sed 's/^lib//'; done; }
for question in "\$@"; do case "\$question" in
  --libs) names | sed 's/^/-l/' | tr '\n' ' ' ;;
  --libnames) names | sed 's/^/lib/;s/\$/.a/' | tr '\n' ' ' ;;
  --system-libs) echo "-lrt -ldl -lm -lz -lzstd" ;;
  --libdir) echo "\$home/lib" ;;
  --includedir) echo "\$home/include" ;;
  --cxxflags) echo "-I\$home/include -std=c++17 -fno-exceptions -D_GNU_SOURCE -D__STDC_CONSTANT_MACROS -D__STDC_FORMAT_MACROS -D__STDC_LIMIT_MACROS" ;;
  --cflags) echo "-I\$home/include -D_GNU_SOURCE" ;;
  --version) echo $version ;;
esac; done
S
chmod +x "$new/bin/llvm-config"
touch "$new/.tracel-llvm-installed"

# Two renames at the end: a folder with this name is always whole.
if [ -e "$bundle" ]; then mv -T "$bundle" "$old"; fi
mv -T "$new" "$bundle"
rm -rf "$old"
echo "LLVM $found is in $bundle"
