// Secrets for one user on all hosts of a cluster, by munge: libmunge is loaded when it is first
// needed. See exchange.h. SPDX-License-Identifier: Apache-2.0
#include "base/log.h"
#include "base/params.h"
#include "launch/exchange.h"

#include <dlfcn.h>
#include <munge.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct {
    munge_ctx_t (*create)(void);
    void (*destroy)(munge_ctx_t context);
    munge_err_t (*set)(munge_ctx_t context, munge_opt_t option, ...);
    munge_err_t (*encode)(char **credential, munge_ctx_t context, const void *data, int bytes);
    munge_err_t (*decode)(const char *credential, munge_ctx_t context, void **data, int *bytes,
                          uid_t *user, gid_t *group);
    const char *(*text)(munge_err_t error);
} munge;
static const char *absence = "";
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void load(void)
{
    static const struct {
        const char *name;
        void *place;
    } symbols[] = {{"munge_ctx_create", &munge.create}, {"munge_ctx_destroy", &munge.destroy},
                   {"munge_ctx_set", &munge.set},       {"munge_encode", &munge.encode},
                   {"munge_decode", &munge.decode},     {"munge_strerror", &munge.text}};
    void *library = dlopen("libmunge.so.2", RTLD_NOW | RTLD_LOCAL);
    for (size_t i = 0; library != NULL && i < sizeof symbols / sizeof symbols[0]; i++) {
        void *symbol = dlsym(library, symbols[i].name);
        memcpy(symbols[i].place, &symbol, sizeof symbol);
        library = symbol == NULL ? NULL : library;
    }
    absence = library == NULL ? "libmunge.so.2 is not there" : NULL;
}

// A context for this user; NULL without memory, or where an option is refused.
static munge_ctx_t open_context(void)
{
    const char *socket = tt_param_text(TT_PARAM_MUNGE_SOCKET);
    munge_ctx_t context = munge.create();
    if (context != NULL &&
        ((*socket != 0 && munge.set(context, MUNGE_OPT_SOCKET, socket) != EMUNGE_SUCCESS) ||
         munge.set(context, MUNGE_OPT_UID_RESTRICTION, geteuid()) != EMUNGE_SUCCESS)) {
        munge.destroy(context);
        context = NULL;
    }
    return context;
}

static munge_err_t encode(const void *data, size_t bytes, char **text_out)
{
    munge_ctx_t context = open_context();
    munge_err_t error = EMUNGE_NO_MEMORY;
    if (context != NULL) {
        error = munge.encode(text_out, context, data, (int)bytes);
        munge.destroy(context);
    }
    return error;
}

bool tt_munge_is_there(const char **why_out)
{
    char *text = NULL;
    pthread_once(&once, load);
    if (absence == NULL) {
        munge_err_t error = encode("", 0, &text);
        *why_out = error == EMUNGE_SUCCESS ? NULL : munge.text(error);
        free(text);
    } else {
        *why_out = absence;
    }
    return *why_out == NULL;
}

ncclResult_t tt_munge_seal(const void *data, size_t bytes, char **text_out)
{
    munge_err_t error = encode(data, bytes, text_out);
    return error == EMUNGE_SUCCESS ? ncclSuccess
                                   : tt_fail(ncclSystemError, "munge: %s", munge.text(error));
}

ncclResult_t tt_munge_open(const char *text, void *data, size_t bytes)
{
    munge_ctx_t context = open_context();
    void *found = NULL;
    int found_bytes = 0;
    uid_t user = (uid_t)-1;
    gid_t group;
    munge_err_t error = context == NULL
                            ? EMUNGE_NO_MEMORY
                            : munge.decode(text, context, &found, &found_bytes, &user, &group);
    ncclResult_t result = ncclSuccess;
    if (error != EMUNGE_SUCCESS) {
        result = tt_fail(ncclRemoteError, "munge: %s", munge.text(error));
    } else if (user != geteuid() || found_bytes != (int)bytes) {
        result =
            tt_fail(ncclRemoteError,
                    "munge: a credential of user %u with %d bytes, expected user %u, %zu bytes",
                    (unsigned)user, found_bytes, (unsigned)geteuid(), bytes);
    } else {
        memcpy(data, found, bytes);
    }
    if (found != NULL) {
        explicit_bzero(found, (size_t)found_bytes);
        free(found);
    }
    if (context != NULL) {
        munge.destroy(context);
    }
    return result;
}
