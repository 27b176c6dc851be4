// NVTX ranges and marks, which do nothing here: there is no profiler to tell. C and C++.
// SPDX-License-Identifier: Apache-2.0
#ifndef VGPU_NVTX3_NVTOOLSEXT_H
#define VGPU_NVTX3_NVTOOLSEXT_H

#include <stddef.h>
#include <stdint.h>

#define NVTX_VERSION                  3
#define NVTX_EVENT_ATTRIB_STRUCT_SIZE ((uint16_t)(sizeof(nvtxEventAttributes_t)))
#define NVTX_FUNCTION                 static inline __attribute__((unused))

typedef uint64_t nvtxRangeId_t;
typedef struct nvtxDomainRegistration_st *nvtxDomainHandle_t;
typedef struct nvtxStringRegistration_st *nvtxStringHandle_t;
typedef enum nvtxColorType_t { NVTX_COLOR_UNKNOWN = 0, NVTX_COLOR_ARGB = 1 } nvtxColorType_t;
typedef enum nvtxMessageType_t {
    NVTX_MESSAGE_UNKNOWN = 0,
    NVTX_MESSAGE_TYPE_ASCII = 1,
    NVTX_MESSAGE_TYPE_UNICODE = 2,
    NVTX_MESSAGE_TYPE_REGISTERED = 3
} nvtxMessageType_t;
typedef union nvtxMessageValue_t {
    const char *ascii;
    const wchar_t *unicode;
    nvtxStringHandle_t registered;
} nvtxMessageValue_t;
typedef struct nvtxEventAttributes_v2 {
    uint16_t version, size;
    uint32_t category;
    int32_t colorType;
    uint32_t color;
    int32_t payloadType, reserved0;
    union {
        uint64_t ullValue;
        int64_t llValue;
        double dValue;
        uint32_t uiValue;
        int32_t iValue;
        float fValue;
    } payload;
    int32_t messageType;
    nvtxMessageValue_t message;
} nvtxEventAttributes_t;

NVTX_FUNCTION void nvtxInitialize(const void *reserved)
{
    (void)reserved;
}
NVTX_FUNCTION void nvtxMarkA(const char *message)
{
    (void)message;
}
NVTX_FUNCTION void nvtxMarkEx(const nvtxEventAttributes_t *attributes)
{
    (void)attributes;
}
// The depth of nested ranges is not kept: always 0.
NVTX_FUNCTION int nvtxRangePushA(const char *message)
{
    (void)message;
    return 0;
}
NVTX_FUNCTION int nvtxRangePushEx(const nvtxEventAttributes_t *attributes)
{
    (void)attributes;
    return 0;
}
NVTX_FUNCTION int nvtxRangePop(void)
{
    return 0;
}
NVTX_FUNCTION nvtxRangeId_t nvtxRangeStartA(const char *message)
{
    (void)message;
    return 0;
}
NVTX_FUNCTION nvtxRangeId_t nvtxRangeStartEx(const nvtxEventAttributes_t *attributes)
{
    (void)attributes;
    return 0;
}
NVTX_FUNCTION void nvtxRangeEnd(nvtxRangeId_t id)
{
    (void)id;
}
NVTX_FUNCTION nvtxDomainHandle_t nvtxDomainCreateA(const char *name)
{
    (void)name;
    return NULL;
}
NVTX_FUNCTION void nvtxDomainDestroy(nvtxDomainHandle_t domain)
{
    (void)domain;
}
NVTX_FUNCTION int nvtxDomainRangePushEx(nvtxDomainHandle_t domain,
                                        const nvtxEventAttributes_t *attributes)
{
    (void)domain;
    (void)attributes;
    return 0;
}
NVTX_FUNCTION int nvtxDomainRangePop(nvtxDomainHandle_t domain)
{
    (void)domain;
    return 0;
}
NVTX_FUNCTION void nvtxNameOsThreadA(uint32_t thread, const char *name)
{
    (void)thread;
    (void)name;
}

#define nvtxMark       nvtxMarkA
#define nvtxRangePush  nvtxRangePushA
#define nvtxRangeStart nvtxRangeStartA

#endif
