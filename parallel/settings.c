// See settings.h. SPDX-License-Identifier: Apache-2.0
#include "settings.h"

#include <stdlib.h>

const struct parallel_setting_row parallel_setting_rows[PARALLEL_SETTINGS] = {
    [PARALLEL_SETTING_BLAS] =
        {"TUTTI_BLAS", "a library's name or path, `none`",
         "the first that is there of `libopenblas.so.0`, `libcblas.so.3`, `libblas.so.3`", "0.1",
         "the library with the C interface to BLAS that computes matrix products; `none`: a slower "
         "loop of ours"},
};

const char *parallel_setting(enum parallel_setting setting)
{
    // NOLINTNEXTLINE(concurrency-mt-unsafe): nobody writes it in a program with threads
    return getenv(parallel_setting_rows[setting].name);
}
