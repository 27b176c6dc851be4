// The kernels for all element types, compiled once.
// SPDX-License-Identifier: Apache-2.0
#include "instances.cuh"

TUTTI_INSTANCES()
