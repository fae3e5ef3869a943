// What kernels in CUDA C++ share: products of groups of four warps, memory, and the shelf.
//
// Letters: g a group of warps, w a warp of it, l a lane; a thread has rows y and y + 8 of a warp's
// 16 and columns 8 n + x and 8 n + x + 1 of a product: its number i is of n = i / 4, the second row
// where i has the bit 2, the second column where it is odd.
//
// What includes it says FLOAT16 (queries are of float16, otherwise of bfloat16), BIAS (scores have a
// bias by distance), GROUPS, of warps, and BLOCKS, of a group's shelf: two, or another power of two.

typedef unsigned int u32;
typedef unsigned long long u64;
typedef unsigned short u16;

#if FLOAT16
#define KIND "f16"
#else
#define KIND "bf16"
#endif

const int TILE = 64, ROWS = GROUPS * TILE;  // keys of a tile; queries of a program
const int THREADS = GROUPS * 128;
const int BYTES = 8192, STEP = 2048;  // of a tile of 64 rows and channels, and of 16 rows
const int WIDE = BLOCKS * BYTES;      // of a shelf
const float LOG2E = 1.4426950408889634f;

#define PLACES(x) int x##_b, int x##_h, int x##_n  // of (B, H, N, 64): numbers to the next of each

// ------------------------------------------------------------------------------------- products

// Where a side of a product begins, in sixteenths of bytes; what tells a product, `more` bytes on:
// of rows of 128 bytes whose sixteenths change places, and of squares of 8 by 8 one by one.
__device__ __forceinline__ u32 side(u32 at) { return (at >> 4) + 0x10000; }
__device__ __forceinline__ u64 tile(u32 side, int more) {
  return (u64)0x40000040 << 32 | (side + more / 16);
}
__device__ __forceinline__ u64 squares_of(u32 at) {
  return (u64)8 << 32 | ((at >> 4) + 0x80000);
}

__device__ __forceinline__ void ask() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void asked() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int MOST>
__device__ __forceinline__ void wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(MOST) : "memory");
}

#define F4(c, d, i) c(d[i]), c(d[i + 1]), c(d[i + 2]), c(d[i + 3])
#define F16(c, d, i) F4(c, d, i), F4(c, d, i + 4), F4(c, d, i + 8), F4(c, d, i + 12)
#define N32                                                                         \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "         \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}"
#define N16 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}"
#define MMA(n) "wgmma.mma_async.sync.aligned.m64n" n "k16.f32." KIND "." KIND " "

// TA, TB: 1 for a side that lies with its depth in rows. first: nothing was there before.
template <int TA, int TB>
__device__ __forceinline__ void by64(float (&d)[32], u64 a, u64 b, bool first) {
  if (first)
    asm volatile(MMA("64") N32 ", %32, %33, 0, 1, 1, %34, %35;"
                 : F16("=f", d, 0), F16("=f", d, 16)
                 : "l"(a), "l"(b), "n"(TA), "n"(TB));
  else
    asm volatile(MMA("64") N32 ", %32, %33, 1, 1, 1, %34, %35;"
                 : F16("+f", d, 0), F16("+f", d, 16)
                 : "l"(a), "l"(b), "n"(TA), "n"(TB));
}

