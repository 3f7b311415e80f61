/* A plugin library of kernels in the host's memory: sums, products, comparisons, copies and transposes of small tensors; If, Loop
   and Scan, which it has the host make; GlobalAveragePool, with its channels last where that is what it prefers; and PRelu, whose
   slope is packed.

   entries.h, which the test writes, has the number of each entry of each table. */
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
#define NAME "KernelExecutionProvider"
#define CHECK(call)      \
  do {                   \
    P status_ = (call);  \
    if (status_) return status_; \
  } while (0)

static P *api, *ep_api, registry;
static atomic_long alive, helpers, joined, transposed, packed, shared, calls;
static long where_shared[4]; /* the last four */
static char layout[16], fault[32];

enum { FAIL = 1 };
enum { FLOAT = 1, INT64 = 7, BOOL = 9 };

EXPORT void count_kernels(long out[7]) {
  long found[] = {alive, helpers, joined, transposed, packed, shared, calls};
  memcpy(out, found, sizeof found);
}
EXPORT void places_shared(long out[4]) { memcpy(out, where_shared, sizeof where_shared); }
EXPORT void order_layout(S name) { strncpy(layout, name, sizeof layout - 1); }
EXPORT void order_fault(S name) { strncpy(fault, name, sizeof fault - 1); }

static P failed(S text) { return API(P, CreateStatus, int, S)(FAIL, text); }

/* tensors */

struct tensor {
  int64_t sizes[MOST];
  size_t rank, count;
  int type;
  P data;
};

static P describe(P value, struct tensor *out) {
  P shape;
  CHECK(API(P, GetTensorTypeAndShape, P, P *)(value, &shape));
  P status = API(P, GetDimensionsCount, P, size_t *)(shape, &out->rank);
  if (!status && out->rank > MOST) status = failed("too many dimensions");
  if (!status) status = API(P, GetDimensions, P, int64_t *, size_t)(shape, out->sizes, out->rank);
  if (!status) status = API(P, GetTensorElementType, P, int *)(shape, &out->type);
  API(void, ReleaseTensorTypeAndShapeInfo, P)(shape);
  CHECK(status);
  out->count = 1;
  for (size_t i = 0; i < out->rank; i++) out->count *= (size_t)out->sizes[i];
  return API(P, GetTensorMutableData, P, P *)(value, &out->data);
}

static P input(P context, size_t index, struct tensor *out) {
  P value;
  CHECK(API(P, KernelContext_GetInput, P, size_t, P *)(context, index, &value));
  return value ? describe(value, out) : failed("an input is not there");
}

static P output(P context, const int64_t *sizes, size_t rank, P *data) {
  P value;
  CHECK(API(P, KernelContext_GetOutput, P, size_t, const int64_t *, size_t, P *)(context, 0, sizes, rank, &value));
  return API(P, GetTensorMutableData, P, P *)(value, data);
}

static size_t width(int type) { return type == FLOAT ? 4 : type == INT64 ? 8 : 1; }

/* kernels */

enum kind { ADD, MUL, LESS, HARD_SIGMOID, IDENTITY, TRANSPOSE, POOL, POOL_LAST, PRELU, IF, LOOP, SCAN };

struct kernel {
  uint32_t version, flags;
  P compute, release, prepack, set_shared;
  enum kind kind;
  int64_t order[MOST]; /* Transpose's */
  size_t rank;
  float alpha, beta; /* HardSigmoid's */
  const float *weight; /* PRelu's slope, packed: half of it */
  int own;
};

static float of_two(enum kind kind, float a, float b) { return kind == ADD ? a + b : a * b; }

static P hard_sigmoid(struct kernel *kernel, P context) {
  struct tensor x;
  float *to;
  CHECK(input(context, 0, &x));
  CHECK(output(context, x.sizes, x.rank, (P *)&to));
  for (size_t i = 0; i < x.count; i++) {
    float value = ((float *)x.data)[i] * kernel->alpha + kernel->beta;
    to[i] = value < 0 ? 0 : value > 1 ? 1 : value;
  }
  return 0;
}

