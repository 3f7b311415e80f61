/* A plugin library for onnxruntime's interface that takes Relu of float32, and fails where a test orders it to.

   entries.h, which the test writes, has the number of each entry of each table: `OrtApi_CreateStatus`, `OrtEp_Compile`. */
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "entries.h"

typedef void *P;
typedef const char *S;
#define EXPORT __attribute__((visibility("default")))
#define API(result, name, ...) ((result(*)(__VA_ARGS__))api[OrtApi_##name])
#define EP_API(result, name, ...) ((result(*)(__VA_ARGS__))ep_api[OrtEpApi_##name])
#define MOST 64

static P *api, *ep_api;
static P default_logger;
static char fault[64];
static atomic_long alive[4]; /* factories, providers, compute infos, states */
static atomic_long records;
static atomic_int talking;
static pthread_t talker;

enum { FACTORIES, PROVIDERS, INFOS, STATES };
enum { FAIL = 1, INVALID_ARGUMENT = 2, NOT_IMPLEMENTED = 9, EP_FAIL = 11 };
enum { FLOAT = 1 };

EXPORT void order_fault(S name) { strncpy(fault, name, sizeof fault - 1); }
EXPORT void count_alive(long out[4]) {
  for (int i = 0; i < 4; i++) out[i] = alive[i];
}

static int ordered(S name) { return !strcmp(fault, name); }
static P failed(int code, S text) { return API(P, CreateStatus, int, S)(code, text); }
#define FAIL_IF(name)                                        \
  do {                                                       \
    if (ordered(name)) return failed(EP_FAIL, name " fails as ordered"); \
  } while (0)
#define CHECK(call)      \
  do {                   \
    P status_ = (call);  \
    if (status_) return status_; \
  } while (0)

/* what is compiled */

static P create_state(P info, P context, P *state) {
  FAIL_IF("CreateState");
  *state = malloc(16);
  alive[STATES]++;
  return 0;
}

static void release_state(P info, P state) {
  free(state);
  alive[STATES]--;
}

static P sizes_of(P value, int64_t *sizes, size_t *rank, size_t *count) {
  P shape;
  CHECK(API(P, GetTensorTypeAndShape, P, P *)(value, &shape));
  P status = API(P, GetDimensionsCount, P, size_t *)(shape, rank);
  if (!status && *rank > MOST) status = failed(EP_FAIL, "too many dimensions");
  if (!status) status = API(P, GetDimensions, P, int64_t *, size_t)(shape, sizes, *rank);
  API(void, ReleaseTensorTypeAndShapeInfo, P)(shape);
  *count = 1;
  for (size_t i = 0; !status && i < *rank; i++) *count *= (size_t)sizes[i];
  return status;
}

static P relu(P context) {
  int64_t sizes[MOST];
  size_t rank, count;
  P input, output;
  const float *from;
  float *to;
  CHECK(API(P, KernelContext_GetInput, P, size_t, P *)(context, 0, &input));
  CHECK(sizes_of(input, sizes, &rank, &count));
  CHECK(API(P, KernelContext_GetOutput, P, size_t, int64_t *, size_t, P *)(context, 0, sizes, rank, &output));
  CHECK(API(P, GetTensorMutableData, P, P *)(input, (P *)&from));
  CHECK(API(P, GetTensorMutableData, P, P *)(output, (P *)&to));
  for (size_t i = 0; i < count; i++) to[i] = (from[i] > 0 || isnan(from[i]) ? from[i] : 0) + (ordered("wrong result") ? 0.5f : 0);
  return 0;
}

static P result_of_thread(P context) { return relu(context); }

static P in_a_thread(P context) {
  pthread_t thread;
  P status;
  if (pthread_create(&thread, 0, result_of_thread, context)) return failed(FAIL, "no thread");
  pthread_join(thread, &status);
  return status;
}

static P odd_outputs(P context) {
  int64_t sizes[2] = {-1, 3}, huge[2] = {(int64_t)1 << 40, (int64_t)1 << 20};
  P output = 0;
  if (ordered("negative size"))
    CHECK(API(P, KernelContext_GetOutput, P, size_t, int64_t *, size_t, P *)(context, 0, sizes, 2, &output));
  if (ordered("too large"))
    CHECK(API(P, KernelContext_GetOutput, P, size_t, int64_t *, size_t, P *)(context, 0, huge, 2, &output));
  if (ordered("no such output"))
    CHECK(API(P, KernelContext_GetOutput, P, size_t, int64_t *, size_t, P *)(context, 7, sizes, 0, &output));
  if (ordered("no such input"))
    CHECK(API(P, KernelContext_GetInput, P, size_t, P *)(context, 7, &output));
  return 0;
}

