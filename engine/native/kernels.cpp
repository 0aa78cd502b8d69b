// Compiled once for each instruction set, with -DCONVOY_ISA=name: plain loops that the compiler makes vectors
// of, and the one inner loop that it can't, the product of bytes, by hand.
#include "kernels.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>
#if defined(__AVX2__)
#include <immintrin.h>
#endif

#define CONVOY_STRING_(x) #x
#define CONVOY_STRING(x) CONVOY_STRING_(x)

namespace convoy {
namespace CONVOY_ISA {
namespace {

constexpr size_t LANES = 16;  // partial sums, the same for every instruction set
constexpr float LOWEST = -std::numeric_limits<float>::infinity();

// Cephes' expf: within 2 units in the last place, exactly 0 below the smallest normal number.
inline float exponential(float x) {
  const float clipped = std::min(std::max(x, -87.3f), 88.7f);
  const float n = std::nearbyint(clipped * 1.44269504088896341f);
  const float r = clipped - n * 0.693359375f - n * -2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  const int32_t bits = (static_cast<int32_t>(n) + 127) << 23;
  float power;
  std::memcpy(&power, &bits, sizeof power);
  return x < -87.3f ? 0.0f : p * power;
}

#if defined(__AVX512F__)
// As above, with the powers of two made by one instruction.
inline __m512 exponential(__m512 x) {
  const __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(1.44269504088896341f)), 0);
  __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693359375f), x);
  r = _mm512_fnmadd_ps(n, _mm512_set1_ps(-2.12194440e-4f), r);
  __m512 p = _mm512_set1_ps(1.9875691500e-4f);
  for (float c : {1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f})
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(c));
  p = _mm512_fmadd_ps(p, _mm512_mul_ps(r, r), _mm512_add_ps(r, _mm512_set1_ps(1.0f)));
  const __m512 y = _mm512_scalef_ps(p, n);
  // never less than the smallest normal number, or 0, as above; NaN stays
  return _mm512_mask_mov_ps(y, _mm512_cmp_ps_mask(x, _mm512_set1_ps(-87.3f), _CMP_LT_OQ), _mm512_setzero_ps());
}
#endif

inline float total(const float (&parts)[LANES]) {
  float sum = 0;
  for (float part : parts) sum += part;
  return sum;
}

inline float largest(const float* x, size_t n) {
  float parts[LANES];
  std::fill(parts, parts + LANES, LOWEST);
  size_t i = 0;
  for (; i + LANES <= n; i += LANES)
    for (size_t l = 0; l < LANES; l++) parts[l] = parts[l] < x[i + l] ? x[i + l] : parts[l];
  for (; i < n; i++) parts[0] = parts[0] < x[i] ? x[i] : parts[0];
  float top = parts[0];
  for (float part : parts) top = top < part ? part : top;
  return top;
}

#include "bytes.h"
#include "floats.h"

// sums of bytes times whole numbers, over k
#if defined(__AVX512VNNI__)
inline int32_t dot(const uint8_t* a, const int8_t* b, size_t k) {
  __m512i acc = _mm512_setzero_si512();
  size_t i = 0;
  for (; i + 64 <= k; i += 64)
    acc = _mm512_dpbusd_epi32(acc, _mm512_loadu_si512(a + i), _mm512_loadu_si512(b + i));
  if (i < k) {
    const __mmask64 rest = (uint64_t{1} << (k - i)) - 1;
    acc = _mm512_dpbusd_epi32(acc, _mm512_maskz_loadu_epi8(rest, a + i), _mm512_maskz_loadu_epi8(rest, b + i));
  }
  return _mm512_reduce_add_epi32(acc);
}
#else
inline int32_t dot(const uint8_t* a, const int8_t* b, size_t k) {
  int32_t sum = 0;
  for (size_t i = 0; i < k; i++) sum += a[i] * b[i];
  return sum;
}
#endif

void among8(Quantized x, const int8_t* rows, const float* scales, const int32_t* sums, size_t m, size_t k,
            const int64_t* ids, size_t count, float* y) {
  for (size_t j = 0; j < count; j++) {
    if (ids[j] < 0) {
      for (size_t i = 0; i < m; i++) y[i * count + j] = LOWEST;
      continue;
    }
    const size_t id = static_cast<size_t>(ids[j]);
    const int8_t* row = rows + id * k;
    if (j + 4 < count && ids[j + 4] >= 0)  // rows lie anywhere: ask for them early
      for (size_t at = 0; at < k; at += 64) __builtin_prefetch(rows + static_cast<size_t>(ids[j + 4]) * k + at);
    for (size_t i = 0; i < m; i++)
      y[i * count + j] = static_cast<float>(dot(x.rows + i * k, row, k) - sums[id]) * scales[id] * x.scales[i];
  }
}

