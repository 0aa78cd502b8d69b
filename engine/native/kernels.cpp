// Compiled once for each instruction set, with -DCONVOY_ISA=name: plain loops that the compiler makes vectors
// of, and the one inner loop that it can't, the product of bytes, by hand.
#include "kernels.h"

#include <algorithm>
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

void quantize(const float* x, size_t k, uint8_t* bytes, float* scale) {
  float parts[LANES] = {};
  size_t i = 0;
  for (; i + LANES <= k; i += LANES)
    for (size_t l = 0; l < LANES; l++) parts[l] = std::max(parts[l], std::fabs(x[i + l]));
  for (; i < k; i++) parts[0] = std::max(parts[0], std::fabs(x[i]));
  float top = 0;
  for (float part : parts) top = std::max(top, part);
  *scale = std::max(top * (1.0f / 127.0f), 1e-30f);  // a row of zeros stays zero
  const float step = *scale;  // divided by, as the standard operators do: a reciprocal rounds otherwise
  for (i = 0; i < k; i++) bytes[i] = static_cast<uint8_t>(static_cast<int32_t>(std::nearbyint(x[i] / step)) + 128);
}

struct Out {
  const float* scales;  // of the rows
  const Weights& w;
  float* y;
  size_t ldy;
  bool relu;
};

// `count` integer sums to floats: the offset of the bytes off, both scales, the bias, the relu
inline void store(const int32_t* __restrict acc, size_t count, size_t row, size_t column, const Out& out) {
  float* __restrict y = out.y + row * out.ldy + column;
  const int32_t* __restrict offsets = out.w.sums + column;
  const float* __restrict scales = out.w.scales + column;
  const float* __restrict bias = out.w.bias ? out.w.bias + column : nullptr;
  const float scale = out.scales[row];
  for (size_t i = 0; i < count; i++) {
    float v = static_cast<float>(acc[i] - offsets[i]) * scales[i] * scale;
    if (bias) v += bias[i];
    y[i] = out.relu ? std::max(v, 0.0f) : v;
  }
}

// A block of 16 columns (fewer at the end) holds K / 4 groups of [columns, 4], then the last K % 4 rows as they
// are, [columns, K % 4].
inline const int8_t* block(const Weights& w, size_t k, size_t column) { return w.packed + column * k; }

inline void remainder(const uint8_t* a, const int8_t* b, size_t k, size_t columns, int32_t* sums) {
  const size_t whole = k / 4 * 4, rest = k % 4;
  for (size_t i = 0; rest && i < columns; i++)
    for (size_t r = 0; r < rest; r++) sums[i] += a[whole + r] * b[whole * columns + i * rest + r];
}

#if defined(__AVX512VNNI__)
constexpr int TALL = 12;  // rows of a tile: 24 sums, 2 weights and an input fit into 32 registers

inline void store(__m512i acc, __mmask16 lanes, size_t row, size_t column, const Out& out) {
  const __m512i offsets = _mm512_maskz_loadu_epi32(lanes, out.w.sums + column);
  __m512 v = _mm512_cvtepi32_ps(_mm512_sub_epi32(acc, offsets));
  v = _mm512_mul_ps(v, _mm512_maskz_loadu_ps(lanes, out.w.scales + column));
  v = _mm512_mul_ps(v, _mm512_set1_ps(out.scales[row]));
  if (out.w.bias) v = _mm512_add_ps(v, _mm512_maskz_loadu_ps(lanes, out.w.bias + column));
  if (out.relu) v = _mm512_max_ps(v, _mm512_setzero_ps());
  _mm512_mask_storeu_ps(out.y + row * out.ldy + column, lanes, v);
}

