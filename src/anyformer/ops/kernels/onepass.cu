// Gradients of attention with vectors by distance in one pass over a causal square of scores.
//
// A program has 128 queries, 64 of each group of four warps, and goes over tiles of 64 keys. What
// queries gain by distance lies on a shelf in shared memory, and the gradient of a score takes the
// place of what the score has taken, as in shelf.py. A block of rows that no later key reads holds
// all that the queries give to it: then it is multiplied, once for the queries and once for the
// rows. Gradients of keys, values and rows are sums over programs, added in float32 in any order.
// Products run while numbers are worked on: scores of the next tile and what this one gives to the
// queries are asked for together, and what it gives to keys, values and rows among the exponentials
// of the next tile, when the sums of the tile before have left.
//
// AT_ONCE: sums of a bias don't wait for others.
//
// Block u of a group's shelf is the lower one of its tile u; block u of rows begins 128 rows below
// the upper one of the first group's tile u.

const int GROUPS = 2, BLOCKS = 4;
#include "warps.cuh"

// Where things lie in shared memory.
const int Q = 0, GRAD = 2 * BYTES, P = 4 * BYTES, DS = 6 * BYTES, SHELF = 8 * BYTES;
const int K = 16 * BYTES, V = 19 * BYTES, R = 21 * BYTES, BIASES = 26 * BYTES;
const int ONES = BIASES + 5 * 256, OF_BIAS = ONES + 512;  // the last: sums of eight blocks

// ------------------------------------------------------------------------------------- the kernel

