#!/bin/bash
# A Python for arm64 with Convoy's wheel on an x86-64 Debian machine, without Docker, binfmt_misc or root: Debian 13's
# packages and QEMU 10 unpacked aside, the wheels that docker/requirements.txt pins, and ours as ziglang builds it.
#   arm64.sh DIR     make DIR, by Debian's and PyPI's packages; DIR/python is the interpreter
set -euo pipefail

DIR=$(realpath -m "$1")
REPOSITORY=$(cd "$(dirname "$0")/../.." && pwd)

site() { # this machine's mirror, which apt knows once it has lists
  local found
  found=$(apt-get indextargets --format '$(SITE)' | grep -v security | sort -u | head -1) || true
  [ -n "$found" ] || { echo "apt knows no mirror: run apt-get update" >&2; return 1; }
  echo "$found"
}

unpack() { # architecture, packages: they and what they need, into the folder of that name
  local home=$DIR/apt/$1 arch=$1 mirror
  shift
  mirror=$(site)
  mkdir -p "$home"/{etc/apt/apt.conf.d,etc/apt/preferences.d,etc/apt/trusted.gpg.d,var/lib/apt/lists/partial,var/lib/dpkg}
  mkdir -p "$home/var/cache/apt/archives/partial" "$DIR/$arch/usr/lib"
  touch "$home/var/lib/dpkg/status"
  echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror trixie main" >"$home/etc/apt/sources.list"
  cat >"$home/apt.conf" <<CONF
Dir "$home"; Dir::State::status "$home/var/lib/dpkg/status";
APT::Architecture "$arch"; APT::Architectures { "$arch"; }; APT::Sandbox::User "";
CONF
  APT_CONFIG=$home/apt.conf apt-get -q update
  APT_CONFIG=$home/apt.conf apt-get -qy install --download-only --no-install-recommends "$@"
  ln -sfn usr/lib "$DIR/$arch/lib"
  for deb in "$home"/var/cache/apt/archives/*.deb; do dpkg-deb -x "$deb" "$DIR/$arch"; done
}

unpack amd64 qemu-user
unpack arm64 python3 libstdc++6
mkdir -p "$DIR/wheels" "$DIR/site"
python3 -m venv "$DIR/tools"
PYTHON=$DIR/tools/bin/python
"$PYTHON" -m pip install -q hatchling "ziglang>=0.15,<1"
"$PYTHON" -m pip download -q -d "$DIR/wheels" --python-version 3.13 --only-binary :all: --require-hashes \
  --platform manylinux_2_28_aarch64 --platform manylinux_2_27_aarch64 --platform manylinux_2_17_aarch64 \
  --platform manylinux2014_aarch64 -r "$REPOSITORY/docker/requirements.txt"
(cd "$REPOSITORY" && CONVOY_TARGET=aarch64-linux CXX='' "$PYTHON" -m hatchling build -t wheel -d "$DIR/wheels")
for wheel in "$DIR"/wheels/*.whl; do "$PYTHON" -m zipfile -e "$wheel" "$DIR/site"; done
cat >"$DIR/python" <<RUN
#!/bin/sh
PYTHONPATH="$DIR/site" exec "$DIR/amd64/usr/bin/qemu-aarch64" -cpu max -L "$DIR/arm64" "$DIR/arm64/usr/bin/python3.13" "\$@"
RUN
chmod +x "$DIR/python"