template <int ROWS, int BLOCKS>
inline __attribute__((always_inline)) void tile(const uint8_t* a, const int8_t* b, size_t k, size_t row,
                                                size_t column, size_t columns, const Out& out) {
  const size_t full = BLOCKS > 1 ? LANES : columns;  // only a single block may be narrow
  const __mmask16 lanes = static_cast<__mmask16>((1u << full) - 1);
  __m512i acc[ROWS][BLOCKS];
#pragma GCC unroll 12
  for (int m = 0; m < ROWS; m++)
#pragma GCC unroll 4
    for (int n = 0; n < BLOCKS; n++) acc[m][n] = _mm512_setzero_si512();
  for (size_t g = 0; g < k / 4; g++) {
    __m512i weights[BLOCKS];
#pragma GCC unroll 4
    for (int n = 0; n < BLOCKS; n++) {
      const int8_t* at = b + n * LANES * k + g * full * 4;
      // while the first rows are at these columns, fetch the next ones: weights come from far away
      if (BLOCKS > 1 && row == 0) _mm_prefetch(reinterpret_cast<const char*>(at + BLOCKS * LANES * k), _MM_HINT_T0);
      weights[n] = BLOCKS > 1 ? _mm512_loadu_si512(at) : _mm512_maskz_loadu_epi32(lanes, at);
    }
#pragma GCC unroll 12
    for (int m = 0; m < ROWS; m++) {
      int32_t four;
      std::memcpy(&four, a + m * k + g * 4, 4);
      const __m512i x = _mm512_set1_epi32(four);
#pragma GCC unroll 4
      for (int n = 0; n < BLOCKS; n++) acc[m][n] = _mm512_dpbusd_epi32(acc[m][n], x, weights[n]);
    }
  }
#pragma GCC unroll 12
  for (int m = 0; m < ROWS; m++)
#pragma GCC unroll 4
    for (int n = 0; n < BLOCKS; n++) {
      if (k % 4) {
        alignas(64) int32_t sums[LANES];
        _mm512_store_si512(sums, acc[m][n]);
        remainder(a + m * k, b + n * LANES * k, k, full, sums);
        acc[m][n] = _mm512_load_si512(sums);
      }
      store(acc[m][n], lanes, row + m, column + n * LANES, out);
    }
}
#elif defined(__AVX2__)
constexpr int TALL = 2;

template <int ROWS, int BLOCKS>
inline __attribute__((always_inline)) void tile(const uint8_t* a, const int8_t* b, size_t k, size_t row,
                                                size_t column, size_t columns, const Out& out) {
  const size_t full = BLOCKS > 1 ? LANES : columns;
  for (int n = 0; n < BLOCKS; n++) {
    const int8_t* weights = b + n * LANES * k;
    alignas(32) int32_t sums[ROWS][LANES] = {};
    if (full == LANES) {
      __m256i acc[ROWS][4];  // of two neighbours each: a column is the sum of two lanes
      for (int m = 0; m < ROWS; m++)
        for (int q = 0; q < 4; q++) acc[m][q] = _mm256_setzero_si256();
      for (size_t g = 0; g < k / 4; g++, weights += LANES * 4)
        for (int m = 0; m < ROWS; m++) {
          int32_t four;
          std::memcpy(&four, a + m * k + g * 4, 4);
          const __m256i x = _mm256_cvtepu8_epi16(_mm_set1_epi32(four));
          for (int q = 0; q < 4; q++) {
            const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(weights + q * 16));
            acc[m][q] = _mm256_add_epi32(acc[m][q], _mm256_madd_epi16(x, _mm256_cvtepi8_epi16(bytes)));
          }
        }
      for (int m = 0; m < ROWS; m++)
        for (int q = 0; q < 4; q++) {
          alignas(32) int32_t pairs[8];
          _mm256_store_si256(reinterpret_cast<__m256i*>(pairs), acc[m][q]);
          for (int i = 0; i < 4; i++) sums[m][q * 4 + i] = pairs[2 * i] + pairs[2 * i + 1];
        }
    } else {
      for (int m = 0; m < ROWS; m++)
        for (size_t g = 0; g < k / 4; g++)
          for (size_t i = 0; i < full; i++)
            for (int j = 0; j < 4; j++) sums[m][i] += a[m * k + g * 4 + j] * weights[(g * full + i) * 4 + j];
    }
    for (int m = 0; m < ROWS; m++) {
      remainder(a + m * k, b + n * LANES * k, k, full, sums[m]);
      store(sums[m], full, row + m, column + n * LANES, out);
    }
  }
}
#else
constexpr int TALL = 1;

template <int ROWS, int BLOCKS>
inline void tile(const uint8_t* a, const int8_t* b, size_t k, size_t row, size_t column, size_t columns,
                 const Out& out) {
  const size_t full = BLOCKS > 1 ? LANES : columns;
  for (int n = 0; n < BLOCKS; n++)
    for (int m = 0; m < ROWS; m++) {
      int32_t sums[LANES] = {};
      const int8_t* weights = b + n * LANES * k;
      for (size_t g = 0; g < k / 4; g++)
        for (size_t i = 0; i < full; i++)
          for (int j = 0; j < 4; j++) sums[i] += a[m * k + g * 4 + j] * weights[(g * full + i) * 4 + j];
      remainder(a + m * k, weights, k, full, sums);
      store(sums, full, row + m, column + n * LANES, out);
    }
}
#endif

