// tutticc: nvcc's command line, for virtual GPUs on the CPU.
// SPDX-License-Identifier: Apache-2.0
#include "driver.h"
#include "process.h"

#include <stdio.h>

static void print_version(void)
{
    fputs("tutticc: compiler of tutti for virtual GPUs on the CPU, in place of nvcc\n"
          "It stands in for:\n"
          "Cuda compilation tools, release 13.0, V13.0.0\n",
          stdout);
}

int main(int argc, char **argv)
{
    struct options options;
    int status = 1;
    process_start();
    if (options_read(&options, argc, argv)) {
        if (options.phase == PHASE_VERSION) {
            print_version();
            status = 0;
        } else if (options.phase == PHASE_HELP) {
            options_print_help();
            status = 0;
        } else {
            status = driver_run(&options);
        }
    }
    options_free(&options);
    process_finish();
    return status;
}
