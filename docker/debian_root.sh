#!/bin/sh
# debian_root.sh ARCHITECTURE FOLDER PACKAGE…: Debian packages and what they depend on, fetched and unpacked into FOLDER
# for any CPU, without running anything of them: a root for a small image, or for qemu-user.
#
#   docker/debian_root.sh arm64 /tmp/root python3 python3-numpy
#   qemu-aarch64 -L /tmp/root /tmp/root/usr/bin/python3 -c 'import numpy'
#
# Packages come from where this machine's apt gets them; SOURCES names another sources.list file. Needs no root.
set -eu
architecture=$1 folder=$2
shift 2
state=$(mktemp -d)
trap 'rm -rf "$state"' EXIT
mkdir -p "$state/lists/partial" "$state/archives/partial" "$folder/var/lib/dpkg/status.d"

# apt is told that these are there: they install packages or start viewers, and need Perl, 55 MB.
for there in debconf dpkg install-info mailcap perl-base; do
  printf 'Package: %s\nStatus: install ok installed\nVersion: 99\nArchitecture: all\nMulti-Arch: foreign\n\n' "$there"
done >"$state/status"
cat >"$state/conf" <<END
APT::Architecture "$architecture";
APT::Architectures { "$architecture"; };
APT::Sandbox::User "";
Dir::State "$state";
Dir::State::status "$state/status";
Dir::Cache "$state";
${SOURCES:+Dir::Etc::sourcelist \"$SOURCES\"; Dir::Etc::sourceparts \"/dev/null\";}
END
export APT_CONFIG="$state/conf"
apt-get -q update
apt-get -q -y --no-install-recommends --download-only install "$@"

for deb in "$state"/archives/*.deb; do
  dpkg-deb -x "$deb" "$folder"
  # where scanners look in images without a package manager
  dpkg-deb -f "$deb" >"$folder/var/lib/dpkg/status.d/$(dpkg-deb -f "$deb" Package)"
done
# What nobody reads in an image (licences stay), and NumPy's own tests.
rm -rf "$folder/usr/share/locale" "$folder/usr/share/man" "$folder/usr/share/info"
find "$folder/usr/share/doc" -type f ! -name copyright -delete
find "$folder/usr/lib/python3/dist-packages" -type d -name tests -prune -exec rm -r {} +
# What installing would have done: the choice of a linear algebra library.
for library in "$folder"/usr/lib/*/blas/libblas.so.3 "$folder"/usr/lib/*/lapack/liblapack.so.3; do
  [ ! -e "$library" ] || ln -sf "$(basename "$(dirname "$library")")/$(basename "$library")" "$(dirname "$library")/.."
done
