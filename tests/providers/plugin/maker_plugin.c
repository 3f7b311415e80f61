/* A plugin library that makes EPContext nodes, models and profiling events by onnxruntime's interface: it computes Relu.

   Nodes named "add" are taken too (they add an initializer), so that a test sees what a plugin is told of initializers.
   entries.h, which the test writes, has the number of each entry of each table. */
#include <math.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "entries.h"

typedef void *P;
typedef const char *S;
#define EXPORT __attribute__((visibility("default")))
#define API(result, name, ...) ((result(*)(__VA_ARGS__))api[OrtApi_##name])
#define EP_API(result, name, ...) ((result(*)(__VA_ARGS__))ep_api[OrtEpApi_##name])
#define EDIT(name, ...) ((P(*)(__VA_ARGS__))editor[OrtModelEditorApi_##name])
#define COMPILE(name, ...) ((P(*)(__VA_ARGS__))compiler[OrtCompileApi_##name])
#define NAME "MakerExecutionProvider"
#define MOST 64
#define CHECK(call)              \
  do {                           \
    P status_ = (call);          \
    if (status_) return status_; \
  } while (0)

enum { FAIL = 1, INVALID_ARGUMENT = 2, EP_FAIL = 11 };
enum { INT = 1, INTS, FLOAT, FLOATS, STRING, STRINGS };
enum { FLOAT32 = 1 };

static P *api, *ep_api, *editor, *compiler;
static char notes[1 << 14]; /* what a test reads: one line for each thing that the plugin was told */
static int compiles, embed, weightless, made_contexts;

EXPORT S read_notes(void) { return notes; }
EXPORT void clear_notes(void) { notes[0] = 0; compiles = 0; }
static void note(S line) {
  strncat(notes, line, sizeof notes - strlen(notes) - 2);
  strcat(notes, "\n");
}
static P failed(int code, S text) { return API(P, CreateStatus, int, S)(code, text); }

typedef struct {
  P table[8];
  int is_add;
  float offset;
  char scale[16];
} Info;

/* runs */

static P create_state(P info, P context, P *state) { *state = info; return 0; }
static void release_state(P info, P state) {}

static P compute(Info *info, P state, P context) {
  int64_t sizes[MOST];
  size_t rank, count = 1;
  P input, output, shape;
  float *from, *to;
  CHECK(API(P, KernelContext_GetInput, P, size_t, P *)(context, 0, &input));
  CHECK(API(P, GetTensorTypeAndShape, P, P *)(input, &shape));
  CHECK(API(P, GetDimensionsCount, P, size_t *)(shape, &rank));
  CHECK(API(P, GetDimensions, P, int64_t *, size_t)(shape, sizes, rank));
  API(void, ReleaseTensorTypeAndShapeInfo, P)(shape);
  for (size_t i = 0; i < rank; i++) count *= (size_t)sizes[i];
  CHECK(API(P, KernelContext_GetOutput, P, size_t, int64_t *, size_t, P *)(context, 0, sizes, rank, &output));
  CHECK(API(P, GetTensorMutableData, P, P *)(input, (P *)&from));
  CHECK(API(P, GetTensorMutableData, P, P *)(output, (P *)&to));
  for (size_t i = 0; i < count; i++) to[i] = info->is_add ? from[i] + info->offset : (from[i] > 0 ? from[i] : 0);
  return 0;
}

/* parts that were compiled ahead */

static P text_attribute(P node, S name, char *out, size_t room) {
  P attribute = 0;
  size_t nbytes = 0;
  out[0] = 0;
  CHECK(API(P, Node_GetAttributeByName, P, S, P *)(node, name, &attribute));
  if (!attribute) return 0;
  CHECK(API(P, ReadOpAttr, P, int, P, size_t, size_t *)(attribute, STRING, out, room - 1, &nbytes));
  out[nbytes] = 0;
  return 0;
}

