// A graph as a picture: DOT, which Graphviz draws. SPDX-License-Identifier: Apache-2.0
#include "cuda_runtime_api.h"
#include "error.h"
#include "graph.h"

#include <stdio.h>

enum { TEXT_BYTES = 240 };

// Writes text inside a quoted label.
static void write_quoted(FILE *file, const char *text)
{
    for (; *text; text++) {
        if (*text == '"' || *text == '\\') {
            (void)fputc('\\', file);
        }
        (void)fputc(*text == '\n' ? ' ' : *text, file);
    }
}

// Whether the flags ask for what the node does.
static bool is_verbose(enum cudaGraphNodeType type, unsigned flags)
{
    static const unsigned asks[cudaGraphNodeTypeCount] = {
        [cudaGraphNodeTypeKernel] = cudaGraphDebugDotFlagsKernelNodeParams,
        [cudaGraphNodeTypeMemcpy] = cudaGraphDebugDotFlagsMemcpyNodeParams,
        [cudaGraphNodeTypeMemset] = cudaGraphDebugDotFlagsMemsetNodeParams,
        [cudaGraphNodeTypeHost] = cudaGraphDebugDotFlagsHostNodeParams,
        [cudaGraphNodeTypeWaitEvent] = cudaGraphDebugDotFlagsEventNodeParams,
        [cudaGraphNodeTypeEventRecord] = cudaGraphDebugDotFlagsEventNodeParams,
    };
    return (flags & (cudaGraphDebugDotFlagsVerbose | asks[type])) != 0;
}

static void write_node(FILE *file, struct vgpu_node *node, size_t number, unsigned flags)
{
    enum cudaGraphNodeType type = vgpu_node_type(node);
    (void)fprintf(file, "    n%llu [label=\"%zu\\n%s", (unsigned long long)node->serial, number,
                  vgpu_node_type_name(type));
    if (flags & (cudaGraphDebugDotFlagsVerbose | cudaGraphDebugDotFlagsHandles)) {
        (void)fprintf(file, " %p", (void *)node);
    }
    if (node->work && node->work->kind->describe && is_verbose(type, flags)) {
        char text[TEXT_BYTES] = "";
        node->work->kind->describe(node->work, text, sizeof(text));
        (void)fprintf(file, "\\n");
        write_quoted(file, text);
    }
    (void)fprintf(file, "\"]\n");
}

// Child graphs are drawn in boxes of their own, with an edge from their node.
static void write_graph(FILE *file, const struct vgpu_graph *graph, unsigned flags)
{
    size_t number = 0;
    for (struct vgpu_node *node = graph->first; node; node = node->next) {
        write_node(file, node, number++, flags);
        for (size_t i = 0; i < node->after.count; i++) {
            (void)fprintf(file, "    n%llu -> n%llu\n", (unsigned long long)node->serial,
                          (unsigned long long)node->after.node[i]->serial);
        }
        if (node->child && node->child->first) {
            (void)fprintf(file, "    n%llu -> n%llu [style=dashed]\n",
                          (unsigned long long)node->serial,
                          (unsigned long long)node->child->first->serial);
            (void)fprintf(file, "    subgraph cluster_%llu {\n    label=\"child graph\"\n",
                          (unsigned long long)node->serial);
            write_graph(file, node->child, flags);
            (void)fprintf(file, "    }\n");
        }
    }
}

cudaError_t cudaGraphDebugDotPrint(cudaGraph_t graph, const char *path, unsigned int flags)
{
    static const char *const function = "cudaGraphDebugDotPrint";
    struct vgpu_graph *found = NULL;
    cudaError_t error = vgpu_graph_find(function, graph, &found);
    if (error != cudaSuccess) {
        return error;
    }
    FILE *file = path ? fopen(path, "we") : NULL;
    if (!file) {
        return vgpu_fail(path ? cudaErrorOperatingSystem : cudaErrorInvalidValue, "%s: %s: %m",
                         function, path ? path : "the path is NULL");
    }
    (void)fprintf(file, "digraph cuda_graph {\n    node [shape=box]\n");
    write_graph(file, found, flags);
    (void)fprintf(file, "}\n");
    bool written = ferror(file) == 0;
    if (fclose(file) != 0 || !written) {
        return vgpu_fail(cudaErrorOperatingSystem, "%s: %s cannot be written: %m", function, path);
    }
    return cudaSuccess;
}
