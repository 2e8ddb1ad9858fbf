#!/usr/bin/env bash
# Starts the release build's server with these arguments, for `make run`. Without a configuration file or a --dir of the
# user's, its files go into a folder for each port below XDG_STATE_HOME, never into the folder that it is started from.
set -euo pipefail
program=$("$(dirname "$0")/target-dir.sh")/release/dunlin

port=6379 before=
dir=${XDG_STATE_HOME:-$HOME/.local/state}/dunlin
for argument in "$@"; do
    case $before in --port | -p) port=$argument ;; esac
    case $argument in
    --port=*) port=${argument#--port=} ;;
    --dir | --dir=* | --help | --version | --print-config) dir= ;;
    esac
    before=$argument
done
# A file may name its own directory.
case ${1:-} in -?*) ;; ?*) dir= ;; esac

if [ -n "$dir" ]; then
    dir=$dir/$port
    mkdir -p "$dir"
    echo "data: $dir (another place: make run ARGS=\"--dir PATH\")" >&2
    set -- --dir "$dir" "$@"
fi
exec "$program" server "$@"