static P number_attribute(P node, S name, int64_t *out) {
  P attribute = 0;
  size_t nbytes = 0;
  CHECK(API(P, Node_GetAttributeByName, P, S, P *)(node, name, &attribute));
  if (!attribute) return failed(FAIL, "a default is missing");
  return API(P, ReadOpAttr, P, int, P, size_t, size_t *)(attribute, INT, out, 8, &nbytes);
}

static P attribute(S name, const void *data, int count, int type, P *out) {
  return API(P, CreateOpAttr, S, const void *, int, int, P *)(name, data, count, type, out);
}

static P context_node(P fused, int place, P *out) {
  P ins[MOST], outs[MOST], attributes[9];
  S in_names[MOST], out_names[MOST], words[2] = {"one", "two"};
  size_t in_count, out_count;
  int64_t main_context = place == 0, mode = embed, list[3] = {1, 2, 3};
  float half = 0.5f, floats[2] = {0.25f, 4};
  char name[32];
  CHECK(API(P, Node_GetNumInputs, P, size_t *)(fused, &in_count));
  CHECK(API(P, Node_GetInputs, P, P *, size_t)(fused, ins, in_count));
  CHECK(API(P, Node_GetNumOutputs, P, size_t *)(fused, &out_count));
  CHECK(API(P, Node_GetOutputs, P, P *, size_t)(fused, outs, out_count));
  for (size_t i = 0; i < in_count; i++) CHECK(API(P, GetValueInfoName, P, S *)(ins[i], &in_names[i]));
  for (size_t i = 0; i < out_count; i++) CHECK(API(P, GetValueInfoName, P, S *)(outs[i], &out_names[i]));
  snprintf(name, sizeof name, "made_%d", place);
  CHECK(attribute("main_context", &main_context, 1, INT, &attributes[0]));
  CHECK(attribute("embed_mode", &mode, 1, INT, &attributes[1]));
  CHECK(attribute("ep_cache_context", "relu \xff\x01", 7, STRING, &attributes[2]));
  CHECK(attribute("source", NAME, (int)strlen(NAME), STRING, &attributes[3]));
  CHECK(attribute("half", &half, 1, FLOAT, &attributes[4]));
  CHECK(attribute("floats", floats, 2, FLOATS, &attributes[5]));
  CHECK(attribute("list", list, 3, INTS, &attributes[6]));
  CHECK(attribute("words", words, 2, STRINGS, &attributes[7]));
  /* the node takes its attributes over */
  return EDIT(CreateNode, S, S, S, S *, size_t, S *, size_t, P *, size_t, P *)(
      "EPContext", "com.microsoft", name, in_names, in_count, out_names, out_count, attributes, 8, out);
}

static P told_of_initializers(P graph, Info *info) {
  P values[MOST], value, external;
  size_t count;
  float *data;
  S name, path = 0, model = 0;
  char line[512];
  CHECK(API(P, Graph_GetModelPath, P, S *)(graph, &model));
  CHECK(API(P, Graph_GetNumInitializers, P, size_t *)(graph, &count));
  CHECK(API(P, Graph_GetInitializers, P, P *, size_t)(graph, values, count));
  for (size_t i = 0; i < count; i++) {
    CHECK(API(P, GetValueInfoName, P, S *)(values[i], &name));
    CHECK(API(P, ValueInfo_GetExternalInitializerInfo, P, P *)(values[i], &external));
    if (external) {
      path = API(S, ExternalInitializerInfo_GetFilePath, P)(external);
      snprintf(line, sizeof line, "initializer %s %s %ld %zu of %s", name, path,
               (long)API(int64_t, ExternalInitializerInfo_GetFileOffset, P)(external),
               API(size_t, ExternalInitializerInfo_GetByteSize, P)(external), model);
      API(void, ReleaseExternalInitializerInfo, P)(external);
    } else {
      snprintf(line, sizeof line, "initializer %s inside", name);
    }
    note(line);
    CHECK(API(P, ValueInfo_GetInitializerValue, P, P *)(values[i], &value));
    CHECK(API(P, GetTensorMutableData, P, P *)(value, (P *)&data));
    info->offset = data[0];
  }
  return 0;
}

