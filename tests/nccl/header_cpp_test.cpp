// The same checks in C++. SPDX-License-Identifier: Apache-2.0
#include "header_test.c"
