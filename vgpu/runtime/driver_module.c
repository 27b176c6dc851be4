// Modules: kernels that a program loads while it runs.
//
// On virtual GPUs a kernel is host code, so a module is a shared object that tutticc linked
// (`tutticc -shared -o module.so kernels.cu`), as a file or as its bytes in memory. PTX, cubins and
// fat binaries are for real GPUs and are refused. SPDX-License-Identifier: Apache-2.0
#include "cuda_runtime_api.h"
#include "driver_error.h"
#include "error.h"
#include "handles.h"
#include "launch.h"
#include "symbol.h"

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct module {
    void *library; // of dlopen
};

// ---- Whether a file is a module -----------------------------------------------------------------

// The bytes of a shared object for this machine; 0: it is none.
static size_t image_bytes(const void *image)
{
    ElfW(Ehdr) head;
    if (memcmp(image, ELFMAG, SELFMAG) != 0) {
        return 0;
    }
    memcpy(&head, image, sizeof(head));
#if defined(__x86_64__)
    const unsigned machine = EM_X86_64;
#elif defined(__aarch64__)
    const unsigned machine = EM_AARCH64;
#else
    const unsigned machine = head.e_machine;
#endif
    if (head.e_ident[EI_CLASS] != ELFCLASS64 || head.e_type != ET_DYN ||
        head.e_machine != machine) {
        return 0;
    }
    return head.e_shoff + (size_t)head.e_shnum * head.e_shentsize; // the table lies at the end
}

// Whether [offset, offset + count * unit) lies in a file of `bytes` bytes.
static bool lies_inside(size_t offset, size_t count, size_t unit, size_t bytes)
{
    return offset <= bytes && count <= (bytes - offset) / unit;
}

// Whether a table of dynamic symbols asks for a function by which tutticc's code makes its kernels
// or variables known.
static bool registers(const char *image, size_t bytes, const ElfW(Shdr) * table,
                      const ElfW(Shdr) * names)
{
    size_t count = table->sh_size / sizeof(ElfW(Sym));
    if (!lies_inside(table->sh_offset, count, sizeof(ElfW(Sym)), bytes) ||
        !lies_inside(names->sh_offset, names->sh_size, 1, bytes)) {
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        ElfW(Sym) symbol;
        memcpy(&symbol, image + table->sh_offset + i * sizeof(symbol), sizeof(symbol));
        const char *name = image + names->sh_offset + symbol.st_name;
        size_t most = symbol.st_name < names->sh_size ? names->sh_size - symbol.st_name : 0;
        if (symbol.st_shndx == SHN_UNDEF && most > 0 &&
            (strncmp(name, "vgpu_register_kernel", most) == 0 ||
             strncmp(name, "vgpu_register_symbol", most) == 0)) {
            return true;
        }
    }
    return false;
}

static bool has_mark(const char *image, size_t bytes)
{
    ElfW(Ehdr) head;
    memcpy(&head, image, sizeof(head));
    if (head.e_shentsize != sizeof(ElfW(Shdr)) ||
        !lies_inside(head.e_shoff, head.e_shnum, sizeof(ElfW(Shdr)), bytes)) {
        return false;
    }
    for (size_t i = 0; i < head.e_shnum; i++) {
        ElfW(Shdr) section;
        ElfW(Shdr) names;
        memcpy(&section, image + head.e_shoff + i * sizeof(section), sizeof(section));
        if (section.sh_type != SHT_DYNSYM || section.sh_link >= head.e_shnum) {
            continue;
        }
        memcpy(&names, image + head.e_shoff + section.sh_link * sizeof(names), sizeof(names));
        if (registers(image, bytes, &section, &names)) {
            return true;
        }
    }
    return false;
}

