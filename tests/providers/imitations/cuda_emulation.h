// What a kernel in CUDA C finds when it is compiled as C++: see cuda_emulation.cpp.
#include <math.h>
#include <string.h>

#include <utility>

#define __global__ __attribute__((unused))
#define __launch_bounds__(n)
#define __shared__ static __attribute__((section("shared_memory")))

struct Index { int x, y, z; };
template <class T> struct alignas(4 * sizeof(T)) Four { T x, y, z, w; };
typedef Four<float> float4;
typedef Four<int> int4;
typedef Four<unsigned int> uint4;
typedef Four<short> short4;
typedef Four<unsigned short> ushort4;
typedef Four<signed char> char4;
typedef Four<unsigned char> uchar4;
#define MAKE(name, type) \
  static inline name make_##name(type a, type b, type c, type d) { return name{a, b, c, d}; }
MAKE(float4, float) MAKE(int4, int) MAKE(uint4, unsigned int) MAKE(short4, short) MAKE(ushort4, unsigned short)
MAKE(char4, signed char) MAKE(uchar4, unsigned char)

template <class To, class From> static inline To bits_of(From from) {
  To to;
  static_assert(sizeof(To) == sizeof(From), "sizes differ");
  memcpy(&to, &from, sizeof to);
  return to;
}
static inline unsigned int __float_as_uint(float x) { return bits_of<unsigned int>(x); }
static inline int __float_as_int(float x) { return bits_of<int>(x); }
static inline float __uint_as_float(unsigned int x) { return bits_of<float>(x); }
static inline float __int_as_float(int x) { return bits_of<float>(x); }
static inline long long __double_as_longlong(double x) { return bits_of<long long>(x); }
static inline double __longlong_as_double(long long x) { return bits_of<double>(x); }

extern float4 dynamic_memory[];
extern Index threadIdx, blockIdx, gridDim;
void __syncthreads();
void multiply_f16(float* d, const unsigned int* a, const unsigned int* b);
void multiply_bf16(float* d, const unsigned int* a, const unsigned int* b);
void multiply_bytes(int* d, const unsigned int* a, const unsigned int* b, bool left_signed, bool right_signed);
#define BYTES_OF(name, left, right) \
  static inline void multiply_##name(int* d, const unsigned int* a, const unsigned int* b) { multiply_bytes(d, a, b, left, right); }
BYTES_OF(s8s8, true, true) BYTES_OF(s8u8, true, false) BYTES_OF(u8s8, false, true) BYTES_OF(u8u8, false, false)
static inline int dot4_bytes(int d, unsigned int a, unsigned int b, bool left_signed, bool right_signed) {
  for (int i = 0; i < 32; i += 8) {
    const int x = a >> i & 255, y = b >> i & 255;
    d += (left_signed && x > 127 ? x - 256 : x) * (right_signed && y > 127 ? y - 256 : y);
  }
  return d;
}
#define DOT4_OF(name, left, right) \
  static inline int dot4_##name(int d, unsigned int a, unsigned int b) { return dot4_bytes(d, a, b, left, right); }
DOT4_OF(s8s8, true, true) DOT4_OF(s8u8, true, false) DOT4_OF(u8s8, false, true) DOT4_OF(u8u8, false, false)
void multiply_tf32(float* d, const unsigned int* a, const unsigned int* b);
unsigned int to_tf32(float x);
void fragments(unsigned int* r, const void* line);
void fragments_turned(unsigned int* r, const void* line);
void copy_16(void* to, const void* from, bool inside);
float half_value(unsigned int bits);
unsigned int half_bits(float x);
void copies_begin();
float minimum(float x, float y);
float maximum(float x, float y);
unsigned long long exchanged(unsigned long long bits, int apart);
template <class T> static inline T __shfl_xor_sync(unsigned int, T value, int apart) {
  unsigned long long bits = 0;
  memcpy(&bits, &value, sizeof value);
  bits = exchanged(bits, apart);
  memcpy(&value, &bits, sizeof value);
  return value;
}
void copies_wait_but(int n);
static inline void copies_wait_but_0() { copies_wait_but(0); }
static inline void copies_wait_but_1() { copies_wait_but(1); }
static inline void copies_wait_but_2() { copies_wait_but(2); }

template <class T> struct Argument { static T of(void* given) { return *(T*)given; } };
template <class T> struct Argument<T*> { static T* of(void* given) { return (T*)given; } };
template <class... A, size_t... I> static void call(void (*f)(A...), void** given, std::index_sequence<I...>) {
  f(Argument<A>::of(given[I])...);
}
template <class... A> static void call_all(void (*f)(A...), void** given) {
  call(f, given, std::make_index_sequence<sizeof...(A)>());
}
