// User objects: what a graph's work needs and frees when no graph, executable graph or launch has
// it any more. Any thread.
// SPDX-License-Identifier: Apache-2.0
#include "cuda_runtime_api.h"
#include "error.h"
#include "graph.h"

#include <limits.h>
#include <stdlib.h>

struct user_object {
    atomic_uint references;
    void *pointer;
    cudaHostFn_t destroy;
};

struct entry {
    struct user_object *object;
    unsigned count;
};

struct vgpu_resources {
    atomic_uint owners;
    struct entry *entry;
    size_t count;
};

static void release(struct user_object *object, unsigned count)
{
    if (atomic_fetch_sub(&object->references, count) == count) {
        vgpu_handle_remove(object);
        vgpu_host_function_begins();
        object->destroy(object->pointer);
        vgpu_host_function_ends();
        free(object);
    }
}

// ---- References of graphs -----------------------------------------------------------------------

static struct entry *find_entry(const struct vgpu_resources *resources,
                                const struct user_object *object)
{
    for (size_t i = 0; resources && i < resources->count; i++) {
        if (resources->entry[i].object == object) {
            return &resources->entry[i];
        }
    }
    return NULL;
}

// Adds references that the caller has. False: no memory.
static bool add_entry(struct vgpu_resources **resources, struct user_object *object, unsigned count)
{
    struct entry *entry = find_entry(*resources, object);
    if (entry) {
        entry->count += count;
        return true;
    }
    struct vgpu_resources *place = *resources ? *resources : calloc(1, sizeof(*place));
    if (!place) {
        return false;
    }
    struct entry *more = realloc(place->entry, (place->count + 1) * sizeof(*more));
    if (!more) {
        if (!*resources) {
            free(place);
        }
        return false;
    }
    if (!*resources) {
        atomic_store(&place->owners, 1);
        *resources = place;
    }
    place->entry = more;
    more[place->count++] = (struct entry){object, count};
    return true;
}

bool vgpu_resources_copy(const struct vgpu_resources *resources, struct vgpu_resources **copy_out)
{
    *copy_out = NULL;
    for (size_t i = 0; resources && i < resources->count; i++) {
        const struct entry *entry = &resources->entry[i];
        if (entry->count == 0) {
            continue; // given back; the object may be gone
        }
        atomic_fetch_add(&entry->object->references, entry->count);
        if (!add_entry(copy_out, entry->object, entry->count)) {
            release(entry->object, entry->count);
            vgpu_resources_release(*copy_out);
            *copy_out = NULL;
            return false;
        }
    }
    return true;
}

struct vgpu_resources *vgpu_resources_share(struct vgpu_resources *resources)
{
    if (resources) {
        atomic_fetch_add(&resources->owners, 1);
    }
    return resources;
}

void vgpu_resources_release(struct vgpu_resources *resources)
{
    if (!resources || atomic_fetch_sub(&resources->owners, 1) > 1) {
        return;
    }
    for (size_t i = 0; i < resources->count; i++) {
        if (resources->entry[i].count > 0) {
            release(resources->entry[i].object, resources->entry[i].count);
        }
    }
    free(resources->entry);
    free(resources);
}

// ---- CUDA's functions ---------------------------------------------------------------------------

static cudaError_t find_object(const char *function, cudaUserObject_t handle, unsigned count,
                               struct user_object **object_out)
{
    if (!vgpu_handle_known(handle, VGPU_HANDLE_USER_OBJECT)) {
        return vgpu_fail(cudaErrorInvalidValue, "%s: %p is no user object", function,
                         (void *)handle);
    }
    if (count == 0 || count > INT_MAX) {
        return vgpu_fail(cudaErrorInvalidValue, "%s: a count of %u; must be 1 to %d", function,
                         count, INT_MAX);
    }
    *object_out = (struct user_object *)(void *)handle;
    return cudaSuccess;
}