// Looks into the file, so that no stranger's constructors run.
static cudaError_t check_file(const char *function, const char *path)
{
    struct stat status;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    size_t bytes = file >= 0 && fstat(file, &status) == 0 && S_ISREG(status.st_mode)
                       ? (size_t)status.st_size
                       : 0;
    void *image = bytes > 0 ? mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, file, 0) : MAP_FAILED;
    cudaError_t error = cudaSuccess;
    if (image == MAP_FAILED || bytes < sizeof(ElfW(Ehdr)) || image_bytes(image) == 0) {
        error = vgpu_fail(cudaErrorInvalidKernelImage,
                          "%s: %s is no shared object for this machine; virtual GPUs load what "
                          "`tutticc -shared` made",
                          function, path);
    } else if (!has_mark(image, bytes)) {
        error = vgpu_fail(cudaErrorNoKernelImageForDevice,
                          "%s: %s holds no kernel or variable that tutticc compiled; virtual GPUs "
                          "load what `tutticc -shared` made",
                          function, path);
    }
    if (image != MAP_FAILED) {
        (void)munmap(image, bytes);
    }
    if (file >= 0) {
        (void)close(file);
    }
    return error;
}

// ---- Loading ------------------------------------------------------------------------------------

static cudaError_t open_library(const char *function, const char *path, CUmodule *module)
{
    cudaError_t error = vgpu_device_ready(vgpu_current_device());
    if (error == cudaSuccess) {
        error = check_file(function, path);
    }
    if (error != cudaSuccess) {
        return error;
    }
    struct module *made = malloc(sizeof(*made));
    void *library = made ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (!library || !vgpu_handle_add(made, VGPU_HANDLE_MODULE)) {
        error = made ? vgpu_fail(cudaErrorInvalidKernelImage, "%s: %s", function,
                                 library ? "no memory" : dlerror()) // NOLINT(concurrency-mt-unsafe)
                     : vgpu_fail(cudaErrorMemoryAllocation, "%s: no memory", function);
        if (library) {
            (void)dlclose(library);
        }
        free(made);
        return error;
    }
    made->library = library;
    *module = (CUmodule)(void *)made;
    return cudaSuccess;
}

CUresult cuModuleLoad(CUmodule *module, const char *path)
{
    static const char *const function = "cuModuleLoad";
    cudaError_t before = vgpu_driver_begin();
    if (!module || !path) {
        return vgpu_driver_end(before, vgpu_fail(cudaErrorInvalidValue, "%s: %s is NULL", function,
                                                 path ? "the place for the module" : "path"));
    }
    if (access(path, R_OK) != 0) {
        return vgpu_driver_end(before,
                               vgpu_fail(cudaErrorFileNotFound, "%s: %s: %m", function, path));
    }
    char place[4096]; // with a slash, so that no library path is searched
    (void)snprintf(place, sizeof(place), "%s%s", strchr(path, '/') ? "" : "./", path);
    return vgpu_driver_end(before, open_library(function, place, module));
}

// ---- Images in memory --------------------------------------------------------------------------

static const char *name_image(const void *image)
{
    static const unsigned char fat_binary[] = {0x50, 0xed, 0x55, 0xba};
    static const unsigned char wrapper[] = {0xb1, 0x43, 0x62, 0x46};
    if (memcmp(image, fat_binary, 4) == 0 || memcmp(image, wrapper, 4) == 0) {
        return "a fat binary";
    }
    if (memcmp(image, ELFMAG, SELFMAG) == 0) {
        return "a cubin, or an object for another machine";
    }
    return "neither an object file nor a fat binary; PTX, perhaps";
}

static cudaError_t load_image(const char *function, const void *image, CUmodule *module)
{
    size_t bytes = image_bytes(image);
    if (bytes == 0) {
        return vgpu_fail(cudaErrorNoKernelImageForDevice,
                         "%s: the image is %s; virtual GPUs load shared objects that `tutticc "
                         "-shared` made",
                         function, name_image(image));
    }
    int file = memfd_create("vgpu-module", MFD_CLOEXEC);
    if (file < 0) {
        return vgpu_fail(cudaErrorOperatingSystem, "%s: no file for the image: %m", function);
    }
    cudaError_t error = cudaSuccess;
    for (size_t done = 0; done < bytes;) {
        ssize_t written = write(file, (const char *)image + done, bytes - done);
        if (written <= 0) {
            error = vgpu_fail(cudaErrorOperatingSystem, "%s: the image cannot be written: %m",
                              function);
            break;
        }
        done += (size_t)written;
    }
    if (error == cudaSuccess) {
        char path[64];
        (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", file);
        error = open_library(function, path, module);
    }
    if (error != cudaSuccess) {
        (void)close(file);
    } // else it stays open: the loader knows the library by the descriptor's number
    return error;
}

CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int option_count,
                            // NOLINTNEXTLINE(readability-non-const-parameter): CUDA's signature
                            CUjit_option *options, void **option_values)
{
    static const char *const function = "cuModuleLoadData";
    cudaError_t before = vgpu_driver_begin();
    (void)options; // of a compiler that is not needed
    (void)option_values;
    (void)option_count;
    if (!module || !image) {
        return vgpu_driver_end(before, vgpu_fail(cudaErrorInvalidValue, "%s: %s is NULL", function,
                                                 image ? "the place for the module" : "image"));
    }
    return vgpu_driver_end(before, load_image(function, image, module));
}

CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
    return cuModuleLoadDataEx(module, image, 0, NULL, NULL);
}

// ---- What is in a module -----------------------------------------------------------------------

static cudaError_t find_module(const char *function, CUmodule handle, struct module **module_out)
{
    if (!vgpu_handle_known(handle, VGPU_HANDLE_MODULE)) {
        return vgpu_fail(cudaErrorInvalidResourceHandle, "%s: %p is no module", function,
                         (void *)handle);
    }
    *module_out = (struct module *)(void *)handle;
    return cudaSuccess;
}

CUresult cuModuleUnload(CUmodule module)
{
    cudaError_t before = vgpu_driver_begin();
    struct module *found = NULL;
    cudaError_t error = find_module("cuModuleUnload", module, &found);
    if (error == cudaSuccess) {
        vgpu_handle_remove(found);
        // The code stays: launches may be under way, and the registry names its kernels.
        free(found);
    }
    return vgpu_driver_end(before, error);
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
    static const char *const self = "cuModuleGetFunction";
    cudaError_t before = vgpu_driver_begin();
    struct module *found = NULL;
    cudaError_t error = function && name ? find_module(self, module, &found)
                                         : vgpu_fail(cudaErrorInvalidValue, "%s: %s is NULL", self,
                                                     name ? "the place for the function" : "name");
    if (error == cudaSuccess) {
        const void *address = dlsym(found->library, name);
        if (!address || !vgpu_kernel_find(address)) {
            error = vgpu_fail(cudaErrorSymbolNotFound,
                              "%s: the module has no kernel %s; give the mangled name, or declare "
                              "it extern \"C\"",
                              self, name);
        } else {
            *function = (CUfunction)(uintptr_t)address;
        }
    }
    return vgpu_driver_end(before, error);
}

// Whether an address lies in the library, which is at `context`.
static bool is_inside(const void *address, void *context)
{
    Dl_info found;
    const struct link_map *library = context;
    struct link_map *owner = NULL;
    return dladdr1(address, &found, (void **)&owner, RTLD_DL_LINKMAP) != 0 && owner == library;
}

// Variables are static in what tutticc makes: the registry knows them by name.
static const void *find_variable(const struct module *module, const char *name)
{
    struct link_map *library = NULL;
    if (dlinfo(module->library, RTLD_DI_LINKMAP, &library) != 0) {
        return NULL;
    }
    const void *image = vgpu_symbol_named(name, is_inside, library);
    return image ? image : dlsym(module->library, name);
}

CUresult cuModuleGetGlobal(CUdeviceptr *pointer, size_t *bytes, CUmodule module, const char *name)
{
    static const char *const self = "cuModuleGetGlobal";
    cudaError_t before = vgpu_driver_begin();
    struct module *found = NULL;
    cudaError_t error = name ? find_module(self, module, &found)
                             : vgpu_fail(cudaErrorInvalidValue, "%s: name is NULL", self);
    const void *image = error == cudaSuccess ? find_variable(found, name) : NULL;
    void *copy = NULL;
    size_t size = 0;
    if (error == cudaSuccess) {
        error = image ? cudaGetSymbolAddress(&copy, image) : cudaErrorInvalidSymbol;
    }
    if (error == cudaSuccess) {
        error = cudaGetSymbolSize(&size, image);
    }
    if (error == cudaErrorInvalidSymbol) {
        error =
            vgpu_fail(cudaErrorSymbolNotFound,
                      "%s: the module has no __device__ or __constant__ variable %s", self, name);
    }
    if (error == cudaSuccess && pointer) {
        *pointer = (CUdeviceptr)(uintptr_t)copy;
    }
    if (error == cudaSuccess && bytes) {
        *bytes = size;
    }
    return vgpu_driver_end(before, error);
}