static P compiled(P graph, Info *info) {
  P node;
  S type;
  char text[256];
  int64_t main_context, mode;
  CHECK(API(P, Graph_GetNodes, P, P *, size_t)(graph, &node, 1));
  CHECK(API(P, Node_GetOperatorType, P, S *)(node, &type));
  info->is_add = !strcmp(type, "Add");
  if (info->is_add) return told_of_initializers(graph, info);
  if (strcmp(type, "EPContext")) return 0;
  CHECK(text_attribute(node, "ep_cache_context", text, sizeof text));
  CHECK(number_attribute(node, "main_context", &main_context));
  CHECK(number_attribute(node, "embed_mode", &mode));
  char line[512];
  snprintf(line, sizeof line, "restored main %ld embed %ld", (long)main_context, (long)mode);
  note(line);
  if (mode && strncmp(text, "relu \xff", 6)) return failed(EP_FAIL, "these bytes are not the maker's");
  return 0;
}

static P compile(P ep, P *graphs, P *fused, size_t count, P *infos, P *contexts) {
  char line[64];
  snprintf(line, sizeof line, "compile %zu", count);
  note(line);
  compiles++;
  for (size_t i = 0; i < count; i++) {
    Info *info = calloc(1, sizeof(Info));
    *(uint32_t *)info = VERSION;
    info->table[OrtNodeComputeInfo_CreateState] = create_state;
    info->table[OrtNodeComputeInfo_Compute] = compute;
    info->table[OrtNodeComputeInfo_ReleaseState] = release_state;
    P status = compiled(graphs[i], info);
    if (!status && made_contexts) status = context_node(fused[i], (int)i, &contexts[i]);
    if (status) {
      free(info);
      return status;
    }
    infos[i] = info;
  }
  return 0;
}

static void release_infos(P ep, P *infos, size_t count) {
  for (size_t i = 0; i < count; i++) free(infos[i]);
}

/* the provider */

static S ep_name(P ep) { return NAME; }

static P get_capability(P ep, P graph, P support) {
  size_t count;
  P nodes[MOST];
  S type, name;
  char source[64];
  CHECK(API(P, Graph_GetNumNodes, P, size_t *)(graph, &count));
  CHECK(API(P, Graph_GetNodes, P, P *, size_t)(graph, nodes, count > MOST ? MOST : count));
  for (size_t i = 0; i < count && i < MOST; i++) {
    CHECK(API(P, Node_GetOperatorType, P, S *)(nodes[i], &type));
    CHECK(API(P, Node_GetName, P, S *)(nodes[i], &name));
    int wanted = !strcmp(type, "Relu") || !strcmp(name, "add");
    if (!strcmp(type, "EPContext")) {
      CHECK(text_attribute(nodes[i], "source", source, sizeof source));
      wanted = !strcmp(source, NAME);
    }
    struct { uint32_t version; _Bool drop; } options = {VERSION, 1};
    if (wanted) CHECK(EP_API(P, EpGraphSupportInfo_AddNodesToFuse, P, P *, size_t, P)(support, &nodes[i], 1, &options));
  }
  return 0;
}

static S compatibility(P ep, P graph) { return "maker 1"; }

static P set_dynamic(P ep, S *keys, S *values, size_t count) {
  char line[256];
  for (size_t i = 0; i < count; i++) {
    if (!strcmp(values[i], "bad")) return failed(INVALID_ARGUMENT, "bad is no value");
    snprintf(line, sizeof line, "dynamic %s=%s", keys[i], values[i]);
    note(line);
  }
  return 0;
}

static P run_start(P ep, P options) {
  S tag = "", entry = API(S, GetRunConfigEntry, P, S)(options, "maker.key");
  CHECK(API(P, RunOptionsGetRunTag, P, S *)(options, &tag));
  char line[256];
  snprintf(line, sizeof line, "run %s %s", tag, entry ? entry : "-");
  note(line);
  return 0;
}

