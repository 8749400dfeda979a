# shellcheck shell=bash
# Sourced by the tests of packages in a system of their own, after support.sh: a bare Debian 12 that
# boots in a container and runs a script. Takes root, a mirror of Debian, debootstrap and
# systemd-nspawn; without them the test is skipped.
# shellcheck disable=SC2154 # work, root and output are of support.sh

# Makes machine $2 from the bare system in folder $1, which is made first where it is missing: that
# takes half a minute. It reaches the mirror as this machine does.
copy_system() {
  local cache=$1 machine=$2 program
  if [[ $(id -u) -ne 0 ]]; then skip_all "it takes root"; fi
  for program in debootstrap systemd-nspawn; do
    command -v $program >/dev/null || skip_all "$program was not found"
  done
  if [[ ! -f $cache/made ]]; then
    rm -rf -- "${cache:?}"
    mkdir -p -- "$cache"
    capture debootstrap --variant=minbase --include=ca-certificates,dbus,systemd-sysv bookworm \
      "$cache/root" http://deb.debian.org/debian
    if [[ $status -ne 0 ]]; then skip_all "no system could be made: $(tail -n 3 <<<"$output")"; fi
    cp /etc/hosts /etc/resolv.conf "$cache/root/etc/"
    cp /etc/apt/sources.list.d/debian.sources "$cache/root/etc/apt/sources.list.d/" 2>/dev/null || true
    apt-config dump | grep -E '^Acquire::(Check-[A-Za-z-]+|https?::[A-Za-z:-]+|Retries) ".+";$' >"$cache/root/etc/apt/apt.conf.d/90host" || true
    : >"$cache/made"
  fi
  cp -a -- "$cache/root" "$machine"
  mkdir "$machine/test"
  cp -- "$root/tests/packaging/in_system.sh" "$machine/test/"
}

# Boots machine $1, which runs script $2 as root and turns itself off; the rest is for systemd-nspawn.
# What the script writes is on the standard output; it must have ended with 0.
boot_system() {
  local machine=$1 script=$2
  shift 2
  cp -- "$script" "$machine/test/run"
  # Programs outside must not start services while packages come; inside, nothing forbids it.
  cat >"$machine/etc/systemd/system/test.service" <<'UNIT'
[Unit]
After=multi-user.target dbus.service
[Service]
Type=oneshot
Environment=DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 HOME=/root
ExecStart=/bin/bash /test/run
StandardOutput=file:/test/output
StandardError=inherit
ExecStopPost=/bin/sh -c 'echo "$SERVICE_RESULT $EXIT_STATUS" >/test/result; systemctl poweroff --no-block'
TimeoutStartSec=1500
[Install]
WantedBy=multi-user.target
UNIT
  mkdir -p "$machine/etc/systemd/system/multi-user.target.wants"
  ln -s ../test.service "$machine/etc/systemd/system/multi-user.target.wants/test.service"

  # It turns itself off. No register: the host may run another init.
  local status=0
  timeout --kill-after=20 1600 systemd-nspawn --quiet --register=no --keep-unit --boot \
    "$@" --directory="$machine" --machine="syncd-test-$$" </dev/null >"$work/console" 2>&1 || status=$?
  cat "$machine/test/output" 2>/dev/null || true
  if [[ ! -e $machine/test/result ]]; then
    fail "the system did not come up or did not end (exit $status): $(tail -n 30 "$work/console")"
  fi
  if [[ $(<"$machine/test/result") != 'success 0' ]]; then
    fail "inside the system: $(<"$machine/test/result")"
  fi
}
