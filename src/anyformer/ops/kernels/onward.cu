// Attention with vectors of queries by distance over a causal square of scores: output, log-sum-exp.
//
// A program has 192 queries, 64 of each group of four warps, and goes over tiles of 64 keys, of
// which one group fetches keys, one values and one rows of the table. What queries gain by distance
// lies on shelves, as in onepass.cu. Three groups fill the processor; each waits for its products.
//
// Block u of a group's shelf is the lower one of its tile u; block u of rows begins 192 rows below
// the upper one of the first group's tile u.

const int GROUPS = 3, BLOCKS = 2;
#include "warps.cuh"

// Where things lie in shared memory.
const int Q = 0, K = 3 * BYTES, V = 5 * BYTES, R = 8 * BYTES, SHELF = 12 * BYTES;
const int BIASES = 18 * BYTES;

extern "C" __global__ void __launch_bounds__(THREADS, 1)
onward(const u16 *q, PLACES(q), const u16 *k, PLACES(k), const u16 *v, PLACES(v), const u16 *table,
       int table_h, const float *bias, int bias_h, u16 *out, PLACES(out), float *lse, int queries,
       int keys, int start, int heads, int group, int rows, int base, float scale) {
  extern __shared__ __align__(1024) char memory[];
  const u32 smem = (u32)__cvta_generic_to_shared(memory);
  const Thread me(smem, SHELF);
  const Places places(me);
  const int i0 = (gridDim.x - 1 - blockIdx.x) * ROWS, b = blockIdx.y / heads, h = blockIdx.y % heads;
  const int mine = me.g * TILE + me.w * 16 + me.y, left = queries - i0;
  const int tiles = (start + min(i0 + ROWS, queries) - 1) / TILE + 1;
  const int row0 = base - i0 - ROWS;  // of the table, where its block 0 begins
  q += (long long)b * q_b + (long long)h * q_h + (long long)i0 * q_n;
  k += (long long)b * k_b + (long long)(h / group) * k_h;
  v += (long long)b * v_b + (long long)(h / group) * v_h;
  table += (long long)h * table_h;
  bias += (long long)h * bias_h + (me.id & 63);
  out += (long long)b * out_b + (long long)h * out_h + (long long)i0 * out_n;
  lse += (long long)blockIdx.y * queries + i0;

  // What a group fetches of each tile: rows from the first on, of so many.
  const int stride = me.g == 0 ? k_n : me.g == 1 ? v_n : TILE, many = me.g == 2 ? rows : keys;
  const u16 *from = me.begin<128>(me.g == 0 ? k : me.g == 1 ? v : table, stride);
  auto fetch = [&](int t, int third) {  // and the block of rows that is new to it
    int first = me.g == 2 ? row0 + (t + GROUPS) * TILE : t * TILE;
    int to = me.g == 0 ? K + (t & 1) * BYTES : V + third * BYTES;
    to = me.g == 2 ? R + ((t + 3) & 3) * BYTES : to;
    me.fetch<TILE, 128>(smem + to, from, stride, first, many);
  };
  auto fetch_bias = [&](int u) {
#if BIAS
    int one = row0 + u * TILE + (me.id & 63);
    copy4(smem + BIASES + (u & 3) * 256 + (me.id & 63) * 4, bias + row0 + u * TILE,
          (u32)one < (u32)rows);
#endif
  };
  me.fetch<ROWS, THREADS>(smem + Q, me.begin<THREADS>(q, q_n), q_n, 0, left);
  fetch(0, 0);
  const u16 *some = me.begin<128>(table, TILE);
  me.fetch<TILE, 128>(smem + R + me.g * BYTES, some, TILE, row0 + me.g * TILE, rows);
  for (int u = 0; u < 4; u++) fetch_bias(u);
  copied();
  arrived<0>();
  hand_over();
  meet();

  float acc[32], s[32], gained[32], most[2], sum[2] = {0, 0};
  u32 weights[16];
  most[0] = most[1] = __int_as_float(0xFF800000);
  const u32 own = side(smem + Q + me.g * BYTES);
  auto gain = [&](int u) {  // by block u of rows
    gains(gained, smem + BIASES + (u & 3) * 256, me.x);
    u32 right = side(smem + R + (u & 3) * BYTES);
    ask();
#pragma unroll
    for (int i = 0; i < 4; i++) by64<0, 0>(gained, tile(own, i * 32), tile(right, i * 32), false);
  };
#pragma unroll
  for (int i = 0; i < 32; i++) acc[i] = 0;
  there(acc);
  gain(GROUPS - 1 - me.g);
  asked();
  wait<0>();
  me.lay(gained, 0);

  const float unit = scale * LOG2E;
  int t = 0, third = 0;  // of values
  auto pass = [&](bool round) {
    arrived<0>();
    hand_over();
    meet();
    int next = third == 2 ? 0 : third + 1;
    fetch(t + 1, next);
    fetch_bias(t + 1 + GROUPS);
    copied();
    gain(t + GROUPS - me.g);
    u32 right = side(smem + K + (t & 1) * BYTES);
#pragma unroll
    for (int i = 0; i < 4; i++) by64<0, 0>(s, tile(own, i * 32), tile(right, i * 32), i == 0);
    asked();
    wait<0>();
    me.lay(gained, t + 1);
    meet_warp();
#pragma unroll
    for (int i = 0; i < 32; i++) s[i] += take16(places.at(t, i, round));
    if (t * TILE + TILE - 1 > start + i0) {
      int last = start + i0 + mine - t * TILE - me.x;
#pragma unroll
      for (int i = 0; i < 32; i++)
        if (8 * (i / 4) + (i & 1) > last + 4 * (i & 2)) s[i] = __int_as_float(0xFF800000);
    }
    float low[2];
#pragma unroll
    for (int j = 0; j < 2; j++) {
      float top = most[j];
#pragma unroll
      for (int n = 0; n < 8; n++) top = fmaxf(top, fmaxf(s[4 * n + 2 * j], s[4 * n + 2 * j + 1]));
      top = most_of_four(top);
      float fade = power((most[j] - top) * unit);
      most[j] = top, low[j] = top * unit, sum[j] *= fade;
#pragma unroll
      for (int n = 0; n < 8; n++) acc[4 * n + 2 * j] *= fade, acc[4 * n + 2 * j + 1] *= fade;
    }
#pragma unroll
    for (int i = 0; i < 16; i++) {
      float a = power(s[2 * i] * unit - low[i & 1]), c = power(s[2 * i + 1] * unit - low[i & 1]);
      sum[i & 1] += a + c;
      weights[i] = pair(a, c);
    }
    right = side(smem + V + third * BYTES);
    ask();
#pragma unroll
    for (int i = 0; i < 4; i++) held64(acc, weights + 4 * i, tile(right, i * STEP));
    asked();
    third = next, t++;
  };
#pragma unroll 1
  while (true) {
    pass(false);
    if (t == tiles) break;
    pass(true);
    if (t == tiles) break;
  }
  wait<0>();
  arrived<0>();
#pragma unroll
  for (int j = 0; j < 2; j++) {
    sum[j] = of_four(sum[j]);
    int row = mine + 8 * j;
    float all = most[j] * unit + log_of(sum[j]);
    put_if(lse + min(row, left - 1), __float_as_uint(all), row < left && me.x == 0);
    sum[j] = one_by(sum[j]);
  }
#pragma unroll
  for (int i = 0; i < 16; i++) {
    int row = mine + 8 * (i & 1);
    u16 *at = out + (long long)min(row, left - 1) * out_n + 8 * (i / 2) + me.x;
    put_if(at, pair(acc[2 * i] * sum[i & 1], acc[2 * i + 1] * sum[i & 1]), row < left);
  }
}