static size_t place_in(const struct tensor *x, const int64_t *sizes, size_t rank, size_t number) { /* of what is broadcast */
  size_t place = 0, step = 1;
  for (size_t d = rank; d-- > 0; number /= (size_t)sizes[d]) {
    if (rank - d > x->rank) continue;
    int64_t own = x->sizes[d - (rank - x->rank)];
    if (own != 1) place += number % (size_t)sizes[d] * step;
    step *= (size_t)own;
  }
  return place;
}

static P binary(enum kind kind, P context) {
  struct tensor a, b;
  int64_t sizes[MOST];
  P to;
  CHECK(input(context, 0, &a));
  CHECK(input(context, 1, &b));
  size_t rank = a.rank > b.rank ? a.rank : b.rank, count = 1;
  for (size_t d = 0; d < rank; d++) {
    int64_t x = d + a.rank < rank ? 1 : a.sizes[d + a.rank - rank], y = d + b.rank < rank ? 1 : b.sizes[d + b.rank - rank];
    if (x != y && x != 1 && y != 1) return failed("sizes do not fit");
    sizes[d] = x == 1 ? y : x;
    count *= (size_t)sizes[d];
  }
  CHECK(output(context, sizes, rank, &to));
  for (size_t i = 0; i < count; i++) {
    size_t j = place_in(&a, sizes, rank, i), k = place_in(&b, sizes, rank, i);
    if (a.type == INT64) {
      int64_t x = ((int64_t *)a.data)[j], y = ((int64_t *)b.data)[k];
      if (kind == LESS) ((char *)to)[i] = x < y;
      else ((int64_t *)to)[i] = kind == ADD ? x + y : x * y;
    } else {
      float x = ((float *)a.data)[j], y = ((float *)b.data)[k];
      if (kind == LESS) ((char *)to)[i] = x < y;
      else ((float *)to)[i] = of_two(kind, x, y);
    }
  }
  return 0;
}

static P identity(P context) {
  struct tensor x;
  P to;
  CHECK(input(context, 0, &x));
  if (!strcmp(fault, "half") && x.rank) x.count /= (size_t)x.sizes[0], x.sizes[0] /= 2, x.count *= (size_t)x.sizes[0];
  CHECK(output(context, x.sizes, x.rank, &to));
  memcpy(to, x.data, x.count * width(x.type));
  return 0;
}

static void turn(const struct tensor *a, const size_t *order, const int64_t *sizes, char *to) {
  size_t steps[MOST], step = width(a->type);
  for (size_t i = a->rank; i-- > 0; step *= (size_t)a->sizes[i]) steps[i] = step;
  for (size_t i = 0; i < a->count; i++) {
    size_t rest = i, place = 0;
    for (size_t d = a->rank; d-- > 0; rest /= (size_t)sizes[d]) place += rest % (size_t)sizes[d] * steps[order[d]];
    memcpy(to + i * width(a->type), (char *)a->data + place, width(a->type));
  }
}

static P transposed_value(struct kernel *kernel, P context) {
  struct tensor x;
  int64_t sizes[MOST];
  size_t order[MOST];
  P to;
  CHECK(input(context, 0, &x));
  if (kernel->rank != x.rank) return failed("expected as many axes as perm has");
  for (size_t i = 0; i < x.rank; i++) order[i] = (size_t)kernel->order[i], sizes[i] = x.sizes[order[i]];
  CHECK(output(context, sizes, x.rank, &to));
  turn(&x, order, sizes, to);
  return 0;
}

static P pool(P context, int last) { /* [n, h, w, c], or [n, c, h, w] */
  struct tensor x;
  float *to;
  CHECK(input(context, 0, &x));
  if (x.rank != 4) return failed("only pictures");
  int64_t sizes[] = {x.sizes[0], 1, 1, 1}, channels = x.sizes[last ? 3 : 1], points = x.sizes[2] * x.sizes[last ? 1 : 3];
  int64_t step = last ? channels : 1, rows = last ? 1 : points;
  sizes[last ? 3 : 1] = channels;
  CHECK(output(context, sizes, 4, (P *)&to));
  for (int64_t n = 0; n < sizes[0]; n++)
    for (int64_t c = 0; c < channels; c++) {
      double sum = 0;
      for (int64_t i = 0; i < points; i++) sum += ((float *)x.data)[n * points * channels + i * step + c * rows];
      to[n * channels + c] = (float)(sum / (double)points);
    }
  return 0;
}