static P allocate_too_much(void) {
  P allocator, memory = 0;
  CHECK(API(P, GetAllocatorWithDefaultOptions, P *)(&allocator));
  CHECK(API(P, AllocatorAlloc, P, size_t, P *)(allocator, (size_t)1 << 60, &memory));
  return memory ? 0 : failed(FAIL, "the allocator gave null for 2**60 bytes");
}

static P unwritten(P context) { /* an entry that a run has no use for */
  P out = 0;
  return API(P, CreateOpaqueValue, S, S, P, size_t, P *)("d", "t", context, 8, &out);
}

static P compute(P info, P state, P context) {
  FAIL_IF("Compute");
  if (ordered("not implemented")) return failed(NOT_IMPLEMENTED, "not implemented, as ordered");
  if (ordered("words")) return failed(INVALID_ARGUMENT, "bad \xff bytes and \xe2\x82\xac");
  if (ordered("allocates too much")) CHECK(allocate_too_much());
  if (ordered("unwritten entry")) CHECK(unwritten(context));
  if (ordered("no output")) return 0;
  CHECK(odd_outputs(context));
  return ordered("own thread") ? in_a_thread(context) : relu(context);
}

/* the provider */

static S ep_name(P ep) { return ordered("null name") ? 0 : "FaultyExecutionProvider"; }

static int is_relu(P node) {
  S type = 0;
  P status = API(P, Node_GetOperatorType, P, S *)(node, &type);
  if (status) API(void, ReleaseStatus, P)(status);
  return type && !strcmp(type, "Relu");
}

static P get_capability(P ep, P graph, P support) {
  FAIL_IF("GetCapability");
  size_t count;
  P nodes[MOST];
  CHECK(API(P, Graph_GetNumNodes, P, size_t *)(graph, &count));
  if (count > MOST) return 0;
  CHECK(API(P, Graph_GetNodes, P, P *, size_t)(graph, nodes, count));
  P once[MOST];
  size_t taken = 0;
  for (size_t i = 0; i < count; i++)
    if (is_relu(nodes[i])) {
      once[taken++] = nodes[i];
      CHECK(EP_API(P, EpGraphSupportInfo_AddNodesToFuse, P, P *, size_t, P)(support, &nodes[i], 1, 0));
    }
  if (ordered("claims twice") && taken)
    CHECK(EP_API(P, EpGraphSupportInfo_AddNodesToFuse, P, P *, size_t, P)(support, once, 1, 0));
  if (ordered("claims none")) CHECK(EP_API(P, EpGraphSupportInfo_AddNodesToFuse, P, P *, size_t, P)(support, once, 0, 0));
  return 0;
}

static P compile(P ep, P *graphs, P *nodes, size_t count, P *infos, P *contexts) {
  FAIL_IF("Compile");
  for (size_t i = 0; i < count; i++) {
    if (ordered("no compute info")) continue;
    P *info = calloc(8, sizeof(P));
    *(uint32_t *)info = VERSION;
    info[OrtNodeComputeInfo_CreateState] = create_state;
    info[OrtNodeComputeInfo_Compute] = ordered("no Compute") ? 0 : (P)compute;
    info[OrtNodeComputeInfo_ReleaseState] = release_state;
    infos[i] = info;
    alive[INFOS]++;
  }
  return 0;
}

static void release_infos(P ep, P *infos, size_t count) {
  for (size_t i = 0; i < count; i++) {
    free(infos[i]);
    alive[INFOS]--;
  }
}

static P run_start(P ep, P options) {
  FAIL_IF("OnRunStart");
  return 0;
}

static P run_end(P ep, P options, _Bool sync) {
  FAIL_IF("OnRunEnd");
  return 0;
}

/* the factory */

