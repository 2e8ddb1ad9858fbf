#!/usr/bin/env bash
# Builds with one line of progress instead of one for each crate, and says where the programs are.
#   scripts/build.sh ARGUMENTS-OF-CARGO-BUILD...
# Warnings and errors of the compiler are shown as ever. Where nobody watches, a line comes for each quarter.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo=${CARGO:-cargo}

# The crates of the same packages and features: what the progress is measured by.
selection=() before=
for argument in "$@"; do
    case $before,$argument in -p,* | *,-p | *,--no-default-features | --features,* | *,--features) selection+=("$argument") ;; esac
    before=$argument
done
crates=$("$cargo" tree --quiet --edges normal,build --prefix none "${selection[@]}" | sed 's/ (\*)$//' | sort -u | wc -l)

watched=
[ -t 2 ] && watched=1
start=$SECONDS
# Cargo tells of each crate that is done as a line of JSON; those that were up to date come at once.
"$cargo" build --quiet --message-format=json-render-diagnostics "$@" |
    awk -v total="$crates" -v watched="$watched" '
        function name(text) { return match(text, /"name":"[^"]*"/) ? substr(text, RSTART + 8, RLENGTH - 9) : "" }
        function say(text) { printf "%s%s%s", watched ? "\r\033[K" : "", text, watched ? "" : "\n" > "/dev/stderr"; fflush() }
        !/"reason":"compiler-artifact"/ || /"kind":\["custom-build"\]/ { next }
        {
            done++
            if (/"executable":"/) { match($0, /"executable":"[^"]*"/); programs = programs " " substr($0, RSTART + 14, RLENGTH - 15) }
            if (/"fresh":true/) next
            work = 1
            at = done < total ? done : total
            if (at == total - 1) text = "optimizing the program as a whole"
            else text = sprintf("%d of %d crates, %s", at, total, name(substr($0, index($0, "\"target\""))))
            if (watched) say("building: " text)
            else if (at * 4 / total >= quarter + 1 || at == total - 1) { quarter = int(at * 4 / total); say("building: " text) }
        }
        END { if (watched && work) say(""); print programs }' |
    while read -r programs; do
        [ -z "$programs" ] || echo "built in $((SECONDS - start)) s: $programs" >&2
    done