__device__ __forceinline__ void held64(float (&d)[32], const u32 *a, u64 b) {
  asm volatile(MMA("64") N32 ", {%32, %33, %34, %35}, %36, 1, 1, 1, 1;"
               : F16("+f", d, 0), F16("+f", d, 16)
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

// Of 32 columns, the right side with its depth in rows.
template <int TA>
__device__ __forceinline__ void by32(float (&d)[16], u64 a, u64 b, bool first) {
  if (first)
    asm volatile(MMA("32") N16 ", %16, %17, 0, 1, 1, %18, 1;"
                 : F16("=f", d, 0)
                 : "l"(a), "l"(b), "n"(TA));
  else
    asm volatile(MMA("32") N16 ", %16, %17, 1, 1, 1, %18, 1;"
                 : F16("+f", d, 0)
                 : "l"(a), "l"(b), "n"(TA));
}

__device__ __forceinline__ void by8(float (&d)[4], u64 a, u64 b, bool first) {
  if (first)
    asm volatile(MMA("8") "{%0, %1, %2, %3}, %4, %5, 0, 1, 1, 0, 0;"
                 : F4("=f", d, 0)
                 : "l"(a), "l"(b));
  else
    asm volatile(MMA("8") "{%0, %1, %2, %3}, %4, %5, 1, 1, 1, 0, 0;"
                 : F4("+f", d, 0)
                 : "l"(a), "l"(b));
}

// ------------------------------------------------------------------------------------- memory

__device__ __forceinline__ void copy16(u32 to, const void *from, int there) {  // 0: zeros
  int size = there ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(size)
               : "memory");
}
__device__ __forceinline__ void copy4(u32 to, const void *from, int there) {
  int size = there ? 4 : 0;
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(size)
               : "memory");
}
__device__ __forceinline__ void copied() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int MOST>
__device__ __forceinline__ void arrived() {
  asm volatile("cp.async.wait_group %0;" ::"n"(MOST) : "memory");
}
__device__ __forceinline__ void meet() { asm volatile("bar.sync 0;" ::: "memory"); }
__device__ __forceinline__ void meet_warp() {
  asm volatile("bar.warp.sync 0xffffffff;" ::: "memory");
}
__device__ __forceinline__ void hand_over() {  // what is written, to products
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

__device__ __forceinline__ void put16(u32 at, u32 two, int high) {
  asm volatile("{ .reg .b16 a, b; mov.b32 {a, b}, %1; st.shared.b16 [%0], a; }" ::"r"(at),
               "r"(high ? two >> 16 : two)
               : "memory");
}
__device__ __forceinline__ float take16(u32 at) {  // what shelved has put there
  float x;
  asm volatile("{ .reg .b16 a; ld.shared.b16 a, [%1]; cvt.f32.f16 %0, a; }"
               : "=f"(x)
               : "r"(at)
               : "memory");
  return x;
}
__device__ __forceinline__ void squares(u32 at, u32 a, u32 b, u32 c, u32 d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(at),
               "r"(a), "r"(b), "r"(c), "r"(d)
               : "memory");
}
__device__ __forceinline__ void squares_turned(u32 at, u32 a, u32 b, u32 c, u32 d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(at),
               "r"(a), "r"(b), "r"(c), "r"(d)
               : "memory");
}
__device__ __forceinline__ void zero16(u32 at) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %1, %1, %1};" ::"r"(at), "r"(0) : "memory");
}
__device__ __forceinline__ void add4(float *at, float a, float b, float c, float d) {
  asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(at), "f"(a),
               "f"(b), "f"(c), "f"(d)
               : "memory");
}
__device__ __forceinline__ void add_if(float *at, float a, int yes) {
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %2, 0; @p red.relaxed.gpu.global.add.f32 [%0], %1; }"
               ::"l"(at), "f"(a), "r"(yes)
               : "memory");
}
__device__ __forceinline__ void put_shared_if(u32 at, float a, int yes) {
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %2, 0; @p st.shared.f32 [%0], %1; }" ::"r"(at),
               "f"(a), "r"(yes)
               : "memory");
}
__device__ __forceinline__ float4 take4(u32 at) {
  float4 x;
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w)
               : "r"(at)
               : "memory");
  return x;
}
__device__ __forceinline__ void put_if(void *at, u32 a, int yes) {
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %2, 0; @p st.global.b32 [%0], %1; }" ::"l"(at),
               "r"(a), "r"(yes)
               : "memory");
}

// ------------------------------------------------------------------------------------- numbers

__device__ __forceinline__ u32 pair(float low, float high) {
  u32 two;
  asm("cvt.rn." KIND "x2.f32 %0, %1, %2;" : "=r"(two) : "f"(high), "f"(low));
  return two;
}
__device__ __forceinline__ u32 shelved(float low, float high) {  // float16's largest for larger
  u32 two;
  asm("cvt.rn.satfinite.f16x2.f32 %0, %1, %2;" : "=r"(two) : "f"(high), "f"(low));
  return two;
}
#define CURVE(name, instruction)                          \
  __device__ __forceinline__ float name(float x) {        \
    float y;                                              \
    asm(instruction ".approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x)); \
    return y;                                             \
  }
CURVE(power, "ex2")
CURVE(log_of, "lg2")
CURVE(one_by, "rcp")
__device__ __forceinline__ float wide(u32 two) {
#if FLOAT16
  float x;
  asm("{ .reg .b16 a, b; mov.b32 {a, b}, %1; cvt.f32.f16 %0, a; }" : "=f"(x) : "r"(two));
  return x;
#else
  return __uint_as_float(two << 16);
#endif
}
__device__ __forceinline__ float dot8(const uint4 &a, const uint4 &b) {
  const u32 x[4] = {a.x, a.y, a.z, a.w}, y[4] = {b.x, b.y, b.z, b.w};
  float sum = 0;
#pragma unroll
  for (int i = 0; i < 4; i++)
    sum += wide(x[i] & 0xFFFF) * wide(y[i] & 0xFFFF) + wide(x[i] >> 16) * wide(y[i] >> 16);
  return sum;
}
__device__ __forceinline__ float of_four(float x) {  // the sum of four lanes that share rows
  x += __shfl_xor_sync(0xffffffff, x, 1);
  return x + __shfl_xor_sync(0xffffffff, x, 2);
}
__device__ __forceinline__ float most_of_four(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xffffffff, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xffffffff, x, 2));
}