static S factory_name(P factory) { return "FaultyExecutionProvider"; }
static S vendor(P factory) { return "Acme"; }
static S version(P factory) { return "1.2.3"; }
static uint32_t vendor_id(P factory) { return 0x1234; }

static P supported_devices(P factory, P *devices, size_t count, P *out, size_t room, size_t *made) {
  FAIL_IF("GetSupportedDevices");
  *made = 0;
  for (size_t i = 0; i < count && *made < room && !ordered("no device"); i++) {
    int type = API(int, HardwareDevice_Type, P)(devices[i]);
    if (type != 0) continue; /* not a CPU */
    P pairs;
    API(void, CreateKeyValuePairs, P *)(&pairs);
    API(void, AddKeyValuePair, P, S, S)(pairs, "flavour", "plain");
    P status = EP_API(P, CreateEpDevice, P, P, P, P, P *)(factory, devices[i], pairs, 0, &out[*made]);
    API(void, ReleaseKeyValuePairs, P)(pairs);
    CHECK(status);
    (*made)++;
  }
  return 0;
}

static P create_ep(P factory, P *devices, P *metadata, size_t count, P options, P logger, P *out) {
  FAIL_IF("CreateEp");
  if (ordered("no provider")) {
    *out = 0;
    return 0;
  }
  P *ep = calloc(64, sizeof(P));
  *(uint32_t *)ep = VERSION;
  ep[OrtEp_GetName] = ep_name;
  ep[OrtEp_GetCapability] = get_capability;
  ep[OrtEp_Compile] = compile;
  ep[OrtEp_ReleaseNodeComputeInfos] = release_infos;
  ep[OrtEp_OnRunStart] = run_start;
  ep[OrtEp_OnRunEnd] = run_end;
  *out = ep;
  alive[PROVIDERS]++;
  return 0;
}

static void release_ep(P factory, P ep) {
  free(ep);
  alive[PROVIDERS]--;
}

static P no_data_transfer(P factory, P *out) { /* onnxruntime 1.32 calls this without a look at whether it is there */
  *out = 0;
  return 0;
}

/* a thread of the plugin's own, which writes into the host's log until it is told to stop */

static P talk(P unused) {
  while (talking) {
    P status = API(P, Logger_LogMessage, P, int, S, S, int, S)(default_logger, 1, "from a thread of its own", "faulty_plugin.c", 1, "talk");
    if (status) API(void, ReleaseStatus, P)(status);
    records++;
  }
  return 0;
}

EXPORT long talk_for(int on) {
  if (on && !talking) {
    talking = 1;
    records = 0;
    pthread_create(&talker, 0, talk, 0);
  } else if (!on && talking) {
    talking = 0;
    pthread_join(talker, 0);
  }
  return records;
}

/* what the host looks for */

EXPORT P CreateEpFactories(S name, P *base, P logger, P *out, size_t room, size_t *made) {
  api = ((P(*)(uint32_t))base[OrtApiBase_GetApi])(ordered("too new") ? 1000 : VERSION);
  *made = 0;
  if (!api) { /* no table to make a status with: all that is left is to make nothing */
    return 0;
  }
  ep_api = API(P *, GetEpApi, void)();
  default_logger = logger;
  FAIL_IF("CreateEpFactories");
  if (ordered("no factory") || room < 1) return 0;
  P *factory = calloc(64, sizeof(P));
  *(uint32_t *)factory = ordered("of another version") ? 1 : VERSION;
  factory[OrtEpFactory_GetName] = factory_name;
  factory[OrtEpFactory_GetVendor] = vendor;
  factory[OrtEpFactory_GetVendorId] = vendor_id;
  factory[OrtEpFactory_GetVersion] = version;
  factory[OrtEpFactory_GetSupportedDevices] = supported_devices;
  factory[OrtEpFactory_CreateEp] = create_ep;
  factory[OrtEpFactory_ReleaseEp] = release_ep;
  factory[OrtEpFactory_CreateDataTransfer] = no_data_transfer;
  out[0] = factory;
  *made = 1;
  alive[FACTORIES]++;
  return 0;
}

static P last;

EXPORT P ReleaseEpFactory(P factory) {
  last = factory;
  FAIL_IF("ReleaseEpFactory");
  free(factory);
  alive[FACTORIES]--;
  return 0;
}

EXPORT void release_last(void) { ReleaseEpFactory(last); }