void among(const float* x, const float* rows, size_t m, size_t k, const int64_t* ids, size_t count, float* y) {
  for (size_t j = 0; j < count; j++) {
    const float* row = ids[j] < 0 ? nullptr : rows + static_cast<size_t>(ids[j]) * k;
    for (size_t i = 0; i < m; i++) {
      float parts[4][LANES] = {};
      size_t at = 0;
      for (; row && at + 4 * LANES <= k; at += 4 * LANES)
        for (size_t p = 0; p < 4; p++)
          for (size_t l = 0; l < LANES; l++) parts[p][l] += x[i * k + at + p * LANES + l] * row[at + p * LANES + l];
      for (; row && at < k; at++) parts[0][0] += x[i * k + at] * row[at];
      for (size_t p = 1; p < 4; p++)
        for (size_t l = 0; l < LANES; l++) parts[0][l] += parts[p][l];
      y[i * count + j] = row ? total(parts[0]) : LOWEST;
    }
  }
}

// of the sum of y and a residual, in place
void add_norm(float* y, const float* residual, const float* gain, const float* bias, float eps, size_t n) {
  float parts[LANES] = {}, squares[LANES] = {};
  for (size_t j = 0; j < n; j++) y[j] += residual[j];
  size_t i = 0;
  for (; i + LANES <= n; i += LANES)
    for (size_t l = 0; l < LANES; l++) parts[l] += y[i + l];
  for (; i < n; i++) parts[0] += y[i];
  const float mean = total(parts) / static_cast<float>(n);
  for (i = 0; i + LANES <= n; i += LANES)
    for (size_t l = 0; l < LANES; l++) squares[l] += (y[i + l] - mean) * (y[i + l] - mean);
  for (; i < n; i++) squares[0] += (y[i] - mean) * (y[i] - mean);
  const float scale = 1.0f / std::sqrt(total(squares) / static_cast<float>(n) + eps);
  for (i = 0; i < n; i++) y[i] = (y[i] - mean) * scale * gain[i] + bias[i];
}

#if defined(__AVX512F__)
// y = exp(x - top), if `kept`; returns the sum.
inline float exponentials(const float* x, float top, size_t n, float* y, bool kept) {
  const __m512 highest = _mm512_set1_ps(top);
  __m512 sums[2] = {_mm512_setzero_ps(), _mm512_setzero_ps()};
  size_t i = 0;
  for (; i + 2 * LANES <= n; i += 2 * LANES)
#pragma GCC unroll 2
    for (size_t part = 0; part < 2; part++) {
      const __m512 e = exponential(_mm512_sub_ps(_mm512_loadu_ps(x + i + part * LANES), highest));
      if (kept) _mm512_storeu_ps(y + i + part * LANES, e);
      sums[part] = _mm512_add_ps(sums[part], e);
    }
  for (; i < n; i += LANES) {
    const __mmask16 mask = lanes(std::min(LANES, n - i));
    const __m512 e = _mm512_maskz_mov_ps(mask, exponential(_mm512_sub_ps(_mm512_maskz_loadu_ps(mask, x + i), highest)));
    if (kept) _mm512_mask_storeu_ps(y + i, mask, e);
    sums[0] = _mm512_add_ps(sums[0], e);
  }
  return _mm512_reduce_add_ps(_mm512_add_ps(sums[0], sums[1]));
}
#else
// y = exp(x - top); returns the sum. In pieces that stay in the first cache; two plain loops, for GCC makes no
// vectors of one that does both.
inline float exponentials(const float* x, float top, size_t n, float* y, bool kept) {
  constexpr size_t PIECE = 16 * LANES;
  float parts[LANES] = {};
  for (size_t begin = 0; begin < n; begin += PIECE) {
    const size_t count = std::min(PIECE, n - begin);
    float* out = kept ? y + begin : y;
    for (size_t i = 0; i < count; i++) out[i] = exponential(x[begin + i] - top);
    size_t i = 0;
    for (; i + LANES <= count; i += LANES)
      for (size_t l = 0; l < LANES; l++) parts[l] += out[i + l];
    for (; i < count; i++) parts[0] += out[i];
  }
  return total(parts);
}
#endif

void softmax(const float* x, size_t n, float* y) {
  const float scale = 1.0f / exponentials(x, largest(x, n), n, y, true);
  for (size_t i = 0; i < n; i++) y[i] *= scale;
}

// STRIP floats at a time stay in registers
constexpr size_t STRIP = 4 * LANES;

template <size_t N>
inline void mix(const float* const* rows, const float* taps, size_t k, size_t at, size_t channels,
                const float* const* next, float* __restrict y) {
  float acc[N] = {};
  // while these are used, ask for the strip after them: windows come from beyond the caches
  const bool last = at + N >= channels;
  const float* const* asked = last ? next : rows;
  const size_t there = last ? 0 : at + N;
  for (size_t j = 0; j < k; j++) {
    if (!rows[j]) continue;  // beyond the edge: zeros
    for (size_t c = 0; asked && asked[j] && c < N; c += LANES) __builtin_prefetch(asked[j] + there + c);
    const float tap = taps[j];
    const float* row = rows[j] + at;
    for (size_t c = 0; c < N; c++) acc[c] += tap * row[c];
  }
  for (size_t c = 0; c < N; c++) y[at + c] = acc[c];
}

