// libcuda.so.1 without a GPU, for cuda-bindings itself: memory is the host's, work is done when it is asked for, and kernels are the
// callback's business. Compiled against CUDA's own cuda.h, so that signatures are the driver's; everything that a driver could
// refuse by its arguments is refused here.
#include <cuda.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int64_t (*Hook)(int what, void* thing, const int* grid, void** arguments);
enum { LOADED, RUN, RECORDED, REPLAYED };
static Hook hook;
static char wrong[4096];
void native_hook(Hook given) { hook = given; }
const char* native_wrong(void) { return wrong; }

#define CHECK(condition)                                                                              \
  do {                                                                                                \
    if (!(condition)) {                                                                               \
      size_t used = strlen(wrong);                                                                    \
      snprintf(wrong + used, sizeof wrong - used, "%s: %s\n", __func__, #condition);                  \
      return CUDA_ERROR_INVALID_VALUE;                                                                \
    }                                                                                                 \
  } while (0)

typedef struct { uint32_t magic; int count; int nodes; void* last; int64_t work[4096]; } Graph;
typedef struct { uint32_t magic; Graph* graph; int first; int count; } Node;
typedef struct { uint32_t magic; Graph* graph; int count; int64_t work[4096]; } Exec;
typedef struct { uint32_t magic; int capturing; Graph* graph; } Stream;
typedef struct { uint32_t magic; int timed; int recorded; } Event;
typedef struct { uint32_t magic; int64_t text; unsigned shared; } Module;
enum { STREAM = 0x51, EVENT = 0x52, MODULE = 0x53, GRAPH = 0x54, EXEC = 0x55, CONTEXT = 0x56, NODE = 0x57 };
static struct { uint32_t magic; } context = {CONTEXT};
static __thread int depth;
static struct { CUdeviceptr at; size_t nbytes; int pinned; } blocks[65536];
static int block_count;
static size_t total = (size_t)1 << 34, used;

static int inside(CUdeviceptr at, size_t nbytes) {
  for (int i = 0; i < block_count; ++i)
    if (!blocks[i].pinned && blocks[i].at <= at && at + nbytes <= blocks[i].at + blocks[i].nbytes) return 1;
  return 0;
}
static int is(const void* thing, uint32_t magic) { return thing && *(const uint32_t*)thing == magic; }
static void* made(size_t nbytes, uint32_t magic) {
  uint32_t* thing = calloc(1, nbytes);
  *thing = magic;
  return thing;
}

CUresult CUDAAPI cuInit(unsigned int flags) { CHECK(flags == 0); return CUDA_SUCCESS; }
CUresult CUDAAPI cuDriverGetVersion(int* version) { *version = 13000; return CUDA_SUCCESS; }
CUresult CUDAAPI cuDeviceGetCount(int* count) { *count = 1; return CUDA_SUCCESS; }
CUresult CUDAAPI cuDeviceGet(CUdevice* device, int ordinal) { CHECK(ordinal == 0); *device = 0; return CUDA_SUCCESS; }
CUresult CUDAAPI cuDeviceGetName(char* name, int length, CUdevice device) {
  CHECK(device == 0 && length > 16);
  strcpy(name, "Native stand-in");
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuDeviceGetPCIBusId(char* text, int length, CUdevice device) {
  CHECK(device == 0 && length > 12);
  strcpy(text, "0000:0A:00.0");
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  CHECK(device == 0);
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y: *value = 65535; return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *value = 9; return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *value = 0; return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: *value = 232448; return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR: *value = 233472; return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *value = 132; return CUDA_SUCCESS;
    default: CHECK(!"an attribute that nobody expected");
  }
}
CUresult CUDAAPI cuDevicePrimaryCtxRetain(CUcontext* made_, CUdevice device) {
  CHECK(device == 0);
  *made_ = (CUcontext)&context;
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuCtxPushCurrent(CUcontext given) { CHECK(is(given, CONTEXT)); ++depth; return CUDA_SUCCESS; }
CUresult CUDAAPI cuCtxPopCurrent(CUcontext* before) {
  CHECK(depth > 0);
  --depth;
  if (before) *before = (CUcontext)&context;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemGetInfo(size_t* left, size_t* all) { CHECK(depth); *left = total - used; *all = total; return CUDA_SUCCESS; }
static CUresult block(CUdeviceptr* at, size_t nbytes, int pinned) {
  void* memory = 0;
  if (nbytes > total - used) return CUDA_ERROR_OUT_OF_MEMORY;
  CHECK(nbytes && block_count < 65536 && !posix_memalign(&memory, 256, nbytes));
  memset(memory, 0xff, nbytes);
  *at = (CUdeviceptr)memory;
  blocks[block_count].at = *at, blocks[block_count].nbytes = nbytes, blocks[block_count++].pinned = pinned;
  used += nbytes;
  return CUDA_SUCCESS;
}
static CUresult unblock(CUdeviceptr at, int pinned) {
  for (int i = 0; i < block_count; ++i)
    if (blocks[i].at == at && blocks[i].pinned == pinned) {
      used -= blocks[i].nbytes;
      free((void*)at);
      blocks[i] = blocks[--block_count];
      return CUDA_SUCCESS;
    }
  CHECK(!"memory that is not there is freed");
}
CUresult CUDAAPI cuMemAlloc(CUdeviceptr* at, size_t nbytes) { CHECK(depth); return block(at, nbytes, 0); }
CUresult CUDAAPI cuMemFree(CUdeviceptr at) { CHECK(depth); return unblock(at, 0); }
CUresult CUDAAPI cuMemHostAlloc(void** at, size_t nbytes, unsigned int flags) {
  CHECK(depth && flags == 0);
  return block((CUdeviceptr*)at, nbytes, 1);
}
CUresult CUDAAPI cuMemFreeHost(void* at) { return unblock((CUdeviceptr)at, 1); }

static int streams(CUstream stream) { return stream == 0 || is(stream, STREAM); }
static int capturing(CUstream stream) { return stream && ((Stream*)stream)->capturing; }
CUresult CUDAAPI cuMemcpyHtoDAsync(CUdeviceptr to, const void* from, size_t nbytes, CUstream stream) {
  CHECK(depth && streams(stream) && !capturing(stream) && from && inside(to, nbytes));
  memcpy((void*)to, from, nbytes);
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuMemcpyDtoHAsync(void* to, CUdeviceptr from, size_t nbytes, CUstream stream) {
  CHECK(depth && streams(stream) && !capturing(stream) && to && inside(from, nbytes));
  memcpy(to, (void*)from, nbytes);
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t nbytes, CUstream stream) {
  CHECK(depth && streams(stream) && !capturing(stream) && inside(to, nbytes) && inside(from, nbytes));
  memmove((void*)to, (void*)from, nbytes);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuStreamCreate(CUstream* stream, unsigned int flags) {
  CHECK(depth && flags == CU_STREAM_NON_BLOCKING);
  *stream = made(sizeof(Stream), STREAM);
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuStreamSynchronize(CUstream stream) { CHECK(depth && streams(stream) && !capturing(stream)); return CUDA_SUCCESS; }
CUresult CUDAAPI cuStreamWaitEvent(CUstream stream, CUevent event, unsigned int flags) {
  CHECK(depth && streams(stream) && is(event, EVENT) && flags == 0);
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuEventCreate(CUevent* event, unsigned int flags) {
  CHECK(depth && (flags == CU_EVENT_DEFAULT || flags == CU_EVENT_DISABLE_TIMING));
  *event = made(sizeof(Event), EVENT);
  ((Event*)*event)->timed = flags == CU_EVENT_DEFAULT;
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuEventDestroy(CUevent event) { CHECK(is(event, EVENT)); *(uint32_t*)event = 0; return CUDA_SUCCESS; }
CUresult CUDAAPI cuEventRecord(CUevent event, CUstream stream) {
  CHECK(depth && is(event, EVENT) && streams(stream) && !capturing(stream));
  ((Event*)event)->recorded = 1;
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuEventSynchronize(CUevent event) { CHECK(is(event, EVENT)); return CUDA_SUCCESS; }
CUresult CUDAAPI cuEventElapsedTime(float* milliseconds, CUevent start, CUevent end) {
  CHECK(is(start, EVENT) && is(end, EVENT));
  CHECK(((Event*)start)->timed && ((Event*)end)->timed && ((Event*)start)->recorded && ((Event*)end)->recorded);
  *milliseconds = 0.5f;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuModuleLoadData(CUmodule* module, const void* image) {
  CHECK(depth && !memcmp(image, "\x7f" "ELF", 4));
  *module = made(sizeof(Module), MODULE);
  ((Module*)*module)->text = hook(LOADED, (void*)image, 0, 0);
  ((Module*)*module)->shared = 49152;
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  CHECK(is(module, MODULE) && !strcmp(name, "main_kernel"));
  *function = (CUfunction)module;
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) {
  CHECK(depth && is(function, MODULE) && attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES && value <= 232448);
  ((Module*)function)->shared = value;
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuLaunchKernel(CUfunction function, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx,
                                unsigned int by, unsigned int bz, unsigned int shared, CUstream stream, void** arguments,
                                void** extra) {
  CHECK(depth && is(function, MODULE) && streams(stream) && arguments && !extra);
  CHECK(gx && gx < 1u << 31 && gy && gy < 65536 && gz && gz < 65536 && bx && bx <= 1024 && by == 1 && bz == 1);
  CHECK(shared <= ((Module*)function)->shared);
  int grid[4] = {(int)gx, (int)gy, (int)gz, (int)bx};
  void* text = (void*)(intptr_t)((Module*)function)->text;
  if (capturing(stream)) {
    Graph* graph = ((Stream*)stream)->graph;
    CHECK(graph->count < 4096);
    graph->work[graph->count++] = hook(RECORDED, text, grid, arguments);
  } else {
    hook(RUN, text, grid, arguments);
  }
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuStreamBeginCapture(CUstream stream, CUstreamCaptureMode mode) {
  if (!stream) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  CHECK(is(stream, STREAM) && mode == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL && !capturing(stream));
  ((Stream*)stream)->capturing = 1;
  ((Stream*)stream)->graph = made(sizeof(Graph), GRAPH);
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuStreamEndCapture(CUstream stream, CUgraph* graph) {
  CHECK(is(stream, STREAM) && capturing(stream));
  ((Stream*)stream)->capturing = 0;
  *graph = (CUgraph)((Stream*)stream)->graph;
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuGraphCreate(CUgraph* graph, unsigned int flags) {
  CHECK(depth && flags == 0);
  *graph = made(sizeof(Graph), GRAPH);
  return CUDA_SUCCESS;
}
// A node behind the last one: a row is all that is asked for here.
static CUresult added(CUgraphNode* node, CUgraph graph, const CUgraphNode* before, size_t count, const int64_t* work, int many) {
  Graph* into = (Graph*)graph;
  CHECK(depth && is(graph, GRAPH) && (into->last ? count == 1 && before[0] == into->last : count == 0));
  CHECK(into->count + many <= 4096);
  Node* made_ = made(sizeof(Node), NODE);
  made_->graph = into, made_->first = into->count, made_->count = many;
  memcpy(into->work + into->count, work, many * sizeof *work);
  into->count += many, ++into->nodes, into->last = made_;
  *node = (CUgraphNode)made_;
  return CUDA_SUCCESS;
}
static int64_t recorded(const CUDA_KERNEL_NODE_PARAMS* given) {
  int grid[4] = {(int)given->gridDimX, (int)given->gridDimY, (int)given->gridDimZ, (int)given->blockDimX};
  return hook(RECORDED, (void*)(intptr_t)((Module*)given->func)->text, grid, given->kernelParams);
}
static int launchable(const CUDA_KERNEL_NODE_PARAMS* given) {
  return given && is(given->func, MODULE) && given->kernelParams && !given->extra && given->gridDimX &&
         given->sharedMemBytes <= ((Module*)given->func)->shared && given->gridDimY && given->gridDimZ && given->blockDimX && given->blockDimY == 1 && given->blockDimZ == 1;
}
CUresult CUDAAPI cuGraphAddKernelNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* before, size_t count,
                                      const CUDA_KERNEL_NODE_PARAMS* given) {
  CHECK(launchable(given));
  int64_t work = recorded(given);
  return added(node, graph, before, count, &work, 1);
}
CUresult CUDAAPI cuGraphAddChildGraphNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* before, size_t count, CUgraph inner) {
  CHECK(is(inner, GRAPH) && inner != graph);
  return added(node, graph, before, count, ((Graph*)inner)->work, ((Graph*)inner)->count);
}
CUresult CUDAAPI cuGraphInstantiate(CUgraphExec* exec, CUgraph graph, unsigned long long flags) {
  CHECK(depth && is(graph, GRAPH) && flags == 0);
  Exec* made_ = made(sizeof(Exec), EXEC);
  made_->graph = (Graph*)graph, made_->count = made_->graph->count;
  memcpy(made_->work, made_->graph->work, sizeof made_->work);
  used += 4096;
  *exec = (CUgraphExec)made_;
  return CUDA_SUCCESS;
}
static int node_of(CUgraphExec exec, CUgraphNode node) {
  return is(exec, EXEC) && is(node, NODE) && is(((Exec*)exec)->graph, GRAPH) && ((Node*)node)->graph == ((Exec*)exec)->graph;
}
CUresult CUDAAPI cuGraphExecKernelNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS* given) {
  CHECK(depth && node_of(exec, node) && ((Node*)node)->count == 1 && launchable(given));
  ((Exec*)exec)->work[((Node*)node)->first] = recorded(given);
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuGraphExecChildGraphNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraph inner) {
  CHECK(depth && node_of(exec, node) && is(inner, GRAPH) && ((Graph*)inner)->count == ((Node*)node)->count);
  memcpy(((Exec*)exec)->work + ((Node*)node)->first, ((Graph*)inner)->work, ((Graph*)inner)->count * sizeof(int64_t));
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuGraphUpload(CUgraphExec exec, CUstream stream) { CHECK(depth && is(exec, EXEC) && streams(stream)); return CUDA_SUCCESS; }
CUresult CUDAAPI cuGraphDestroy(CUgraph graph) { CHECK(is(graph, GRAPH)); *(uint32_t*)graph = 0; return CUDA_SUCCESS; }
CUresult CUDAAPI cuGraphExecDestroy(CUgraphExec exec) {
  CHECK(is(exec, EXEC));
  *(uint32_t*)exec = 0, used -= 4096;
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuGraphLaunch(CUgraphExec exec, CUstream stream) {
  CHECK(depth && is(exec, EXEC) && streams(stream));
  for (int i = 0; i < ((Exec*)exec)->count; ++i) hook(REPLAYED, (void*)(intptr_t)((Exec*)exec)->work[i], 0, 0);
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuGetErrorName(CUresult error, const char** name) { *name = error ? "CUDA_ERROR" : "CUDA_SUCCESS"; return CUDA_SUCCESS; }
CUresult CUDAAPI cuGetErrorString(CUresult error, const char** text) { return cuGetErrorName(error, text); }

#define NAMED(name) {#name, (void*)name}
CUresult CUDAAPI cuGetProcAddress(const char* symbol, void** function, int version, cuuint64_t flags,
                                  CUdriverProcAddressQueryResult* status) {
  const struct { const char* name; void* function; } known[] = {
    NAMED(cuInit), NAMED(cuDriverGetVersion), NAMED(cuDeviceGetCount), NAMED(cuDeviceGet), NAMED(cuDeviceGetName),
    NAMED(cuDeviceGetAttribute), NAMED(cuDeviceGetPCIBusId), {"cuDevicePrimaryCtxRetain", (void*)cuDevicePrimaryCtxRetain},
    {"cuCtxPushCurrent", (void*)cuCtxPushCurrent}, {"cuCtxPopCurrent", (void*)cuCtxPopCurrent},
    {"cuMemGetInfo", (void*)cuMemGetInfo}, {"cuMemAlloc", (void*)cuMemAlloc}, {"cuMemFree", (void*)cuMemFree},
    NAMED(cuMemHostAlloc), NAMED(cuMemFreeHost), {"cuMemcpyHtoDAsync", (void*)cuMemcpyHtoDAsync},
    {"cuMemcpyDtoHAsync", (void*)cuMemcpyDtoHAsync}, {"cuMemcpyDtoDAsync", (void*)cuMemcpyDtoDAsync}, NAMED(cuStreamCreate),
    NAMED(cuStreamSynchronize), NAMED(cuStreamWaitEvent), NAMED(cuEventCreate), {"cuEventDestroy", (void*)cuEventDestroy},
    NAMED(cuEventRecord), NAMED(cuEventSynchronize), {"cuEventElapsedTime", (void*)cuEventElapsedTime},
    NAMED(cuModuleLoadData), NAMED(cuModuleGetFunction), NAMED(cuLaunchKernel), NAMED(cuFuncSetAttribute),
    {"cuStreamBeginCapture", (void*)cuStreamBeginCapture}, NAMED(cuStreamEndCapture),
    {"cuGraphInstantiate", (void*)cuGraphInstantiate}, {"cuGraphInstantiateWithFlags", (void*)cuGraphInstantiate},
    NAMED(cuGraphDestroy), NAMED(cuGraphExecDestroy), NAMED(cuGraphLaunch), NAMED(cuGetErrorName), NAMED(cuGetErrorString),
    NAMED(cuGraphCreate), {"cuGraphAddKernelNode", (void*)cuGraphAddKernelNode}, NAMED(cuGraphAddChildGraphNode),
    {"cuGraphExecKernelNodeSetParams", (void*)cuGraphExecKernelNodeSetParams}, NAMED(cuGraphExecChildGraphNodeSetParams),
    {"cuGraphUpload", (void*)cuGraphUpload},
    {"cuGetProcAddress", (void*)cuGetProcAddress},
  };
  (void)version, (void)flags;
  for (size_t i = 0; i < sizeof known / sizeof *known; ++i)
    if (!strcmp(symbol, known[i].name)) {
      *function = known[i].function;
      if (status) *status = CU_GET_PROC_ADDRESS_SUCCESS;
      return CUDA_SUCCESS;
    }
  *function = 0;
  if (status) *status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  return CUDA_SUCCESS;
}
