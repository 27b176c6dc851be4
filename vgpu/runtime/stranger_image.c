// A library that is no module: its constructor must not run (driver_module_test).
// SPDX-License-Identifier: Apache-2.0
#include <stdlib.h>

__attribute__((constructor)) static void run(void)
{
    // NOLINTNEXTLINE(concurrency-mt-unsafe): before any thread
    (void)setenv("STRANGER_IMAGE", "1", 1);
}
