# shellcheck shell=bash
# Sourced by what runs inside a booted system (see system.sh): steps, checks and waiting.
cd /test || exit 1
export SYNCD_ADDR=unix:/run/syncd/syncd.sock

step() { printf '== %s (%s s)\n' "$*" "$SECONDS"; }
fail() {
  printf 'FAILED: %s\n' "$*"
  systemctl --no-pager --full status syncd 'syncd@*' 2>&1 | tail -n 40 || true
  journalctl --no-pager -u syncd -u 'syncd@*' -n 30 2>&1 || true
  exit 1
}
# A changed configuration stays without a question, where the new version brings another one.
apt() { apt-get -qq -y -o Dpkg::Use-Pty=0 -o Dpkg::Options::=--force-confold --no-install-recommends "$@" >apt.log 2>&1 || { cat apt.log; fail "apt-get $*"; }; }
wait_until() {
  local i
  for ((i = 0; i < 150; i++)); do
    if "$@" >/dev/null 2>&1; then return; fi
    sleep 0.1
  done
  fail "waited 15 s for: $*"
}
trains() { [[ $(syncctl history "$1" --limit 50 | grep -c ' push ') -gt 10 ]]; }
# What the service said last.
said() { journalctl --sync && journalctl --no-pager -u syncd -o cat -n 8; }
expect() { grep -qE -- "$2" <<<"$1" || fail "expected '$2' in: $1"; }