static P prelu(struct kernel *kernel, P context) { /* of one slope, which is twice what was packed */
  struct tensor x, slope;
  float *to;
  CHECK(input(context, 0, &x));
  if (!kernel->weight) CHECK(input(context, 1, &slope));
  CHECK(output(context, x.sizes, x.rank, (P *)&to));
  for (size_t i = 0; i < x.count; i++) {
    float value = ((float *)x.data)[i], factor = kernel->weight ? 2 * kernel->weight[0] : ((float *)slope.data)[0];
    to[i] = value < 0 ? value * factor : value;
  }
  return 0;
}

static P compute(P this, P context) {
  struct kernel *kernel = this;
  calls++;
  if (!strcmp(fault, "Compute")) return failed("Compute fails as ordered");
  switch (kernel->kind) {
    case HARD_SIGMOID: return hard_sigmoid(kernel, context);
    case IDENTITY: return identity(context);
    case TRANSPOSE: return transposed_value(kernel, context);
    case POOL: return pool(context, 0);
    case POOL_LAST: return pool(context, 1);
    case PRELU: return prelu(kernel, context);
    default: return binary(kernel->kind, context);
  }
}

static void release(P this) {
  struct kernel *kernel = this;
  if (kernel->own) {
    P allocator, status = API(P, GetAllocatorWithDefaultOptions, P *)(&allocator);
    if (!status) status = API(P, AllocatorFree, P, P)(allocator, (P)kernel->weight);
    if (status) API(void, ReleaseStatus, P)(status);
  }
  free(this);
  alive--;
}

static P prepack(P this, P value, int index, P allocator, P cache, _Bool *done) {
  struct kernel *kernel = this;
  struct tensor weight;
  *done = 0;
  if (kernel->kind != PRELU || index != 1) return 0;
  CHECK(describe(value, &weight));
  float *half;
  CHECK(API(P, AllocatorAlloc, P, size_t, P *)(allocator, weight.count * sizeof *half, (P *)&half));
  for (size_t i = 0; i < weight.count; i++) half[i] = ((float *)weight.data)[i] / 2;
  packed++;
  *done = 1;
  if (!cache) return failed("no cache of packed weights was given");
  if (!strcmp(fault, "own weight")) { /* not left to be shared */
    kernel->weight = half;
    kernel->own = 1;
    return 0;
  }
  P buffers[] = {half};
  size_t sizes[] = {weight.count * sizeof *half};
  return EP_API(P, SharedPrePackedWeightCache_StoreWeightData, P, P *, size_t *, size_t)(cache, buffers, sizes, 1);
}

static P set_shared(P this, const P *buffers, const size_t *sizes, size_t count, int index) {
  struct kernel *kernel = this;
  if (count != 1 || index != 1 || sizes[0] < sizeof(float)) return failed("not what was packed");
  if (!strcmp(fault, "SetSharedPrePackedWeight")) return failed("SetSharedPrePackedWeight fails as ordered");
  kernel->weight = buffers[0];
  where_shared[shared++ % 4] = (long)(intptr_t)buffers[0];
  return 0;
}

/* helpers of control flow */

static void release_helper(P this) {
  free(this);
  helpers--;
}

static P join(P this, P stream, const P *values, size_t count, P to, size_t nbytes) {
  joined++;
  if (!strcmp(fault, "ConcatOutput")) return failed("ConcatOutput fails as ordered");
  for (size_t i = 0; i < count; i++) {
    struct tensor value;
    CHECK(describe(values[i], &value));
    size_t each = value.count * width(value.type);
    if ((i + 1) * each > nbytes) return failed("no room");
    memcpy((char *)to + i * each, value.data, each);
  }
  return 0;
}

static P transpose(P this, const size_t *order, size_t rank, P from, P stream, P to) {
  transposed++;
  if (!strcmp(fault, "Transpose")) return failed("Transpose fails as ordered");
  struct tensor a, b;
  CHECK(describe(from, &a));
  CHECK(describe(to, &b));
  if (a.rank != rank || b.rank != rank || a.count != b.count) return failed("sizes do not fit");
  turn(&a, order, b.sizes, b.data);
  return 0;
}

