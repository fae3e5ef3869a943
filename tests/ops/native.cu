// Sums of exp(scale * x), by column of tiles: x (n, 64) in bfloat16 -> out (64, 64) in float,
// of which row and column are those of a tile, turned around.

extern __shared__ __align__(1024) unsigned char room[];

constexpr int ROWS = SIZE, WIDE = 64, BYTES = WIDE * 2;

__device__ __forceinline__ unsigned placed(const void* p) {
  return static_cast<unsigned>(__cvta_generic_to_shared(p));
}

extern "C" __global__ void __launch_bounds__(128)
    turned(const unsigned short* x, float* out, int n, float scale) {
  const int t = threadIdx.x, warp = t / 32, lane = t % 32;
  const unsigned given = placed(room), other = given + ROWS * BYTES;
  const unsigned short* mine =
      reinterpret_cast<unsigned short*>(room + ROWS * BYTES) + t / 2 * ROWS + t % 2 * 32;
  float sums[32] = {};
  for (int start = blockIdx.x * ROWS; start < n; start += gridDim.x * ROWS) {
    for (int i = t; i < ROWS * 8; i += 128) {
      const int row = start + i / 8;
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(given + i * 16),
                   "l"(x + (row < n ? row : 0) * WIDE + i % 8 * 8), "r"(row < n ? 16 : 0));
    }
    asm volatile("cp.async.commit_group;\n cp.async.wait_group 0;" ::: "memory");
    __syncthreads();
    for (int column = 0; column < 64; column += 8) {
      unsigned a, b;
      asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                   : "=r"(a), "=r"(b)
                   : "r"(given + (16 * warp + lane % 16) * BYTES + column * 2)
                   : "memory");
      asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1, %2};" ::"r"(
                       other + (column + lane % 8) * BYTES + 32 * warp + lane / 8 % 2 * 16),
                   "r"(a), "r"(b)
                   : "memory");
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 32; i++)
      if (start + t % 2 * 32 + i < n)
        sums[i] += __expf(scale * __uint_as_float(static_cast<unsigned>(mine[i]) << 16));
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < 32; i += 4)
    asm volatile("red.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(out + t * 32 + i),
                 "f"(sums[i]), "f"(sums[i + 1]), "f"(sums[i + 2]), "f"(sums[i + 3])
                 : "memory");
}

extern "C" __global__ void beyond(float* out) { out[threadIdx.x] = 1.f; }