// ROWS at a time of rows [from, m), as many as fit; returns the row after them
template <int ROWS, int BLOCKS>
inline size_t band(const uint8_t* rows, const int8_t* b, size_t from, size_t m, size_t k, size_t column,
                   size_t columns, const Out& out) {
  for (; from + ROWS <= m; from += ROWS) tile<ROWS, BLOCKS>(rows + from * k, b, k, from, column, columns, out);
  return from;
}

template <int BLOCKS>
inline void panel(const uint8_t* rows, const int8_t* b, size_t m, size_t k, size_t column, size_t columns,
                  const Out& out) {
  size_t i = 0;
  if constexpr (BLOCKS <= 2) i = band<TALL, BLOCKS>(rows, b, i, m, k, column, columns, out);
  if constexpr (BLOCKS <= 2 && TALL > 8) i = band<8, BLOCKS>(rows, b, i, m, k, column, columns, out);
  if constexpr (TALL > 4) i = band<4, BLOCKS>(rows, b, i, m, k, column, columns, out);
  band<1, BLOCKS>(rows, b, i, m, k, column, columns, out);
}

void product(Quantized x, Weights w, size_t m, size_t k, size_t n, size_t from, size_t until, float* y,
             size_t ldy, bool relu) {
  const Out out{x.scales, w, y, ldy, relu};
  size_t column = from;
  until = std::min(until, n);
  // few rows make few sums: more columns at a time keep the multipliers busy
  for (; m < 8 && column + 4 * LANES <= until; column += 4 * LANES)
    panel<4>(x.rows, block(w, k, column), m, k, column, LANES, out);
  for (; column + 2 * LANES <= until; column += 2 * LANES)
    panel<2>(x.rows, block(w, k, column), m, k, column, LANES, out);
  for (; column < until; column += LANES)
    panel<1>(x.rows, block(w, k, column), m, k, column, std::min(LANES, n - column), out);
}

void glu(const float* x, size_t half, float* y) {
  for (size_t i = 0; i < half; i++) y[i] = x[i] / (1.0f + exponential(-x[half + i]));
}

void add_norm(const float* x, const float* residual, const float* gain, const float* bias, float eps, size_t n,
              float* y) {
  float parts[LANES] = {}, squares[LANES] = {};
  for (size_t j = 0; j < n; j++) y[j] = x[j] + residual[j];
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

void softmax(const float* x, size_t n, float* y) {
  const float scale = 1.0f / exponentials(x, largest(x, n), n, y, true);
  for (size_t i = 0; i < n; i++) y[i] *= scale;
}

// STRIP floats at a time stay in registers
constexpr size_t STRIP = 4 * LANES;

template <size_t N>
inline void mix(const float* const* rows, const float* taps, size_t k, size_t at, float* __restrict y) {
  float acc[N] = {};
  for (size_t j = 0; j < k; j++) {
    if (!rows[j]) continue;  // beyond the edge: zeros
    const float tap = taps[j];
    const float* row = rows[j] + at;
    for (size_t c = 0; c < N; c++) acc[c] += tap * row[c];
  }
  for (size_t c = 0; c < N; c++) y[at + c] = acc[c];
}

void taps(const float* const* rows, const float* taps, size_t heads, size_t k, size_t channels, float* y) {
  const size_t width = channels / heads;
  for (size_t h = 0; h < heads; h++, taps += k) {
    size_t c = h * width;
    const size_t end = c + width;
    for (; c + STRIP <= end; c += STRIP) mix<STRIP>(rows, taps, k, c, y);
    for (; c + LANES <= end; c += LANES) mix<LANES>(rows, taps, k, c, y);
    for (; c < end; c++) mix<1>(rows, taps, k, c, y);
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
void select(const Selection& s, size_t row, float* scores, int64_t* ids, float* scratch) {
  constexpr size_t BLOCK = 4 * LANES;
  const float* logits = s.logits + row * s.vocab;
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
    if (static_cast<int64_t>(at) == s.unk) value -= s.unk_penalty[row];
    if (static_cast<int64_t>(at) == s.eos) value -= s.eos_penalty[row];
    return value;
  };
  const int64_t forced = s.forced[row];
  if (forced >= 0) std::fill(ids, ids + s.k, forced);
  if (!(norm > LOWEST)) return;  // nothing is possible, or a logit is not a number
  if (forced >= 0) {
    const float score = lowered(static_cast<size_t>(forced)) - norm;
    scores[0] = score == score ? score : LOWEST;
    return;
  }
  const int64_t* banned = s.banned + row * s.bans;
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

extern const Kernels kernels{CONVOY_STRING(CONVOY_ISA), quantize, product, glu,  add_norm,
                             softmax,                   taps,     attend,  select};

}  // namespace CONVOY_ISA
}  // namespace convoy