cudaError_t cudaUserObjectCreate(cudaUserObject_t *object, void *pointer, cudaHostFn_t destroy,
                                 unsigned int references, unsigned int flags)
{
    if (!object || !destroy || references == 0 || references > INT_MAX ||
        flags != cudaUserObjectNoDestructorSync) {
        return vgpu_fail(cudaErrorInvalidValue,
                         "cudaUserObjectCreate: result at %p, destroy is %s, %u references, flags "
                         "0x%x (must be cudaUserObjectNoDestructorSync)",
                         (void *)object, destroy ? "set" : "NULL", references, flags);
    }
    struct user_object *made = calloc(1, sizeof(*made));
    if (!made || !vgpu_handle_add(made, VGPU_HANDLE_USER_OBJECT)) {
        free(made);
        return vgpu_fail(cudaErrorMemoryAllocation, "cudaUserObjectCreate: no memory");
    }
    atomic_init(&made->references, references);
    made->pointer = pointer;
    made->destroy = destroy;
    *object = (cudaUserObject_t)(void *)made;
    return cudaSuccess;
}

cudaError_t cudaUserObjectRetain(cudaUserObject_t object, unsigned int count)
{
    struct user_object *found = NULL;
    cudaError_t error = find_object("cudaUserObjectRetain", object, count, &found);
    if (error == cudaSuccess) {
        atomic_fetch_add(&found->references, count);
    }
    return error;
}

cudaError_t cudaUserObjectRelease(cudaUserObject_t object, unsigned int count)
{
    struct user_object *found = NULL;
    cudaError_t error = find_object("cudaUserObjectRelease", object, count, &found);
    if (error == cudaSuccess && atomic_load(&found->references) < count) {
        error = vgpu_fail(cudaErrorInvalidValue,
                          "cudaUserObjectRelease: %u references, of which there are %u", count,
                          atomic_load(&found->references));
    }
    if (error == cudaSuccess) {
        release(found, count);
    }
    return error;
}

cudaError_t cudaGraphRetainUserObject(cudaGraph_t graph, cudaUserObject_t object,
                                      unsigned int count, unsigned int flags)
{
    struct user_object *found = NULL;
    struct vgpu_graph *owner = NULL;
    cudaError_t error = vgpu_graph_find("cudaGraphRetainUserObject", graph, &owner);
    if (error == cudaSuccess) {
        error = find_object("cudaGraphRetainUserObject", object, count, &found);
    }
    if (error == cudaSuccess && (flags & ~(unsigned)cudaGraphUserObjectMove)) {
        error = vgpu_fail(cudaErrorInvalidValue,
                          "cudaGraphRetainUserObject: flags are 0x%x; must be 0 or "
                          "cudaGraphUserObjectMove",
                          flags);
    }
    if (error != cudaSuccess) {
        return error;
    }
    if (!add_entry(&owner->resources, found, count)) {
        return vgpu_fail(cudaErrorMemoryAllocation, "cudaGraphRetainUserObject: no memory");
    }
    if (!(flags & cudaGraphUserObjectMove)) {
        atomic_fetch_add(&found->references, count);
    }
    return cudaSuccess;
}

cudaError_t cudaGraphReleaseUserObject(cudaGraph_t graph, cudaUserObject_t object,
                                       unsigned int count)
{
    struct user_object *found = NULL;
    struct vgpu_graph *owner = NULL;
    cudaError_t error = vgpu_graph_find("cudaGraphReleaseUserObject", graph, &owner);
    if (error == cudaSuccess) {
        error = find_object("cudaGraphReleaseUserObject", object, count, &found);
    }
    struct entry *entry = error == cudaSuccess ? find_entry(owner->resources, found) : NULL;
    if (error == cudaSuccess && (!entry || entry->count < count)) {
        error = vgpu_fail(cudaErrorInvalidValue,
                          "cudaGraphReleaseUserObject: %u references, of which the graph has %u",
                          count, entry ? entry->count : 0);
    }
    if (error == cudaSuccess) {
        entry->count -= count;
        release(found, count);
    }
    return error;
}
