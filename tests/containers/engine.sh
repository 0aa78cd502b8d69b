#!/bin/bash
# A Docker engine on a Debian machine that has no image registry: Debian's dockerd started by hand, and a
# debootstrapped base imported under the name of the base image. Root only.
#   engine.sh packages      install what it needs (apt)
#   engine.sh start DIR     start the engine; its socket is DIR/docker.sock, its compose plugin in DIR/cfg
#                           ARCH=arm64: with a base for that processor, which binfmt_misc has to name an emulator for
#   engine.sh stop DIR      stop it and remove what it kept, the base excepted
set -euo pipefail

BASE=${BASE:-python:3.11-slim-bookworm}

site() { # this machine's mirror, which apt knows once it has lists
  local found
  found=$(apt-get indextargets --format '$(SITE)' | grep -v security | sort -u | head -1) || true
  [ -n "$found" ] || { echo "apt knows no mirror: run apt-get update" >&2; return 1; }
  echo "$found"
}

packages() {
  local tool missing=
  for tool in dockerd debootstrap iptables prometheus promtool; do
    command -v "$tool" >/dev/null || missing="$missing $tool"
  done
  [ -n "$missing" ] || return 0
  echo "installing what has$missing" >&2
  apt-get update
  RUNLEVEL=1 apt-get install -y --no-install-recommends docker.io debootstrap iptables prometheus
}

plugins() { # compose v2 and buildx are in Debian 13 only: unpack the two packages aside, install nothing
  [ -e cfg/cli-plugins/docker-compose ] && return
  SITE=$(site)
  mkdir -p apt/lists/partial apt/cache/archives/partial plug cfg/cli-plugins
  echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $SITE trixie main" >apt/sources.list
  local o="-o Dir::Etc::sourcelist=$PWD/apt/sources.list -o Dir::Etc::sourceparts=-"
  o="$o -o Dir::State::lists=$PWD/apt/lists -o Dir::Cache=$PWD/apt/cache"
  apt-get $o update
  (cd plug && apt-get $o download docker-compose docker-buildx && for d in *.deb; do dpkg -x "$d" .; done)
  cp plug/usr/libexec/docker/cli-plugins/* cfg/cli-plugins/
}

base() { # what this machine trusts goes into it, as its mirrors may need that; for tests only
  [ -e base-$ARCH.tar ] && return
  SITE=$(site)
  debootstrap --arch=$ARCH --variant=minbase --include=ca-certificates,python3,python3-pip,python3-venv bookworm rootfs "$SITE"
  cp /etc/ssl/certs/ca-certificates.crt rootfs/etc/ssl/certs/
  printf '[global]\ncert = /etc/ssl/certs/ca-certificates.crt\n' >rootfs/etc/pip.conf
  rm -f rootfs/usr/lib/python3.11/EXTERNALLY-MANAGED
  ln -sf /usr/bin/python3 rootfs/usr/local/bin/python
  tar -C rootfs --exclude='./var/cache/apt/*' --exclude='./var/lib/apt/lists/*' --exclude='./proc/*' \
    --exclude='./sys/*' --exclude='./dev/*' --exclude='./usr/share/doc/*' --exclude='./usr/share/man/*' \
    --exclude='./usr/share/locale/*' -cf base-$ARCH.partial .
  mv base-$ARCH.partial base-$ARCH.tar
  rm -rf rootfs
}

engine() {
  export DOCKER_HOST=unix://$PWD/docker.sock
  setsid dockerd --host "$DOCKER_HOST" --data-root "$PWD/data" --exec-root "$PWD/exec" \
    --pidfile "$PWD/dockerd.pid" --storage-driver overlay2 >dockerd.log 2>&1 </dev/null &
  for _ in $(seq 60); do
    docker version >/dev/null 2>&1 && break
    sleep 0.5
  done
  docker version >/dev/null || { tail dockerd.log >&2; return 1; }
  docker import --change 'ENV PATH=/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin' \
    --change 'ENV LANG=C.UTF-8' --change 'CMD ["python3"]' base-$ARCH.tar "$BASE"
}

stop() {
  if [ -f dockerd.pid ]; then
    local pid
    pid=$(cat dockerd.pid)
    kill "$pid" || true
    while kill -0 "$pid" 2>/dev/null; do sleep 0.2; done
  fi
  umount data/* exec/netns/* exec/* 2>/dev/null || true
  rm -rf data exec docker.sock dockerd.pid
}

case ${1:-} in
packages) packages ;;
start) ARCH=${ARCH:-$(dpkg --print-architecture)} && mkdir -p "$2" && cd "$2" && plugins && base && engine ;;
stop) cd "$2" && stop ;;
*) sed -n 2,8p "$0" && exit 2 ;;
esac