static P helper(P function) {
  P *made = calloc(4, sizeof(P));
  *(uint32_t *)made = VERSION;
  made[OrtLoopKernelHelper_Release] = release_helper;
  made[OrtLoopKernelHelper_ConcatOutput] = function;
  helpers++;
  return made;
}

static P create(P state, P info, P *out) {
  enum kind kind = (enum kind)(intptr_t)state;
  P status, help;
  if (!strcmp(fault, "create")) return failed("create fails as ordered");
  switch (kind) {
    case IF: return EP_API(P, CreateIfKernel, P, P *)(info, out);
    case LOOP:
      help = helper(join);
      status = EP_API(P, CreateLoopKernel, P, P, P *)(info, help, out);
      break;
    case SCAN:
      help = helper(transpose);
      status = EP_API(P, CreateScanKernel, P, P, P *)(info, help, out);
      break;
    default: {
      struct kernel *kernel = calloc(1, sizeof *kernel);
      kernel->version = VERSION;
      kernel->compute = compute;
      kernel->release = release;
      kernel->prepack = prepack;
      kernel->set_shared = set_shared;
      kernel->kind = kind;
      kernel->rank = MOST;
      status = kind == TRANSPOSE ? API(P, KernelInfoGetAttributeArray_int64, P, S, int64_t *, size_t *)(
                                       info, "perm", kernel->order, &kernel->rank)
                                 : 0;
      if (kind == HARD_SIGMOID) status = API(P, KernelInfoGetAttribute_float, P, S, float *)(info, "alpha", &kernel->alpha);
      if (kind == HARD_SIGMOID && !status) status = API(P, KernelInfoGetAttribute_float, P, S, float *)(info, "beta", &kernel->beta);
      if (status) {
        free(kernel);
        return status;
      }
      *out = kernel;
      alive++;
      return 0;
    }
  }
  if (status) release_helper(help); /* the host has it where it made the kernel */
  return status;
}

/* registration */

static P add(S domain, S name, int since, int until, enum kind kind, S variable, const int *types, size_t count) {
  P builder, definition, found[8];
  CHECK(EP_API(P, CreateKernelDefBuilder, P *)(&builder));
  CHECK(EP_API(P, KernelDefBuilder_SetOperatorType, P, S)(builder, name));
  CHECK(EP_API(P, KernelDefBuilder_SetDomain, P, S)(builder, domain));
  CHECK(EP_API(P, KernelDefBuilder_SetSinceVersion, P, int, int)(builder, since, until));
  CHECK(EP_API(P, KernelDefBuilder_SetExecutionProvider, P, S)(builder, NAME));
  for (size_t i = 0; i < count; i++) CHECK(EP_API(P, GetTensorDataType, int, P *)(types[i], &found[i]));
  CHECK(EP_API(P, KernelDefBuilder_AddTypeConstraint, P, S, P *, size_t)(builder, variable, found, count));
  CHECK(EP_API(P, KernelDefBuilder_Build, P, P *)(builder, &definition));
  EP_API(void, ReleaseKernelDefBuilder, P)(builder);
  P status = EP_API(P, KernelRegistry_AddKernel, P, P, P, P)(registry, definition, create, (P)(intptr_t)kind);
  EP_API(void, ReleaseKernelDef, P)(definition);
  return status;
}

static P fill_registry(void) {
  static const int all[] = {FLOAT, INT64, BOOL}, floats[] = {FLOAT}, numbers[] = {FLOAT, INT64};
  const int newest = 0x7fffffff;
  if (registry) return 0;
  CHECK(EP_API(P, CreateKernelRegistry, P *)(&registry));
  CHECK(add("", "Add", 14, newest, ADD, "T", numbers, 2));
  CHECK(add("", "Mul", 14, newest, MUL, "T", numbers, 2));
  CHECK(add("", "Less", 13, newest, LESS, "T", numbers, 2));
  CHECK(add("", "HardSigmoid", 6, newest, HARD_SIGMOID, "T", floats, 1));
  CHECK(add("", "Identity", 1, 13, IDENTITY, "T", all, 3));
  CHECK(add("", "Identity", 14, 25, IDENTITY, "V", all, 3));
  CHECK(add("", "If", 11, 25, IF, "V", all, 3));
  CHECK(add("", "Loop", 11, 25, LOOP, "V", all, 3));
  CHECK(add("", "Scan", 8, 25, SCAN, "V", all, 3));
  CHECK(add("", "Transpose", 13, 20, TRANSPOSE, "T", all, 3));
  CHECK(add("", "GlobalAveragePool", 1, newest, POOL, "T", floats, 1));
  CHECK(add("com.ms.internal.nhwc", "GlobalAveragePool", 1, newest, POOL_LAST, "T", floats, 1));
  return add("", "PRelu", 16, newest, PRELU, "T", floats, 1);
}

