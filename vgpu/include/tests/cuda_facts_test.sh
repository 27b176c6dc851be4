#!/bin/sh
# Compares our enumerators, macros of numbers and structure layouts with CUDA's own headers, where those are installed.
# Every enumerator of our headers becomes a static assertion that a compiler checks against CUDA's.
# Usage: cuda_facts_test.sh INCLUDE_FOLDER C_COMPILER CUDA_INCLUDE_FOLDER
# SPDX-License-Identifier: Apache-2.0
set -u
include=$1 cc=$2 cuda=$3
if [ ! -f "$cuda/driver_types.h" ]; then
    echo "CUDA's headers are not in $cuda"
    exit 77
fi
if ! grep -q 'CUDART_VERSION *13000' "$cuda/cuda_runtime_api.h"; then
    echo "the headers in $cuda are not CUDA 13.0's"
    exit 77
fi
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT

enumerators() { # header: lines `name value`
    "$cc" -E -P -I"$include" "$include/$1" | tr ',{}' '\n\n\n' |
        sed -nE 's/^ *([A-Za-z_][A-Za-z0-9_]*) *= *(-?[0-9a-fA-Fx]+) *$/\1 \2/p'
}
macros() { # header: names of macros that are plain numbers
    sed -nE 's/^#define +((cuda|CU|CUDA|CUDART)[A-Za-z0-9_]*) +(\(*\(int\)-?)?\(?(0x[0-9a-f]+|[0-9]+)\)?$/\1 \4/p' "$include/$1"
}
layout() { # structure members...: assertions on its size and offsets, with values from our headers
    structure=$1
    shift
    for member in "$@"; do
        echo "offsetof($structure, $member)"
    done
    echo "sizeof($structure)"
}

cat >"$folder/layouts" <<'LAYOUTS'
struct cudaDeviceProp uuid luidDeviceNodeMask totalGlobalMem sharedMemPerBlock warpSize memPitch maxGridSize totalConstMem major minor textureAlignment multiProcessorCount maxTexture3DAlt surfaceAlignment concurrentKernels pciBusID unifiedAddressing l2CacheSize sharedMemPerMultiprocessor managedMemory cooperativeLaunch sharedMemPerBlockOptin reservedSharedMemPerBlock gpuDirectRDMASupported memoryPoolSupportedHandleTypes clusterLaunch mpsEnabled hostNumaId gpuPciDeviceID hostNumaMultinodeIpcSupported reserved
struct cudaPointerAttributes type device devicePointer hostPointer
struct cudaFuncAttributes sharedSizeBytes maxThreadsPerBlock numRegs maxDynamicSharedSizeBytes clusterSchedulingPolicyPreference nonPortableClusterSizeAllowed reserved
struct cudaMemcpy3DParms srcPos srcPtr dstArray dstPtr extent kind
struct cudaMemPoolProps location win32SecurityAttributes maxSize usage reserved
struct cudaAccessPolicyWindow num_bytes hitRatio hitProp missProp
cudaLaunchAttribute id val
cudaLaunchAttributeValue clusterDim programmaticEvent.flags deviceUpdatableKernelNode.devNode
cudaLaunchConfig_t gridDim blockDim dynamicSmemBytes stream attrs numAttrs
cudaIpcMemHandle_t reserved
struct cudaMemcpy3DPeerParms srcPos srcPtr srcDevice dstArray dstPtr dstDevice extent
struct cudaKernelNodeParams func gridDim blockDim sharedMemBytes kernelParams extra
struct cudaMemsetParams dst pitch value elementSize width height
cudaGraphExecUpdateResultInfo errorNode errorFromNode
cudaGraphEdgeData from_port to_port type reserved
CUgraphEdgeData from_port to_port type reserved
CUstreamBatchMemOpParams waitValue.address waitValue.value64 waitValue.flags writeValue.flags flushRemoteWrites.flags memoryBarrier.flags
cudaGraphInstantiateParams uploadStream errNode_out result_out
CUmemAllocationProp type requestedHandleTypes location win32HandleMetaData allocFlags
CUmulticastObjectProp numDevices size handleTypes flags
CUmemAccessDesc location flags
CUlaunchConfig blockDimX sharedMemBytes hStream attrs numAttrs
CUlaunchAttribute value
CUipcMemHandle reserved
char2 y
float4 w
double2 y
double3 z
double4_32a w
longlong2 y
uint3 z
dim3 z
LAYOUTS

{
    echo '#include <cuda.h>'
    echo '#include <cuda_runtime_api.h>'
    echo '#include <library_types.h>'
    echo '#include <stddef.h>'
    {
        enumerators driver_types.h
        enumerators cuda.h
        enumerators library_types.h
        macros driver_types.h
        macros cuda.h
        macros cuda_runtime_api.h
    } | sort -u | while read -r name value; do
        case $name in
        cudaCpuDeviceId) value=-1 ;;
        cudaInvalidDeviceId) value=-2 ;;
        esac
        echo "_Static_assert((long long)$name == (long long)($value), \"$name\");"
    done
} >"$folder/facts.c"

# The layouts as our headers give them, printed by a program, asserted against CUDA's.
{
    echo '#include <cuda.h>'
    echo '#include <cuda_runtime_api.h>'
    echo '#include <stdio.h>'
    printf '%s\n' '#define FACT(e) printf("_Static_assert(%s == %zu, \"%s\");\n", #e, (size_t)(e), #e);'
    echo 'int main(void) {'
    while read -r line; do
        case $line in
        struct\ *) name=$(echo "$line" | cut -d' ' -f1-2) members=$(echo "$line" | cut -d' ' -f3-) ;;
        *) name=${line%% *} members=${line#* } ;;
        esac
        # shellcheck disable=SC2086
        layout "$name" $members | while read -r expression; do
            printf 'FACT(%s)\n' "$expression"
        done
    done <"$folder/layouts"
    echo 'return 0; }'
} >"$folder/layouts.c"
"$cc" -std=c17 -I"$include" "$folder/layouts.c" -o "$folder/layouts.run" || exit 1
"$folder/layouts.run" >>"$folder/facts.c" || exit 1

count=$(grep -c _Static_assert "$folder/facts.c")
if [ "$count" -lt 700 ]; then
    echo "only $count facts were found in our headers"
    exit 1
fi
if "$cc" -std=c17 -w -I"$cuda" -fsyntax-only "$folder/facts.c" 2>"$folder/log"; then
    echo "$count facts agree with CUDA's headers"
    exit 0
fi
grep -E 'error' "$folder/log" | head -20
exit 1
