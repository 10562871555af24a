#!/usr/bin/env bash
# Installs the Debian packages of the named groups of packages.txt, if any of them is missing.
#
#   packages.sh GROUP...
set -euo pipefail
cd "$(dirname "$0")/.."

if ! command -v dpkg-query >/dev/null; then
  echo "This is no Debian: packages.txt names what is needed; going on in the hope that it is there." >&2
  exit 0
fi

missing=()
for group in "$@"; do
  while read -r package; do
    status=$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null || true)
    [ "$status" = installed ] || missing+=("$package")
  done < <(awk -v group="$group" '$1 == group { print $2 }' packages.txt)
done
[ ${#missing[@]} -eq 0 ] && exit 0

as_root=(env DEBIAN_FRONTEND=noninteractive)
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null; then
    echo "Missing packages; as root: apt-get install ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo "${as_root[@]}")
fi
echo "Installing: ${missing[*]}"
case " ${missing[*]} " in
  *" postgresql-"*)  # for tests, which start a server of their own: no reason for one that starts at boot
    "${as_root[@]}" mkdir -p /etc/postgresql-common/createcluster.d
    echo 'create_main_cluster = false' |
      "${as_root[@]}" tee /etc/postgresql-common/createcluster.d/eplog-tests.conf >/dev/null
    ;;
esac
"${as_root[@]}" apt-get update -qq </dev/null
"${as_root[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}" </dev/null
