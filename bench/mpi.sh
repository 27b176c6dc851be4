#!/usr/bin/env bash
# All-reduce against Open MPI: compiles bench/mpi against the build, runs it with 2 and 4 processes, draws the result
# into build/cpu/bench/mpi.svg. Exit status 1 where tutti is slower in the geometric mean.
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
case ${1:-} in
'') ;;
-h | --help)
    echo "usage: bench/mpi.sh   no options; ./dev bench mpi builds first"
    exit 0
    ;;
*)
    echo "bench: $1: what is that? bench/mpi.sh takes no arguments" >&2
    exit 2
    ;;
esac
root=$(cd "$(dirname "$0")/.." && pwd)
build=${TUTTI_BUILD:-$root/build/cpu}
out=$build/bench
if [ ! -e "$build/lib/libnccl.so.2" ]; then
    echo "bench: $build/lib/libnccl.so.2 is not built; run ./dev bench mpi" >&2
    exit 2
fi

# Debian's names first: mpicc alone may be another MPI's.
mpicc=$(command -v mpicc.openmpi || command -v mpicc || true)
mpirun=$(command -v mpirun.openmpi || command -v mpirun || true)
# The starter also calls itself OpenRTE.
is_open_mpi() { [ -n "$1" ] && [[ $("$@" 2>&1 || true) =~ Open\ MPI|OpenRTE ]]; }
if ! is_open_mpi "$mpirun" --version; then
    echo "bench: Open MPI's mpirun is missing; on Debian: apt-get install openmpi-bin libopenmpi-dev" >&2
    exit 2
fi
if ! is_open_mpi "$mpicc" --showme:version; then
    echo "bench: Open MPI's mpicc is missing; on Debian: apt-get install libopenmpi-dev" >&2
    exit 2
fi

mkdir -p "$out"
"$mpicc" -std=gnu17 -O2 -Wall -Wextra -I"$build/include" "$root/bench/mpi/all_reduce.c" -o "$out/mpi_all_reduce" \
    -L"$build/lib" -Wl,-rpath,"$build/lib" -lnccl -lcudart
gcc -std=gnu17 -O2 -Wall -Wextra "$root/bench/mpi/draw.c" -o "$out/mpi_draw" -lm

# Open MPI asks before it runs as root, and before it puts more processes on a host than cores; nobody is bound, as
# tutti has threads besides the ranks'.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
"$mpicc" --showme:version
for processes in 2 4; do
    timeout 300 "$mpirun" --oversubscribe --bind-to none -np "$processes" "$out/mpi_all_reduce" </dev/null
done >"$out/mpi.txt"
"$out/mpi_draw" "$out/mpi.svg" <"$out/mpi.txt"