void taps(const float* const* rows, const float* const* next, const float* taps, size_t heads, size_t k,
          size_t channels, float* y) {
  const size_t width = channels / heads;
  for (size_t h = 0; h < heads; h++, taps += k) {
    size_t c = h * width;
    const size_t end = c + width;
    for (; c + STRIP <= end; c += STRIP) mix<STRIP>(rows, taps, k, c, channels, next, y);
    for (; c + LANES <= end; c += LANES) mix<LANES>(rows, taps, k, c, channels, next, y);
    for (; c < end; c++) mix<1>(rows, taps, k, c, channels, next, y);
  }
}

// QUERIES of one head at once, which share what is loaded of keys and values; N positions stay in registers.
// The sums of a query are the same in any company.
template <size_t QUERIES, size_t N>
inline void dots(const Heads& h, const float* q, size_t at, float* weights) {
  float acc[QUERIES][N] = {};
  for (size_t d = 0; d < h.width; d++) {
    const float* row = h.keys + d * h.time + at;
    for (size_t t = 0; t < N; t += LANES) __builtin_prefetch(row + h.width * h.time + t);  // of the next head
    for (size_t i = 0; i < QUERIES; i++)
      for (size_t t = 0; t < N; t++) acc[i][t] += q[i * h.dim + d] * row[t];
  }
  for (size_t i = 0; i < QUERIES; i++)
    for (size_t t = 0; t < N; t++) weights[i * h.time + at + t] = acc[i][t] + h.mask[at + t];
}

template <size_t QUERIES, size_t N>
inline void blend(const Heads& h, const float* weights, size_t at, float* context) {
  float acc[QUERIES][N] = {};
  for (size_t t = 0; t < h.length; t++) {
    const float* row = h.values + t * h.width + at;
    for (size_t d = 0; d < N; d += LANES) __builtin_prefetch(row + h.width * h.time + d);
    for (size_t i = 0; i < QUERIES; i++)
      for (size_t d = 0; d < N; d++) acc[i][d] += weights[i * h.time + t] * row[d];
  }
  for (size_t i = 0; i < QUERIES; i++)
    for (size_t d = 0; d < N; d++) context[i * h.dim + at + d] = acc[i][d];
}

template <size_t QUERIES>
inline void attend_some(const Heads& h, const float* q, float* weights, float* context) {
  // whole blocks even beyond the length, where the mask hides them: sums are the same for any padding
  const size_t padded = std::min((h.length + LANES - 1) / LANES * LANES, h.time);
  size_t t = 0, d = 0;
  for (; t + 2 * LANES <= padded; t += 2 * LANES) dots<QUERIES, 2 * LANES>(h, q, t, weights);
  for (; t + LANES <= padded; t += LANES) dots<QUERIES, LANES>(h, q, t, weights);
  for (; t < padded; t++) dots<QUERIES, 1>(h, q, t, weights);
  for (size_t i = 0; i < QUERIES; i++) softmax(weights + i * h.time, padded, weights + i * h.time);
  for (; d + 2 * LANES <= h.width; d += 2 * LANES) blend<QUERIES, 2 * LANES>(h, weights, d, context);
  for (; d + LANES <= h.width; d += LANES) blend<QUERIES, LANES>(h, weights, d, context);
  for (; d < h.width; d++) blend<QUERIES, 1>(h, weights, d, context);
}

void attend(const Heads& h, const float* q, size_t queries, float* weights, float* context) {
  size_t i = 0;
  for (; i + 4 <= queries; i += 4) attend_some<4>(h, q + i * h.dim, weights + i * h.time, context + i * h.dim);
  for (; i < queries; i++) attend_some<1>(h, q + i * h.dim, weights + i * h.time, context + i * h.dim);
}

// scratch: room for a float of every 64 of the vocabulary
void select(const Selection& s, float* scores, int64_t* ids, float* scratch) {
  constexpr size_t BLOCK = 4 * LANES;
  const float* logits = s.logits;
  float top = LOWEST;
  for (size_t begin = 0, b = 0; begin < s.vocab; begin += BLOCK, b++) {
    scratch[b] = largest(logits + begin, std::min(BLOCK, s.vocab - begin));
    top = top < scratch[b] ? scratch[b] : top;
  }
  float piece[16 * LANES];
  const float norm = top + std::log(exponentials(logits, top, s.vocab, piece, false));
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
  if (!(norm > LOWEST)) return;  // nothing is possible, or a logit is not a number
  if (forced >= 0) {
    const float score = lowered(static_cast<size_t>(forced)) - norm;
    scores[0] = score == score ? score : LOWEST;
    return;
  }
  const int64_t* banned = s.banned;
  // keeps the k best sorted; of equal ones the earlier comes first
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

extern const Kernels kernels{CONVOY_STRING(CONVOY_ISA), quantize, product, product32, add_norm, softmax,
                             taps,                      attend,   select,  among8,    among};

}  // namespace CONVOY_ISA
}  // namespace convoy
