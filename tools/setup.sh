#!/bin/sh
# Installs what building and testing needs, where it is missing: as root without asking, else it
# prints the line to run and stops.
# Usage: tools/setup.sh [more packages]
set -eu
packages="gcc g++ make cmake ninja-build pkg-config libdnnl-dev libjansson-dev libsentencepiece-dev
libutf8proc-dev libxxhash-dev libpng-dev libfreetype-dev libfontconfig-dev libssl-dev libcmocka-dev
libopenmpi-dev openmpi-bin xz-utils $*"

command -v dpkg-query >/dev/null || exit 0 # not Debian: cmake says what is missing

missing=
for package in $packages; do
    state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
    [ "$state" = installed ] || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

install="apt-get install -y --no-install-recommends$missing"
if [ "$(id -u)" -ne 0 ]; then
    echo "Some packages are missing. Install them, then run this again:" >&2
    echo "  sudo $install" >&2
    exit 1
fi
echo "installing:$missing"
export DEBIAN_FRONTEND=noninteractive
$install >/dev/null 2>&1 || { apt-get update >/dev/null && $install >/dev/null; }