/* the provider */

static S ep_name(P ep) { return NAME; }

static P get_capability(P ep, P graph, P support) {
  size_t count;
  P nodes[MOST], kernel;
  CHECK(API(P, Graph_GetNumNodes, P, size_t *)(graph, &count));
  if (count > MOST) return 0;
  CHECK(API(P, Graph_GetNodes, P, P *, size_t)(graph, nodes, count));
  for (size_t i = 0; i < count; i++) {
    CHECK(EP_API(P, EpGraphSupportInfo_LookUpKernel, P, P, P *)(support, nodes[i], &kernel));
    if (kernel) CHECK(EP_API(P, EpGraphSupportInfo_AddSingleNode, P, P)(support, nodes[i]));
  }
  return 0;
}

static P get_registry(P ep, P *out) {
  *out = registry;
  return 0;
}

static P preferred_layout(P ep, int *out) {
  *out = !strcmp(layout, "NHWC");
  return 0;
}

static P convert_layout(P ep, S domain, S name, int wanted, int *out) {
  *out = !strcmp(name, "GlobalAveragePool") ? 1 : -1;
  return 0;
}

static P supported_devices(P factory, P *devices, size_t count, P *out, size_t room, size_t *made) {
  *made = 0;
  for (size_t i = 0; i < count && *made < room; i++)
    if (API(int, HardwareDevice_Type, P)(devices[i]) == 0) {
      CHECK(EP_API(P, CreateEpDevice, P, P, P, P, P *)(factory, devices[i], 0, 0, &out[*made]));
      (*made)++;
    }
  return 0;
}

static P create_ep(P factory, P *devices, P *metadata, size_t count, P options, P logger, P *out) {
  CHECK(fill_registry());
  P *ep = calloc(64, sizeof(P));
  *(uint32_t *)ep = VERSION;
  ep[OrtEp_GetName] = ep_name;
  ep[OrtEp_GetCapability] = get_capability;
  ep[OrtEp_GetKernelRegistry] = get_registry;
  ep[OrtEp_GetPreferredDataLayout] = preferred_layout;
  ep[OrtEp_ShouldConvertDataLayoutForOp] = convert_layout;
  *out = ep;
  return 0;
}

static void release_ep(P factory, P ep) { free(ep); }
static S text(P factory) { return NAME; }
static S version(P factory) { return "1.0.0"; }
static uint32_t vendor_id(P factory) { return 0x1234; }
static P no_data_transfer(P factory, P *out) {
  *out = 0;
  return 0;
}

EXPORT P CreateEpFactories(S name, P *base, P logger, P *out, size_t room, size_t *made) {
  api = ((P(*)(uint32_t))base[OrtApiBase_GetApi])(VERSION);
  *made = 0;
  if (!api || room < 1) return 0;
  ep_api = API(P *, GetEpApi, void)();
  P *factory = calloc(64, sizeof(P));
  *(uint32_t *)factory = VERSION;
  factory[OrtEpFactory_GetName] = text;
  factory[OrtEpFactory_GetVendor] = text;
  factory[OrtEpFactory_GetVendorId] = vendor_id;
  factory[OrtEpFactory_GetVersion] = version;
  factory[OrtEpFactory_GetSupportedDevices] = supported_devices;
  factory[OrtEpFactory_CreateEp] = create_ep;
  factory[OrtEpFactory_ReleaseEp] = release_ep;
  factory[OrtEpFactory_CreateDataTransfer] = no_data_transfer;
  out[0] = factory;
  *made = 1;
  return 0;
}

EXPORT P ReleaseEpFactory(P factory) {
  if (registry) EP_API(void, ReleaseKernelRegistry, P)(registry);
  registry = 0;
  free(factory);
  return 0;
}
