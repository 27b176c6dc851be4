#!/usr/bin/env bash
# Ranks that share a device are told once for each communicator, with the device's UUID.
#   shared_device.sh PROGRAM      (device_shared_device)
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail

said=$(mktemp)
trap 'rm -f "$said"' EXIT
CUDA_VISIBLE_DEVICES=0 "$1" >"$said" 2>&1 || {
    cat "$said"
    exit 1
}
failed=0
for ranks in "0, 1" "0, 1, 2, 3" "0, 1, 2, 3, 4, 5, 6, 7"; do
    lines=$(grep -cE "ranks share GPU 0 \\([^)]+\\), GPU-[0-9a-f-]{36}: $ranks\$" "$said" || true)
    if [ "$lines" != 2 ]; then # threads, processes
        printf 'ranks %s: %s lines, not 2:\n' "$ranks" "$lines"
        grep "share GPU" "$said" || true
        failed=1
    fi
done
exit "$failed"