/* the profiler */

static int64_t offset_ns;

static P start_profiling(P self, int64_t offset) { offset_ns = offset; note("profiling begins"); return 0; }
static P start_event(P self, uint64_t key) { return key ? 0 : failed(FAIL, "no key"); }
static P stop_event(P self, uint64_t key, P event) {
  S name, provider;
  int category;
  int64_t start, duration;
  char line[256];
  CHECK(EP_API(P, ProfilingEvent_GetName, P, S *)(event, &name));
  CHECK(EP_API(P, ProfilingEvent_GetCategory, P, int *)(event, &category));
  CHECK(EP_API(P, ProfilingEvent_GetTimestampUs, P, int64_t *)(event, &start));
  CHECK(EP_API(P, ProfilingEvent_GetDurationUs, P, int64_t *)(event, &duration));
  CHECK(EP_API(P, ProfilingEvent_GetArgValue, P, S, S *)(event, "provider", &provider));
  snprintf(line, sizeof line, "event %s category %d of %s %d", name, category, provider, start >= 0 && duration >= 0);
  note(line);
  return 0;
}
static P end_profiling(P self, P container) {
  P event;
  S keys[1] = {"engine"}, values[1] = {"acme"};
  CHECK(EP_API(P, CreateProfilingEvent, int, int32_t, int32_t, S, int64_t, int64_t, S *, S *, size_t, P *)(
      2, -1, 7, "acme_kernel", offset_ns / 1000, 42, keys, values, 1, &event));
  P status = EP_API(P, ProfilingEventsContainer_AddEvents, P, P *, size_t)(container, &event, 1);
  EP_API(void, ReleaseProfilingEvent, P)(event);
  note("profiling ends");
  return status;
}
static void release_profiler(P self) { free(self); note("profiler released"); }
static P create_profiler(P ep, P *out) {
  P *made = calloc(16, sizeof(P));
  *(uint32_t *)made = VERSION;
  made[OrtEpProfilerImpl_Release] = release_profiler;
  made[OrtEpProfilerImpl_StartProfiling] = start_profiling;
  made[OrtEpProfilerImpl_StartEvent] = start_event;
  made[OrtEpProfilerImpl_StopEvent] = stop_event;
  made[OrtEpProfilerImpl_EndProfiling] = end_profiling;
  *out = made;
  return 0;
}

static P weightless_support(P ep, int *out) { *out = 1; return 0; }

/* a model of the plugin's own, compiled by the host */

static P tensor_value(S name, const int64_t *sizes, size_t rank, S symbol, P *out) {
  P shape, type;
  S symbols[2] = {symbol, ""};
  CHECK(API(P, CreateTensorTypeAndShapeInfo, P *)(&shape));
  CHECK(API(P, SetTensorElementType, P, int)(shape, FLOAT32));
  CHECK(API(P, SetDimensions, P, const int64_t *, size_t)(shape, sizes, rank));
  CHECK(API(P, SetSymbolicDimensions, P, S *, size_t)(shape, symbols, rank));
  CHECK(EDIT(CreateTensorTypeInfo, P, P *)(shape, &type));
  API(void, ReleaseTensorTypeAndShapeInfo, P)(shape);
  P status = EDIT(CreateValueInfo, S, P, P *)(name, type, out);
  API(void, ReleaseTypeInfo, P)(type);
  return status;
}

static char *bytes;
static size_t nbytes;

static P written(P state, const void *data, size_t count) {
  bytes = malloc(count);
  memcpy(bytes, data, nbytes = count);
  return 0;
}