extern "C" __global__ void __launch_bounds__(THREADS, 1)
onepass(const u16 *q, PLACES(q), const u16 *k, PLACES(k), const u16 *v, PLACES(v), const u16 *grad,
        PLACES(grad), const u16 *out, PLACES(out), const float *lse, const u16 *table,
        int table_h, const float *bias, int bias_h, u16 *dq, PLACES(dq), float *sums, float *of_rows,
        float *of_bias, int queries, int keys, int start, int heads, int group, int rows, int base,
        int sum_rows, int shares, int first_head, int spread, float scale) {
  extern __shared__ __align__(1024) char memory[];
  const u32 smem = (u32)__cvta_generic_to_shared(memory);
  const Thread me(smem, SHELF);
  const Places places(me);
  // Programs that run together are of so many heads, `spread`; those with the most keys come first.
  const int id = blockIdx.x + gridDim.x * blockIdx.y, from = id / (spread * gridDim.x) * spread;
  const int many = min(spread, (int)gridDim.y - from), rest = id - from * gridDim.x;
  const int part = from + rest % many, block = rest / many;
  const int i0 = (gridDim.x - 1 - block) * ROWS, bh = part + first_head;
  const int b = bh / heads, h = bh % heads, mine = me.g * TILE + me.w * 16 + me.y;
  const int tiles = (start + i0 + ROWS - 1) / TILE + 1, all = (keys + TILE - 1) / TILE;
  const int row0 = base - i0 - ROWS;  // of the table, where its block 0 begins
  q += (long long)b * q_b + (long long)h * q_h + (long long)i0 * q_n;
  k += (long long)b * k_b + (long long)(h / group) * k_h;
  v += (long long)b * v_b + (long long)(h / group) * v_h;
  grad += (long long)b * grad_b + (long long)h * grad_h + (long long)i0 * grad_n;
  out += (long long)b * out_b + (long long)h * out_h + (long long)i0 * out_n;
  dq += (long long)b * dq_b + (long long)h * dq_h + (long long)i0 * dq_n;
  lse += (long long)bh * queries + i0;
  table += (long long)h * table_h;
  bias += (long long)h * bias_h;
  const long long slab = (long long)((block + b) % shares) * heads + h;
  of_rows += slab * sum_rows * TILE + me.l * 4 + me.g * 512 + me.w * 1024;
  of_bias += slab * sum_rows + row0 + (me.id & 127) * 4;
  sums += (long long)(part / group) * all * (2 * TILE * TILE) + me.g * (TILE * TILE) +
          me.w * 1024 + me.l * 4;
  const int left = queries - i0;

  k = me.begin<THREADS>(k, k_n), v = me.begin<THREADS>(v, v_n);
  table = me.begin<THREADS>(table, TILE), bias += me.id & 63;
  auto fetch_pair = [&](int t, int of_keys) {  // keys and values of a tile
    me.fetch<TILE, THREADS>(smem + K + of_keys * BYTES, k, k_n, t * TILE, keys);
    me.fetch<TILE, THREADS>(smem + V + (t & 1) * BYTES, v, v_n, t * TILE, keys);
  };
  auto fetch_rows = [&](int u, int slot) {
    int first = row0 + u * TILE, one = first + (me.id & 63);
    me.fetch<TILE, THREADS>(smem + R + slot * BYTES, table, TILE, first, rows);
#if BIAS
    copy4(smem + BIASES + slot * 256 + (me.id & 63) * 4, bias + first, (u32)one < (u32)rows);
#endif
  };
  // ---- what is there from the beginning
  me.fetch<ROWS, THREADS>(smem + Q, me.begin<THREADS>(q, q_n), q_n, 0, left);
  me.fetch<ROWS, THREADS>(smem + GRAD, me.begin<THREADS>(grad, grad_n), grad_n, 0, left);
  fetch_pair(0, 0);
  fetch_pair(1, 1);
  for (int u = 0; u < 4; u++) fetch_rows(u, u);
  copied();
  float low[2], delta[2];
#pragma unroll
  for (int i = 0; i < 2; i++) {
    int row = mine + 8 * i, safe = min(row, left - 1);
    const uint4 *a = (const uint4 *)(grad + (long long)safe * grad_n + me.x * 8);
    const uint4 *o = (const uint4 *)(out + (long long)safe * out_n + me.x * 8);
    delta[i] = of_four(dot8(a[0], o[0]) + dot8(a[1], o[1]));
    low[i] = lse[safe];
    low[i] = row < left ? low[i] : __int_as_float(0x7F800000);
  }
#pragma unroll
  for (int i = 0; i < 8; i++) {  // what comes before the first tile gives nothing
    zero16(me.shelf + 2 * BYTES + i * 2048 + (me.id & 127) * 16);
    zero16(smem + P + i * 4096 + me.id * 16);
  }
  if (me.id < 32) {
    u32 one = pair(1, 1);
    asm volatile("st.shared.v4.b32 [%0], {%1, %1, %1, %1};" ::"r"(smem + ONES + me.id * 16), "r"(one)
                 : "memory");
  }
  arrived<0>();
  hand_over();
  meet();

  float acc[32], s[32], dp[32], dkv[32], dr[16], db[4];
  const u32 own_q = side(smem + Q + me.g * BYTES), own_grad = side(smem + GRAD + me.g * BYTES);
  const u32 some_q = side(smem + Q + me.g * 64);
  // The first group makes the gradient of keys, the second that of values.
  const u32 by_key = side(smem + (me.g ? P : DS)), by_query = side(smem + (me.g ? GRAD : Q));
  auto score = [&](float (&d)[32], u32 a, u32 at) {
    u32 b = side(at);
#pragma unroll
    for (int i = 0; i < 4; i++) by64<0, 0>(d, tile(a, i * 32), tile(b, i * 32), i == 0);
  };
  auto gain = [&](float (&d)[32], int slot) {  // by a block of rows
    gains(d, smem + BIASES + slot * 256, me.x);
    u32 b = side(smem + R + slot * BYTES);
    ask();
#pragma unroll
    for (int i = 0; i < 4; i++) by64<0, 0>(d, tile(own_q, i * 32), tile(b, i * 32), false);
  };
  // What is complete: to queries by a block of rows, and to block t of rows by all queries.
  auto give_queries = [&](int t, int slot) {
    u32 lower = side(me.shelf + (t & 3) * BYTES), right = side(smem + R + slot * BYTES);
#pragma unroll
    for (int i = 0; i < 4; i++)
      by64<1, 1>(acc, tile(lower, i * STEP), tile(right, i * STEP), false);
  };
  auto give_rows = [&](int t) {
#pragma unroll
    for (int g = 0; g < 2; g++) {
      u32 a = side(smem + SHELF + g * WIDE + ((t + 3 + g) & 3) * BYTES);
#pragma unroll
      for (int i = 0; i < 4; i++)
        by32<0>(dr, tile(a, i * 32), tile(some_q, (4 * g + i) * STEP), g + i == 0);
    }
#if BIAS
    u32 a = side(me.shelf + ((t + 3 + me.g) & 3) * BYTES);
#pragma unroll
    for (int i = 0; i < 4; i++) by8(db, tile(a, i * 32), squares_of(smem + ONES), i == 0);
#endif
  };
  auto add_rows = [&](int t) {
    float *to = of_rows + (long long)(row0 + t * TILE) * TILE;
#pragma unroll
    for (int n = 0; n < 4; n++)
      add4(to + n * 128, dr[4 * n], dr[4 * n + 1], dr[4 * n + 2], dr[4 * n + 3]);
#if BIAS
    // All columns are alike. Few numbers at once take as long as many: they wait for others.
    int one = me.w * 16 + me.y + me.x * 4;
#if AT_ONCE
    add_if(of_bias - (me.id & 127) * 4 + t * TILE + one, me.x ? db[2] : db[0], me.x < 4);
#else
    u32 at = smem + OF_BIAS + (t & 7) * 512 + me.g * 256 + one * 4;
    put_shared_if(at, me.x ? db[2] : db[0], me.x < 4);
#endif
#endif
  };
  auto add_bias = [&](int t) {  // of block t and those before it that wait
#if BIAS && !AT_ONCE
    int one = me.id >> 4;
    if (me.id < 128 && one <= (t & 7)) {
      float4 a = take4(smem + OF_BIAS + one * 512 + (me.id & 15) * 16);
      float4 b = take4(smem + OF_BIAS + one * 512 + 256 + (me.id & 15) * 16);
      add4(of_bias + (t & -8) * TILE, a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
    }
#endif
  };
  auto add_pair = [&](int t, int half) {
    if (t >= all) return;  // queries that aren't there reach for keys that aren't
    float *to = sums + (long long)t * (2 * TILE * TILE);
#pragma unroll
    for (int n = 4 * half; n < 4 * half + 4; n++)
      add4(to + n * 128, dkv[4 * n], dkv[4 * n + 1], dkv[4 * n + 2], dkv[4 * n + 3]);
  };
  auto give_pair = [&]() {
#pragma unroll
    for (int i = 0; i < 8; i++)
      by64<1, 1>(dkv, tile(by_key, i * STEP), tile(by_query, i * STEP), i == 0);
  };
#pragma unroll
  for (int i = 0; i < 32; i++) acc[i] = 0;
  gain(dp, 1 - me.g);
  asked();
  wait<0>();
#pragma unroll
  for (int i = 0; i < 32; i++) {  // no score takes what is further back than the first key
    int column = 8 * (i / 4) + me.x + (i & 1), row = 16 * me.w + me.y + 4 * (i & 2);
    dp[i] = column + row >= TILE - 1 ? dp[i] : 0.f;
  }
  me.lay(dp, 0);
  gain(dp, 2 - me.g);
  score(s, own_q, smem + K);
  asked();
  wait<0>();
  me.lay(dp, 1);
  meet_warp();

  const float unit = scale * LOG2E;
  auto turn = [](int slot, int of) { return slot >= of ? slot - of : slot; };
  int t = 0, of_keys = 0, slot = 0;  // of keys of tile t, and of block t of rows
#pragma unroll 1
  do {
    ask();
    score(dp, own_grad, smem + V + (t & 1) * BYTES);
    asked();
    auto weigh = [&](int i, u32 at) {
      s[i] = power((s[i] + take16(at)) * unit - low[i >> 1 & 1]);
    };
    auto weigh_some = [&](int first) {  // a quarter of them
      if ((t & 3) == 3) {
#pragma unroll
        for (int i = first; i < first + 8; i++) weigh(i, places.at(t, i, true));
      } else {
#pragma unroll
        for (int i = first; i < first + 8; i++) weigh(i, places.at(t, i, false));
      }
    };
    // In between, sums of the tile before the last leave, which takes long; then there is room for
    // those of the last.
    weigh_some(0);
    if (t > 1) add_pair(t - 2, 0);
    weigh_some(8);
    if (t > 1) add_pair(t - 2, 1);
    ask();
    give_pair();
    asked();
    weigh_some(16);
    if (t > 1) add_rows(t - 2);
    ask();
    give_rows(t - 1);
    asked();
    weigh_some(24);
    if (t * TILE + TILE - 1 > start + i0) {
      int last = start + i0 + mine - t * TILE - me.x;
#pragma unroll
      for (int i = 0; i < 32; i++)
        s[i] = 8 * (i / 4) + (i & 1) > last + 4 * (i & 2) ? 0.f : s[i];
    }
    wait<0>();
    u32 weights[16], steep[16];
#pragma unroll
    for (int i = 0; i < 16; i++) {
      weights[i] = pair(s[2 * i], s[2 * i + 1]);
      steep[i] = pair(s[2 * i] * (dp[2 * i] - delta[i & 1]),
                      s[2 * i + 1] * (dp[2 * i + 1] - delta[i & 1]));
    }
    meet();  // all products of the tile before are done
    if (t > 1 && (t & 7) == 1) add_bias(t - 2);
    me.write(smem + P, weights);
    me.write(smem + DS, steep);
    if ((t & 3) == 3) {
#pragma unroll
      for (int i = 0; i < 32; i++) put16(places.at(t, i, true), steep[i / 2], i & 1);
    } else {
#pragma unroll
      for (int i = 0; i < 32; i++) put16(places.at(t, i, false), steep[i / 2], i & 1);
    }
    arrived<0>();
    hand_over();
    meet();
    gain(dp, turn(slot + 3 - me.g, 5));
    score(s, own_q, smem + K + turn(of_keys + 1, 3) * BYTES);
    asked();
    fetch_pair(t + 2, turn(of_keys + 2, 3));
    fetch_rows(t + 4, turn(slot + 4, 5));
    copied();
    u32 some_k = side(smem + K + of_keys * BYTES);
#pragma unroll
    for (int i = 0; i < 4; i++) held64(acc, steep + 4 * i, tile(some_k, i * STEP));
    give_queries(t, turn(slot + 1 - me.g, 5));
    asked();
    wait<1>();
    me.lay(dp, t + 2);
    meet_warp();
    of_keys = turn(of_keys + 1, 3), slot = turn(slot + 1, 5);
  } while (++t < tiles);
  // ---- what is left: the last tile's sums, and the block that no later tile reads
  wait<0>();
  if (tiles > 1) {
    add_pair(tiles - 2, 0);
    add_pair(tiles - 2, 1);
    add_rows(tiles - 2);
  }
#pragma unroll
  for (int i = 0; i < 32; i++)
    put16((tiles & 3) == 3 ? places.at(tiles, i, true) : places.at(tiles, i, false), 0, 0);
  arrived<0>();
  hand_over();
  meet();
  if (tiles > 1 && (tiles & 7) == 1) add_bias(tiles - 2);
  ask();
  give_pair();
  give_rows(tiles - 1);
  give_queries(tiles, turn(slot + 1 - me.g, 5));
  asked();
  wait<0>();
  meet();
  add_pair(tiles - 1, 0);
  add_pair(tiles - 1, 1);
  add_rows(tiles - 1);
  ask();
  give_rows(tiles);
  asked();
  wait<0>();
  meet();
  if ((tiles & 7) == 0) {
    add_bias(tiles - 1);
    meet();
  }
  add_rows(tiles);
  meet();
  add_bias(tiles);
#pragma unroll
  for (int i = 0; i < 16; i++) {
    int row = mine + 8 * (i & 1);
    u16 *at = dq + (long long)min(row, left - 1) * dq_n + 8 * (i / 2) + me.x;
    put_if(at, pair(acc[2 * i] * scale, acc[2 * i + 1] * scale), row < left);
  }
}

// Sums of a tile of keys and values, as products leave them in threads -> dk and dv in 16 bits.
extern "C" __global__ void __launch_bounds__(THREADS)
settled(const float *sums, u16 *dk, PLACES(dk), u16 *dv, PLACES(dv), int keys, int heads,
        int first_head, float scale) {
  const int t = blockIdx.x, bh = blockIdx.y + first_head, b = bh / heads, h = bh % heads;
  sums += ((long long)blockIdx.y * gridDim.x + t) * (2 * TILE * TILE);
#pragma unroll
  for (int i = 0; i < 4; i++) {
    int one = threadIdx.x + i * THREADS, n = one & 7, row = one >> 3 & 63, of_values = i >> 1;
    const float *at = sums + of_values * (TILE * TILE) + (row >> 4) * 1024 + n * 128 +
                      (row & 7) * 16 + (row >> 3 & 1) * 2;
    float gain = of_values ? 1.f : scale;
    u32 two[4];
#pragma unroll
    for (int j = 0; j < 4; j++) {
      float2 x = *(const float2 *)(at + 4 * j);
      two[j] = pair(x.x * gain, x.y * gain);
    }
    u16 *to = of_values ? dv + (long long)b * dv_b + (long long)h * dv_h
                        : dk + (long long)b * dk_b + (long long)h * dk_h;
    to += (long long)(t * TILE + row) * (of_values ? dv_n : dk_n) + n * 8;
    if (t * TILE + row < keys) *(uint4 *)to = make_uint4(two[0], two[1], two[2], two[3]);
  }
}