// ------------------------------------------------------------------------------------- a thread

__device__ __forceinline__ int alike(int x) {  // which compilers may hold once for a warp
  return __shfl_sync(0xffffffff, x, 0);
}

struct Thread {
  u32 smem, shelf;  // where shared memory begins, and the shelf of the group
  int id, g, w, l, y, x;

  __device__ __forceinline__ Thread(u32 at, int shelves) : smem(at), id(threadIdx.x) {
    g = alike(id >> 7), w = alike(id >> 5 & 3), l = id & 31, y = l >> 2, x = (l & 3) * 2;
    shelf = smem + shelves + g * WIDE;
  }
  // Rows that OF threads fetch together, the first OF of a program or of each group; a thread begins
  // at `from`. Of rows from the first on there are so many; in place of others there are zeros.
  template <int COUNT, int OF>
  __device__ __forceinline__ void fetch(u32 to, const u16 *from, int stride, int first,
                                        int many) const {
    int row = id % OF >> 3;
    u32 at = to + row * 128 + (((id & 7) ^ (row & 7)) << 4);
#pragma unroll
    for (int i = 0; i < COUNT; i += OF / 8)
      copy16(at + i * 128, from + (long long)(first + i) * stride,
             (u32)(first + row + i) < (u32)many);
  }
  template <int OF>
  __device__ __forceinline__ const u16 *begin(const u16 *from, int stride) const {
    return from + (long long)(id % OF >> 3) * stride + (id & 7) * 8;
  }
  // What queries gain by a block of rows, a row of the table in a row of the shelf.
  __device__ __forceinline__ void lay(const float (&s)[32], int block) const {
    u32 at = shelf + (block & (BLOCKS - 1)) * BYTES + ((l & 7) + 8 * (l >> 4)) * 128 +
             (((2 * w + ((l >> 3) & 1)) ^ (l & 7)) << 4);
#pragma unroll
    for (int n = 0; n < 8; n += 2)
      squares_turned(at + n * 1024, shelved(s[4 * n], s[4 * n + 1]),
                     shelved(s[4 * n + 2], s[4 * n + 3]), shelved(s[4 * n + 4], s[4 * n + 5]),
                     shelved(s[4 * n + 6], s[4 * n + 7]));
  }
  // Numbers of 16 bits of a tile of queries by keys, a query in a row.
  __device__ __forceinline__ void write(u32 to, const u32 (&s)[16]) const {
    int row = 64 * g + 16 * w + (l & 15);
    u32 at = to + row * 128;
#pragma unroll
    for (int n = 0; n < 8; n += 2)
      squares(at + (((n + (l >> 4)) ^ (row & 7)) << 4), s[2 * n], s[2 * n + 1], s[2 * n + 2],
              s[2 * n + 3]);
  }
};

// Where a tile's scores lie on the shelf: of the score in column 8 n + x + e and row y + 8 h. Blocks
// take turns in so many places; round: the upper block of a tile is in the first.
struct Places {
  u32 own[2][2];
  int first;

  __device__ __forceinline__ Places(const Thread &me) {
    int row = 16 * me.w + me.y;
    first = 63 + me.x - row;
#pragma unroll
    for (int e = 0; e < 2; e++)
#pragma unroll
      for (int h = 0; h < 2; h++)
        own[e][h] = me.shelf + (((2 * me.w + h) ^ ((first + e) & 7)) << 4) + 2 * me.y;
  }
  __device__ __forceinline__ u32 at(int tile, int i, bool round) const {  // of a product's number i
    const int e = i & 1, h = i >> 1 & 1, n = i / 4 - h;
    u32 from = own[e][h] + ((tile & (BLOCKS - 1)) * 64 + first + e) * 128, more = n * 1024;
    u32 last = ((BLOCKS - 1) * 64 + first + e) * 128 + more;  // the same for every such tile
    return round ? own[e][h] + (last & (WIDE - 1)) : from + more;
  }
};

__device__ __forceinline__ void there(float (&d)[32]) {  // compilers put them nowhere later
#pragma unroll
  for (int i = 0; i < 32; i++) asm volatile("" : "+f"(d[i])::"memory");
}

__device__ __forceinline__ void gains(float (&d)[32], u32 bias, int x) {  // the bias of a block
#pragma unroll
  for (int n = 0; n < 8; n++) {
    float a = 0, b = 0;
#if BIAS
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];"
                 : "=f"(a), "=f"(b)
                 : "r"(bias + (8 * n + x) * 4)
                 : "memory");
#endif
    d[4 * n] = d[4 * n + 2] = a;
    d[4 * n + 1] = d[4 * n + 3] = b;
  }
  there(d);
}

