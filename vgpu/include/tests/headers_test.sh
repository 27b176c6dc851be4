#!/bin/sh
# Compiles all public headers together, as tutticc does (C++17 and C++20 with __CUDACC__) and as plain C++17. With `full` every
# header alone, too, and as C17 where it is meant for C.
# Usage: headers_test.sh INCLUDE_FOLDER C_COMPILER C++_COMPILER [full]
# SPDX-License-Identifier: Apache-2.0
set -u
include=$1 cc=$2 cxx=$3 full=${4:-}
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
failures=0 count=0
: >"$folder/all.source"

compile() { # source, compiler arguments: the language's and the header's
    source=$folder/$1
    shift
    count=$((count + 1))
    if ! "$@" -Wall -Wextra -Werror -I"$include" -fsyntax-only "$source" >"$folder/log" 2>&1; then
        failures=$((failures + 1))
        echo "$header does not compile alone: $*"
        head -5 "$folder/log"
    fi
}

cd "$include" || exit 1
for header in *.h *.hpp crt/*.h cooperative_groups/*.h nvtx3/*.h vgpu/*.h vgpu/device/*.h cuda/* cuda/std/*; do
    case $header in
    *.md | cuda/std | vgpu/float16.h | vgpu/ptx*.h | vgpu/stub.h) continue ;; # a folder; parts of other headers; tutticc's own
    esac
    echo "#include <$header>" >"$folder/one.source"
    case $header in
    cuda/* | *.hpp | vgpu/float16_support.h | vgpu/float16_vectors.h | vgpu/runtime_templates.h) ;;
    *) [ "$full" != full ] || compile one.source "$cc" -x c -std=c17 ;;
    esac
    [ "$full" != full ] || compile one.source "$cxx" -x c++ -std=c++17 -D__CUDACC__
    [ "$full" != full ] || compile one.source "$cxx" -x c++ -std=c++17
    case $header in
    vgpu/*) continue ;;
    esac
    cat "$folder/one.source" >>"$folder/all.source"
    [ "$full" != full ] || compile one.source "$cxx" -x c++ -std=c++20 -D__CUDACC__
done
header='all public headers together'
compile all.source "$cxx" -x c++ -std=c++17 -D__CUDACC__
compile all.source "$cxx" -x c++ -std=c++17
compile all.source "$cxx" -x c++ -std=c++20 -D__CUDACC__
if [ "$(wc -l <"$folder/all.source")" -lt 40 ]; then
    echo "headers are missing in $include"
    exit 1
fi
echo "$count compilations, $failures failures"
[ "$failures" -eq 0 ]
