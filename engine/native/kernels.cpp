// Compiled once for each instruction set, with -DCONVOY_ISA=name.
#include "kernels.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>
#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#endif

// unrolls a short loop, so that its sums stay in registers
#if defined(__clang__)
#define UNROLLED _Pragma("clang loop unroll(full)")
#else
#define UNROLLED _Pragma("GCC unroll 16")
#endif

#define CONVOY_STRING_(x) #x
#define CONVOY_STRING(x) CONVOY_STRING_(x)

namespace convoy {
namespace CONVOY_ISA {
namespace {

constexpr float LOWEST = -std::numeric_limits<float>::infinity();

template <typename T>
inline T load_as(const void* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

#include "vectors.h"

constexpr size_t PANEL = 2 * LANES;  // columns of a panel

// Calls whole(at) for each 16 of n floats, and rest(at, count) for the remaining ones.
template <typename Whole, typename Rest>
inline void each_sixteen(size_t n, Whole whole, Rest rest) {
  size_t i = 0;
  for (; i + LANES <= n; i += LANES) whole(i);
  if (i < n) rest(i, n - i);
}

#include "bytes.h"
#include "cells.h"
#include "floats.h"

void among(const float* x, const float* rows, size_t m, size_t k, const int64_t* ids, size_t count, float* y) {
  for (size_t j = 0; j < count; j++) {
    const float* row = ids[j] < 0 ? nullptr : rows + static_cast<size_t>(ids[j]) * k;
    for (size_t i = 0; i < m; i++) {
      if (!row) {
        y[i * count + j] = LOWEST;
        continue;
      }
      const float* a = x + i * k;
      Floats parts[4] = {splat(0.0f), splat(0.0f), splat(0.0f), splat(0.0f)};
      size_t at = 0;
      for (; at + 4 * LANES <= k; at += 4 * LANES)
        for (size_t p = 0; p < 4; p++) parts[p] = fma(load(a + at + p * LANES), load(row + at + p * LANES), parts[p]);
      for (; at < k; at += LANES) {
        const size_t left = std::min(LANES, k - at);
        parts[0] = fma(load(a + at, left), load(row + at, left), parts[0]);
      }
      y[i * count + j] = total((parts[0] + parts[1]) + (parts[2] + parts[3]));
    }
  }
}

// Replaces y by the layer norm of the sum of y and a residual.
void add_norm(float* y, const float* residual, const float* gain, const float* bias, float eps, size_t n) {
  Floats parts = splat(0.0f), squares = splat(0.0f);
  each_sixteen(
      n,
      [&](size_t i) {
        const Floats v = load(y + i) + load(residual + i);
        store(y + i, v);
        parts = parts + v;
      },
      [&](size_t i, size_t count) {
        const Floats v = load(y + i, count) + load(residual + i, count);
        store(y + i, v, count);
        parts = parts + v;
      });
  const float mean = total(parts) / static_cast<float>(n);
  const Floats means = splat(mean);
  auto square = [&](const Floats& v) { squares = fma(v - means, v - means, squares); };
  each_sixteen(
      n, [&](size_t i) { square(load(y + i)); }, [&](size_t i, size_t count) { square(load(y + i, count, mean)); });
  const Floats scale = splat(1.0f / std::sqrt(total(squares) / static_cast<float>(n) + eps));
  each_sixteen(
      n, [&](size_t i) { store(y + i, fma((load(y + i) - means) * scale, load(gain + i), load(bias + i))); },
      [&](size_t i, size_t count) {
        const Floats v = (load(y + i, count) - means) * scale;
        store(y + i, fma(v, load(gain + i, count), load(bias + i, count)), count);
      });
}

inline float largest(const float* x, size_t n) {
  Floats top = splat(LOWEST);
  each_sixteen(
      n, [&](size_t i) { top = larger(load(x + i), top); },
      [&](size_t i, size_t count) { top = larger(load(x + i, count, LOWEST), top); });
  return largest(top);
}

// Returns the sum of exp(x - top), and stores the terms in y if KEPT.
template <bool KEPT>
inline float exponentials(const float* x, float top, size_t n, float* y) {
  const Floats highest = splat(top);
  Floats sums[2] = {splat(0.0f), splat(0.0f)};
  size_t i = 0;
  for (; i + 2 * LANES <= n; i += 2 * LANES)
UNROLLED
    for (size_t part = 0; part < 2; part++) {
      const Floats e = exponential(load(x + i + part * LANES) - highest);
      if (KEPT) store(y + i + part * LANES, e);
      sums[part] = sums[part] + e;
    }
  for (; i < n; i += LANES) {
    const size_t count = std::min(LANES, n - i);
    const Floats e = exponential(load(x + i, count, LOWEST) - highest);
    if (KEPT) store(y + i, e, count);
    sums[0] = sums[0] + e;
  }
  return total(sums[0] + sums[1]);
}

void softmax(const float* x, size_t n, float* y) {
  const Floats scale = splat(1.0f / exponentials<true>(x, largest(x, n), n, y));
  each_sixteen(
      n, [&](size_t i) { store(y + i, load(y + i) * scale); },
      [&](size_t i, size_t count) { store(y + i, load(y + i, count) * scale, count); });
}

// N vectors of 16 channels stay in registers; the last one has `count` channels.
template <size_t N, bool WHOLE>
inline void mix(const float* const* rows, const float* taps, size_t k, size_t at, size_t channels, size_t count,
                const float* const* next, float* __restrict y) {
  Floats sum[N];
  for (size_t c = 0; c < N; c++) sum[c] = splat(0.0f);
  // prefetches the next strip, because windows are not in a cache
  const bool last = at + N * LANES >= channels;
  const float* const* asked = last ? next : rows;
  const size_t there = last ? 0 : at + N * LANES;
  for (size_t j = 0; j < k; j++) {
    if (!rows[j]) continue;  // zeros beyond the edge
    for (size_t c = 0; asked && asked[j] && c < N; c++) __builtin_prefetch(asked[j] + there + c * LANES);
    const Floats tap = splat(taps[j]);
    const float* row = rows[j] + at;
    for (size_t c = 0; c < N; c++) sum[c] = fma(tap, WHOLE ? load(row + c * LANES) : load(row, count), sum[c]);
  }
  for (size_t c = 0; c < N; c++) WHOLE ? store(y + at + c * LANES, sum[c]) : store(y + at, sum[c], count);
}

void taps(const float* const* rows, const float* const* next, const float* taps, size_t heads, size_t k,
          size_t channels, float* y) {
  constexpr size_t STRIP = 4;
  const size_t width = channels / heads;
  for (size_t h = 0; h < heads; h++, taps += k) {
    size_t c = h * width;
    const size_t end = c + width;
    for (; c + STRIP * LANES <= end; c += STRIP * LANES) mix<STRIP, true>(rows, taps, k, c, channels, 0, next, y);
    for (; c + LANES <= end; c += LANES) mix<1, true>(rows, taps, k, c, channels, 0, next, y);
    if (c < end) mix<1, false>(rows, taps, k, c, channels, end - c, next, y);
  }
}

// Calls body.operator()<N, WHOLE>(at, count) for all of n floats, with at most MOST vectors of 16 at once. The last of
// the N vectors has `count` floats, and 16 if WHOLE.
template <size_t MOST, typename Body>
inline void each_block(size_t n, Body body, size_t at = 0) {
  for (; n - at >= MOST * LANES; at += MOST * LANES) body.template operator()<MOST, true>(at, LANES);
  if (n - at > (MOST - 1) * LANES) return body.template operator()<MOST, false>(at, n - at - (MOST - 1) * LANES);
  if constexpr (MOST > 1) each_block<MOST / 2>(n, body, at);
}

// Computes QUERIES queries of one head together, which share the loads of keys and values; N vectors of 16 positions
// stay in registers. The sums of a query do not depend on the others.
template <size_t QUERIES, size_t N, bool WHOLE>
inline void dots(const Heads& h, const float* q, size_t at, size_t count, float* weights) {
  Floats sum[QUERIES][N];
  for (size_t i = 0; i < QUERIES; i++)
    for (size_t t = 0; t < N; t++) sum[i][t] = splat(0.0f);
  for (size_t d = 0; d < h.width; d++) {
    const float* row = h.keys + d * h.time + at;
    Floats keys[N];
    for (size_t t = 0; t < N; t++) {
      __builtin_prefetch(row + h.width * h.time + t * LANES);  // prefetches the next head
      keys[t] = WHOLE || t + 1 < N ? load(row + t * LANES) : load(row + t * LANES, count);
    }
    for (size_t i = 0; i < QUERIES; i++) {
      const Floats one = splat(q[i * h.dim + d]);
      for (size_t t = 0; t < N; t++) sum[i][t] = fma(one, keys[t], sum[i][t]);
    }
  }
  for (size_t i = 0; i < QUERIES; i++)
    for (size_t t = 0; t < N; t++) {
      float* out = weights + i * h.time + at + t * LANES;
      const float* mask = h.mask + at + t * LANES;
      WHOLE || t + 1 < N ? store(out, sum[i][t] + load(mask)) : store(out, sum[i][t] + load(mask, count), count);
    }
}

template <size_t QUERIES, size_t N, bool WHOLE>
inline void blend(const Heads& h, const float* weights, size_t at, size_t count, float* context) {
  Floats sum[QUERIES][N];
  for (size_t i = 0; i < QUERIES; i++)
    for (size_t d = 0; d < N; d++) sum[i][d] = splat(0.0f);
  for (size_t t = 0; t < h.length; t++) {
    const float* row = h.values + t * h.width + at;
    Floats values[N];
    for (size_t d = 0; d < N; d++) {
      __builtin_prefetch(row + h.width * h.time + d * LANES);
      values[d] = WHOLE || d + 1 < N ? load(row + d * LANES) : load(row + d * LANES, count);
    }
    for (size_t i = 0; i < QUERIES; i++) {
      const Floats one = splat(weights[i * h.time + t]);
      for (size_t d = 0; d < N; d++) sum[i][d] = fma(one, values[d], sum[i][d]);
    }
  }
  for (size_t i = 0; i < QUERIES; i++)
    for (size_t d = 0; d < N; d++) {
      float* out = context + i * h.dim + at + d * LANES;
      WHOLE || d + 1 < N ? store(out, sum[i][d]) : store(out, sum[i][d], count);
    }
}

template <size_t QUERIES>
inline void attend_some(const Heads& h, const float* q, float* weights, float* context) {
#if defined(__AVX512F__)
  constexpr size_t MOST = QUERIES == 1 ? 4 : 2;  // vectors of each query that stay in registers
#else
  constexpr size_t MOST = QUERIES == 1 ? 4 : 1;
#endif
  // whole blocks, also beyond the length, which the mask hides, so that sums do not depend on padding
  const size_t padded = std::min((h.length + LANES - 1) / LANES * LANES, h.time);
  each_block<MOST>(padded, [&]<size_t N, bool WHOLE>(size_t at, size_t count) {
    dots<QUERIES, N, WHOLE>(h, q, at, count, weights);
  });
  for (size_t i = 0; i < QUERIES; i++) softmax(weights + i * h.time, padded, weights + i * h.time);
  each_block<MOST>(h.width, [&]<size_t N, bool WHOLE>(size_t at, size_t count) {
    blend<QUERIES, N, WHOLE>(h, weights, at, count, context);
  });
}

void attend(const Heads& h, const float* q, size_t queries, float* weights, float* context) {
  size_t i = 0;
  for (; i + 4 <= queries; i += 4) attend_some<4>(h, q + i * h.dim, weights + i * h.time, context + i * h.dim);
  for (; i < queries; i++) attend_some<1>(h, q + i * h.dim, weights + i * h.time, context + i * h.dim);
}

// Sums over the width of a head: vectors of 16 first, then their lanes.
inline float dot(const float* a, const float* b, size_t width) {
  Floats sum = splat(0.0f);
  each_sixteen(
      width, [&](size_t i) { sum = fma(load(a + i), load(b + i), sum); },
      [&](size_t i, size_t count) { sum = fma(load(a + i, count), load(b + i, count), sum); });
  return total(sum);
}

// Computes 16 floats of a context.
template <bool WHOLE>
inline void blend_past(const float* values, const Past& past, const float* weights, const float* own, size_t count,
                       float* context) {
  Floats sum = splat(0.0f);
  for (size_t j = 0; j < past.count; j++) {
    const float* row = values + past.entries[j];
    sum = fma(splat(weights[j]), WHOLE ? load(row) : load(row, count), sum);
  }
  sum = fma(splat(weights[past.count]), WHOLE ? load(own) : load(own, count), sum);
  WHOLE ? store(context, sum) : store(context, sum, count);
}

void attend_past(const Past& past, const float* q, const float* key, const float* value, size_t heads, size_t width,
                 float scale, float* scratch, float* context) {
  for (size_t h = 0; h < heads; h++) {
    const size_t at = h * width;
    const float *keys = past.keys + h * past.stride, *values = past.values + h * past.stride;
    for (size_t j = 0; j < past.count; j++) {
      __builtin_prefetch(values + past.entries[j]);
      scratch[j] = scale * dot(q + at, keys + past.entries[j], width);
      if (past.bias) scratch[j] += past.bias[(h * past.stride + past.entries[j]) / width];
    }
    scratch[past.count] = scale * dot(q + at, key + at, width);
    if (past.bias) scratch[past.count] += past.own[h];
    softmax(scratch, past.count + 1, scratch);
    each_sixteen(
        width, [&](size_t i) { blend_past<true>(values + i, past, scratch, value + at + i, 0, context + at + i); },
        [&](size_t i, size_t count) { blend_past<false>(values + i, past, scratch, value + at + i, count, context + at + i); });
  }
}

// scratch: one float for every 64 tokens of the vocabulary
void select(const Selection& s, float* scores, int64_t* ids, float* scratch) {
  constexpr size_t BLOCK = 4 * LANES;
  const float* logits = s.logits;
  float top = LOWEST;
  for (size_t begin = 0, b = 0; begin < s.vocab; begin += BLOCK, b++) {
    scratch[b] = largest(logits + begin, std::min(BLOCK, s.vocab - begin));
    top = top < scratch[b] ? scratch[b] : top;
  }
  // in double precision, so that all math libraries give the same float
  const double sum = exponentials<false>(logits, top, s.vocab, nullptr);
  const float norm = top + static_cast<float>(std::log(sum));
  std::fill(scores, scores + s.k, LOWEST);
  std::fill(ids, ids + s.k, int64_t{0});
  auto lowered = [&](size_t at) {
    float value = logits[at];
    if (static_cast<int64_t>(at) == s.unk) value -= s.unk_penalty;
    if (static_cast<int64_t>(at) == s.eos) value -= s.eos_penalty;
    return value;
  };
  const int64_t forced = s.forced;
  if (forced >= 0) std::fill(ids, ids + s.k, forced);
  if (!(norm > LOWEST)) return;  // no token is possible, or a logit is NaN
  if (forced >= 0) {
    const float score = lowered(static_cast<size_t>(forced)) - norm;
    scores[0] = score == score ? score : LOWEST;
    return;
  }
  const int64_t* banned = s.banned;
  // keeps the k best sorted; ties go to the earlier token
  auto offer = [&](float value, size_t at) {
    if (!(value > scores[s.k - 1]) || std::find(banned, banned + s.bans, static_cast<int64_t>(at)) != banned + s.bans)
      return;
    size_t place = s.k - 1;
    for (; place > 0 && (scores[place - 1] < value ||
                         (scores[place - 1] == value && ids[place - 1] > static_cast<int64_t>(at)));
         place--) {
      scores[place] = scores[place - 1];
      ids[place] = ids[place - 1];
    }
    scores[place] = value;
    ids[place] = static_cast<int64_t>(at);
  };
  offer(lowered(static_cast<size_t>(s.eos)), static_cast<size_t>(s.eos));
  if (s.unk >= 0) offer(lowered(static_cast<size_t>(s.unk)), static_cast<size_t>(s.unk));
  for (size_t begin = 0, b = 0; begin < s.vocab; begin += BLOCK, b++) {
    if (!(scratch[b] > scores[s.k - 1])) continue;
    const size_t end = std::min(begin + BLOCK, s.vocab);
    for (size_t i = begin; i < end; i++)
      if (logits[i] > scores[s.k - 1] && static_cast<int64_t>(i) != s.eos && static_cast<int64_t>(i) != s.unk)
        offer(logits[i], i);
  }
  for (size_t i = 0; i < s.k; i++) scores[i] = scores[i] > LOWEST ? scores[i] - norm : LOWEST;
}

}  // namespace

#if defined(__AVX2__) || defined(__ARM_NEON)
constexpr bool FAST = true;
#else
constexpr bool FAST = false;  // without fused products it is slower than the standard operators
#endif

extern const Kernels kernels{CONVOY_STRING(CONVOY_ISA), FAST, stride_of, OFFSET, quantize, product, product32,
                             add_norm, softmax, taps, attend, attend_past, select, among8, among, quantize_static, ssru};

}  // namespace CONVOY_ISA
}  // namespace convoy
