// CUDA C on a processor: the threads of a group as fibres, in turn from barrier to barrier; what a warp does together (mma, ldmatrix)
// by the layouts of the PTX ISA (9.7.14, "Matrix Fragments for mma.m16n8k16 with floating point type", "... mma.m16n8k8",
// "ldmatrix"). Copies into shared memory take place when they are waited for, or all at once, and shared memory starts as NaN, so
// that a wait or a barrier that is missing shows in one of the two. A kernel's text is compiled with
// cuda_emulation.h in front of it, without the dialect's functions.
#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>

#include <vector>

#include "cuda_emulation.h"

// --- threads ---

enum { RUNS, AT_GROUP, AT_WARP, DONE };
struct Copy { void* to; const void* from; bool inside; };
struct Fibre {
  ucontext_t context;
  std::vector<char> stack;
  int state;
  std::vector<std::vector<Copy>> sets;  // the last one is open
};
static std::vector<Fibre> fibres;
static ucontext_t scheduler;
static Fibre* current;
Index threadIdx, blockIdx, gridDim;

static void fail(const char* what) {
  fprintf(stderr, "emulation: %s (thread %d)\n", what, threadIdx.x);
  abort();
}
static void stop_at(int state) {
  current->state = state;
  swapcontext(&current->context, &scheduler);
}
void __syncthreads() { stop_at(AT_GROUP); }

// --- a warp ---

struct Warp { unsigned int a[32][4], b[32][2]; const char* line[32]; unsigned long long bits[32]; };
static Warp warps[32];
static inline Warp& warp_here() { return warps[threadIdx.x / 32]; }

unsigned long long exchanged(unsigned long long bits, int apart) {
  warp_here().bits[threadIdx.x % 32] = bits;
  stop_at(AT_WARP);
  bits = warp_here().bits[(threadIdx.x % 32) ^ apart];
  stop_at(AT_WARP);
  return bits;
}
float minimum(float x, float y) { return x != x ? x : y != y ? y : x < y ? x : y; }
float maximum(float x, float y) { return x != x ? x : y != y ? y : x > y ? x : y; }

float half_value(unsigned int h) {
  unsigned int sign = h >> 15, exponent = h >> 10 & 31, mantissa = h & 1023;
  float size = exponent == 31 ? (mantissa ? NAN : INFINITY)
             : exponent ? ldexpf(1024 + mantissa, (int)exponent - 25) : ldexpf(mantissa, -24);
  return sign ? -size : size;
}
unsigned int half_bits(float x) {
  unsigned int bits = __float_as_uint(x), sign = bits >> 16 & 0x8000;
  double size = fabs((double)x);
  if (size != size) return 0x7fff;
  if (size >= 65520) return sign | 0x7c00;
  int exponent = size < 0x1p-14 ? -14 : ilogb(size);
  double steps = nearbyint(ldexp(size, 10 - exponent));  // of the last bit; 1024 to 2048 where the number is normal
  return sign | (unsigned int)(steps + 1024.0 * (exponent + 14));
}
static float brain_value(unsigned int h) { return __uint_as_float(h << 16); }

static void exchange(const unsigned int* a, const unsigned int* b) {
  int lane = threadIdx.x % 32;
  memcpy(warp_here().a[lane], a, 16);
  memcpy(warp_here().b[lane], b, 8);
  stop_at(AT_WARP);
}
template <class Value> static void multiply_16(float* d, const unsigned int* a, const unsigned int* b, Value value) {
  exchange(a, b);
  Warp& w = warp_here();
  int lane = threadIdx.x % 32;
  for (int i = 0; i < 4; ++i) {
    int row = lane / 4 + 8 * (i / 2), column = lane % 4 * 2 + i % 2;
    double sum = 0;
    for (int k = 0; k < 16; ++k) {
      unsigned int x = w.a[row % 8 * 4 + k % 8 / 2][(row >= 8) + 2 * (k >= 8)] >> 16 * (k % 2);
      unsigned int y = w.b[column * 4 + k % 8 / 2][k >= 8] >> 16 * (k % 2);
      sum += (double)value(x & 0xffff) * value(y & 0xffff);
    }
    d[i] = (float)(d[i] + sum);
  }
  stop_at(AT_WARP);
}
void multiply_f16(float* d, const unsigned int* a, const unsigned int* b) { multiply_16(d, a, b, half_value); }
void multiply_bf16(float* d, const unsigned int* a, const unsigned int* b) { multiply_16(d, a, b, brain_value); }
void multiply_bytes(int* d, const unsigned int* a, const unsigned int* b, bool left_signed, bool right_signed) {
  exchange(a, b);
  Warp& w = warp_here();
  int lane = threadIdx.x % 32;
  for (int i = 0; i < 4; ++i) {
    int row = lane / 4 + 8 * (i / 2), column = lane % 4 * 2 + i % 2;
    unsigned int sum = d[i];
    for (int k = 0; k < 32; ++k) {
      unsigned int x = w.a[row % 8 * 4 + k % 16 / 4][(row >= 8) + 2 * (k >= 16)] >> 8 * (k % 4) & 0xff;
      unsigned int y = w.b[column * 4 + k % 16 / 4][k >= 16] >> 8 * (k % 4) & 0xff;
      sum += (left_signed ? (int)(signed char)x : (int)x) * (right_signed ? (int)(signed char)y : (int)y);
    }
    d[i] = (int)sum;
  }
  stop_at(AT_WARP);
}
void multiply_tf32(float* d, const unsigned int* a, const unsigned int* b) {
  exchange(a, b);
  Warp& w = warp_here();
  int lane = threadIdx.x % 32;
  for (int i = 0; i < 4; ++i) {
    int row = lane / 4 + 8 * (i / 2), column = lane % 4 * 2 + i % 2;
    double sum = 0;
    for (int k = 0; k < 8; ++k) {
      unsigned int x = w.a[row % 8 * 4 + k % 4][(row >= 8) + 2 * (k >= 4)], y = w.b[column * 4 + k % 4][k >= 4];
      if ((x | y) & 0x1fff) fail("a factor is not rounded to TF32");
      sum += (double)__uint_as_float(x) * __uint_as_float(y);
    }
    d[i] = (float)(d[i] + sum);
  }
  stop_at(AT_WARP);
}
unsigned int to_tf32(float x) {  // to nearest, ties away from zero
  unsigned int bits = __float_as_uint(x);
  return (bits & 0x7f800000) == 0x7f800000 ? bits : (bits + 0x1000) & 0xffffe000;
}
static void lines_of(const void* line) {
  if ((size_t)line % 16) fail("ldmatrix: a line is not aligned to 16 bytes");
  warp_here().line[threadIdx.x % 32] = (const char*)line;
  stop_at(AT_WARP);
}
void fragments(unsigned int* r, const void* line) {
  lines_of(line);
  int lane = threadIdx.x % 32;
  for (int q = 0; q < 4; ++q) memcpy(&r[q], warp_here().line[q * 8 + lane / 4] + lane % 4 * 4, 4);
  stop_at(AT_WARP);
}
void fragments_turned(unsigned int* r, const void* line) {
  lines_of(line);
  int lane = threadIdx.x % 32;
  for (int q = 0; q < 4; ++q) {
    unsigned short part[2];
    for (int e = 0; e < 2; ++e) memcpy(&part[e], warp_here().line[q * 8 + lane % 4 * 2 + e] + lane / 4 * 2, 2);
    r[q] = part[0] | (unsigned int)part[1] << 16;
  }
  stop_at(AT_WARP);
}