static P make_model(int by_function) {
  int64_t sizes[2] = {-1, 2}, one[1] = {2};
  P in, out, graph, model, node, value, allocator, environment, session, options;
  S ins[2] = {"x", "w"}, outs[1] = {"y"}, domains[1] = {""};
  int versions[1] = {17};
  float *data;
  CHECK(tensor_value("x", sizes, 2, "n", &in));
  CHECK(tensor_value("y", sizes, 2, "n", &out));
  CHECK(EDIT(CreateGraph, P *)(&graph));
  CHECK(EDIT(SetGraphInputs, P, P *, size_t)(graph, &in, 1));
  CHECK(EDIT(SetGraphOutputs, P, P *, size_t)(graph, &out, 1));
  if (in || out) return failed(FAIL, "the graph did not take its values over");
  CHECK(API(P, GetAllocatorWithDefaultOptions, P *)(&allocator));
  CHECK(API(P, CreateTensorAsOrtValue, P, int64_t *, size_t, int, P *)(allocator, one, 1, FLOAT32, &value));
  CHECK(API(P, GetTensorMutableData, P, P *)(value, (P *)&data));
  data[0] = 3, data[1] = -1;
  CHECK(EDIT(AddInitializerToGraph, P, S, P, _Bool)(graph, "w", value, 0));
  CHECK(EDIT(CreateNode, S, S, S, S *, size_t, S *, size_t, P *, size_t, P *)("Mul", "", "mul", ins, 2, outs, 1, 0, 0, &node));
  CHECK(EDIT(AddNodeToGraph, P, P)(graph, node));
  P twice = EDIT(AddNodeToGraph, P, P)(graph, node);
  if (!twice) return failed(FAIL, "a node was added twice");
  API(void, ReleaseStatus, P)(twice);
  CHECK(EDIT(CreateModel, S *, int *, size_t, P *)(domains, versions, 1, &model));
  CHECK(EDIT(AddGraphToModel, P, P)(model, graph));
  CHECK(API(P, CreateEnv, int, S, P *)(2, "maker", &environment));
  CHECK(API(P, CreateSessionOptions, P *)(&session));
  CHECK(API(P, AddSessionConfigEntry, P, S, S)(session, "session.provider_fallback", "error"));
  CHECK(COMPILE(CreateModelCompilationOptionsFromSessionOptions, P, P, P *)(environment, session, &options));
  CHECK(COMPILE(ModelCompilationOptions_SetInputModel, P, P)(options, model));
  CHECK(COMPILE(ModelCompilationOptions_SetEpContextEmbedMode, P, _Bool)(options, 1));
  CHECK(COMPILE(ModelCompilationOptions_SetFlags, P, uint32_t)(options, 1));
  if (by_function)
    CHECK(COMPILE(ModelCompilationOptions_SetOutputModelWriteFunc, P, P, P)(options, written, 0));
  else
    CHECK(COMPILE(ModelCompilationOptions_SetOutputModelBuffer, P, P, P *, size_t *)(options, allocator, (P *)&bytes, &nbytes));
  P status = COMPILE(CompileModel, P, P)(environment, options);
  ((void (*)(P))compiler[OrtCompileApi_ReleaseModelCompilationOptions])(options);
  API(void, ReleaseSessionOptions, P)(session);
  API(void, ReleaseEnv, P)(environment);
  API(void, ReleaseModel, P)(model);
  return status;
}

EXPORT S compiled_model(int by_function, char **out, size_t *count) {
  static char words[1024];
  words[0] = 0;
  P status = make_model(by_function);
  if (status) {
    strncpy(words, API(S, GetErrorMessage, P)(status), sizeof words - 1);
    API(void, ReleaseStatus, P)(status);
  }
  *out = bytes, *count = nbytes;
  return words;
}

EXPORT int code_of_unwritten(char *words, size_t room) { /* an entry that the host does not have */
  P out = 0, status = EDIT(CreateSessionFromModel, P, P, P, P *)(0, 0, 0, &out);
  if (!status) return 0;
  int code = API(int, GetErrorCode, P)(status);
  strncpy(words, API(S, GetErrorMessage, P)(status), room - 1);
  API(void, ReleaseStatus, P)(status);
  return code;
}

/* the factory */

static S factory_name(P factory) { return NAME; }
static S vendor(P factory) { return "Acme"; }
static S version(P factory) { return "2.0.0"; }