// --- copies ---

static bool eager;  // copies take place at once: on a GPU, some time before they are waited for
static void copied(const Copy& c) { c.inside ? memcpy(c.to, c.from, 16) : memset(c.to, 0, 16); }
void copy_16(void* to, const void* from, bool inside) {
  if ((size_t)to % 16 || (inside && (size_t)from % 16)) fail("a copy is not aligned to 16 bytes");
  if (eager) copied({to, from, inside});
  else current->sets.back().push_back({to, from, inside});
}
void copies_begin() { current->sets.emplace_back(); }
void copies_wait_but(int n) {
  auto& sets = current->sets;
  for (; (int)sets.size() > n + 1; sets.erase(sets.begin()))
    for (const Copy& c : sets.front()) copied(c);
}

// --- a launch ---

extern char __start_shared_memory[] __attribute__((weak)), __stop_shared_memory[] __attribute__((weak));
static void (*entry)(void**);
static void** arguments;
static void begin() {
  entry(arguments);
  current->state = DONE;
}

static bool released(int first, int count, int state) {
  int waiting = 0, live = 0;
  for (int i = first; i < first + count; ++i) {
    live += fibres[i].state != DONE;
    waiting += fibres[i].state == state;
  }
  if (!waiting || waiting < live) return false;
  for (int i = first; i < first + count; ++i)
    if (fibres[i].state == state) fibres[i].state = RUNS;
  return true;
}

static bool run_warp(int first, int count, bool backwards) {
  bool moved = false;
  for (int n = 0; n < count; ++n) {
    int i = first + (backwards ? count - 1 - n : n);
    if (fibres[i].state != RUNS) continue;
    current = &fibres[i];
    threadIdx = {i, 0, 0};
    swapcontext(&scheduler, &current->context);
    moved = true;
  }
  return moved;
}

alignas(16) float4 dynamic_memory[232448 / 16];  // what a launch may ask for, on the largest of GPUs
static void run_group(int threads, bool backwards) {
  memset((void*)dynamic_memory, 0xff, sizeof dynamic_memory);
  if (__start_shared_memory) memset(__start_shared_memory, 0xff, __stop_shared_memory - __start_shared_memory);
  fibres.resize(threads);
  for (int i = 0; i < threads; ++i) {
    Fibre& f = fibres[i];
    f.stack.resize(1 << 16);
    f.state = RUNS;
    f.sets.assign(1, {});
    getcontext(&f.context);
    f.context.uc_stack.ss_sp = f.stack.data();
    f.context.uc_stack.ss_size = f.stack.size();
    f.context.uc_link = &scheduler;
    makecontext(&f.context, begin, 0);
  }
  for (bool moved = true; moved;) {  // each warp goes as far as it can by itself
    moved = false;
    for (int n = 0; n < threads; n += 32) {
      int first = backwards ? (threads - 1) / 32 * 32 - n : n, count = threads - first < 32 ? threads - first : 32;
      do
        moved |= run_warp(first, count, backwards);
      while (released(first, count, AT_WARP));
    }
    moved |= released(0, threads, AT_GROUP);
  }
  for (const Fibre& f : fibres)
    if (f.state != DONE) fail("threads wait for each other at different places");
}

void start(void** given);  // calls the kernel

extern "C" void run_kernel(void** given, const int* grid, int threads, int backwards, int at_once) {
  eager = at_once;
  entry = start;
  arguments = given;
  gridDim = {grid[0], grid[1], grid[2]};
  for (blockIdx.z = 0; blockIdx.z < grid[2]; ++blockIdx.z)
    for (blockIdx.y = 0; blockIdx.y < grid[1]; ++blockIdx.y)
      for (blockIdx.x = 0; blockIdx.x < grid[0]; ++blockIdx.x) run_group(threads, backwards);
}