static P supported_devices(P factory, P *devices, size_t count, P *out, size_t room, size_t *made) {
  *made = 0;
  for (size_t i = 0; i < count && *made < room; i++)
    if (API(int, HardwareDevice_Type, P)(devices[i]) == 0)
      CHECK(EP_API(P, CreateEpDevice, P, P, P, P, P *)(factory, devices[i], 0, 0, &out[(*made)++]));
  return 0;
}

static int flag(P options, S key) {
  char text[8] = "";
  size_t room = sizeof text;
  int there = 0;
  API(P, HasSessionConfigEntry, P, S, int *)(options, key, &there);
  if (there) API(P, GetSessionConfigEntry, P, S, char *, size_t *)(options, key, text, &room);
  return !strcmp(text, "1");
}

static P create_ep(P factory, P *devices, P *metadata, size_t count, P options, P logger, P *out) {
  P *ep = calloc(64, sizeof(P));
  char line[64];
  *(uint32_t *)ep = VERSION;
  ep[OrtEp_GetName] = ep_name;
  ep[OrtEp_GetCapability] = get_capability;
  ep[OrtEp_Compile] = compile;
  ep[OrtEp_ReleaseNodeComputeInfos] = release_infos;
  ep[OrtEp_SetDynamicOptions] = set_dynamic;
  ep[OrtEp_OnRunStart] = run_start;
  ep[OrtEp_GetCompiledModelCompatibilityInfo] = compatibility;
  ep[OrtEp_CreateProfiler] = create_profiler;
  ep[OrtEp_GetWeightlessSupport] = weightless_support;
  made_contexts = flag(options, "ep.context_enable");
  embed = flag(options, "ep.context_embed_mode");
  weightless = flag(options, "ep.enable_weightless");
  snprintf(line, sizeof line, "provider contexts %d embed %d weightless %d", made_contexts, embed, weightless);
  note(line);
  *out = ep;
  return 0;
}

static void release_ep(P factory, P ep) { free(ep); }

static P validate(P factory, P *devices, size_t count, S info, int *out) {
  *out = !strcmp(info, "maker 1") ? 1 : !strcmp(info, "maker 0") ? 2 : !strcmp(info, "maker 9") ? 3 : 0;
  return 0;
}

static P incompatibility(P factory, P device, P details) {
  if (API(uint32_t, HardwareDevice_VendorId, P)(device) != 0xdead) return 0;
  return EP_API(P, DeviceEpIncompatibilityDetails_SetDetails, P, uint32_t, int32_t, S)(details, 2, 77, "made of clay");
}

static P no_data_transfer(P factory, P *out) { *out = 0; return 0; }

EXPORT P CreateEpFactories(S name, P *base, P logger, P *out, size_t room, size_t *made) {
  *made = 0;
  api = ((P(*)(uint32_t))base[OrtApiBase_GetApi])(VERSION);
  if (!api || room < 1) return 0;
  ep_api = API(P *, GetEpApi, void)();
  editor = API(P *, GetModelEditorApi, void)();
  compiler = API(P *, GetCompileApi, void)();
  P *factory = calloc(64, sizeof(P));
  *(uint32_t *)factory = VERSION;
  factory[OrtEpFactory_GetName] = factory_name;
  factory[OrtEpFactory_GetVendor] = vendor;
  factory[OrtEpFactory_GetVersion] = version;
  factory[OrtEpFactory_GetSupportedDevices] = supported_devices;
  factory[OrtEpFactory_CreateEp] = create_ep;
  factory[OrtEpFactory_ReleaseEp] = release_ep;
  factory[OrtEpFactory_ValidateCompiledModelCompatibilityInfo] = validate;
  factory[OrtEpFactory_CreateDataTransfer] = no_data_transfer;
  factory[OrtEpFactory_GetHardwareDeviceIncompatibilityDetails] = incompatibility;
  out[0] = factory;
  *made = 1;
  return 0;
}

EXPORT P ReleaseEpFactory(P factory) {
  free(factory);
  return 0;
}
