// The product of quantised rows with packed int8 weights. Included by kernels.cpp, once for each instruction set.
//
// Weights [K, N] are stored in panels of 32 columns that are read sequentially: K / 4 groups of [32, 4], then the last
// K % 4 rows as [32, K % 4]. With a gate, half of a panel's columns are values and the other half are the gates of the
// same columns of the result. Sums are of integers, hence equal on every instruction set.

constexpr size_t AHEAD = 16 * 1024;  // bytes by which weights are prefetched

inline void fetch(const int8_t* at) {  // a group of a panel is two cache lines
  __builtin_prefetch(at);
  __builtin_prefetch(at + 64);
}

#if defined(__AVX2__) && !defined(__AVX512F__) && !defined(__AVXVNNI__)
#include "magnitudes.h"
#else

// A quantised number, in the form that the instruction set multiplies: bytes with an offset, which the sums of the
// columns subtract again, 16-bit numbers that are multiplied in pairs, or plain bytes.
#if defined(__AVX512VNNI__) || defined(__AVXVNNI__) || defined(CONVOY_VNNI256)
typedef uint8_t Number;
constexpr int32_t OFFSET = 128;
#elif defined(__AVX512F__)
typedef int16_t Number;
constexpr int32_t OFFSET = 0;
#else
typedef int8_t Number;
constexpr int32_t OFFSET = 0;
#endif

inline size_t stride_of(size_t k) { return k * sizeof(Number); }  // bytes of a row
inline int32_t whole_times(const Number* row, size_t i, int8_t w) { return row[i] * w; }

// Rows of a tile, and adjacent sums of each row, as many as registers hold. A Sum has COLUMNS columns.
#if defined(__AVX512VNNI__) && !defined(CONVOY_VNNI256)
typedef __m512i Sum;
constexpr size_t TALL = 12, COLUMNS = 16, SUMS = 2;
inline Sum begin(const int32_t* offsets) { return _mm512_loadu_si512(offsets); }
inline __m512i four_of(const Number* a) { return _mm512_set1_epi32(load_as<int32_t>(a)); }
inline __m512i weights_of(const int8_t* b) { return _mm512_loadu_si512(b); }
inline Sum add(Sum sum, __m512i a, __m512i b) { return _mm512_dpbusd_epi32(sum, a, b); }
inline void finish(int32_t* at, Sum sum) { _mm512_storeu_si512(at, sum); }
#elif defined(__AVXVNNI__) || defined(CONVOY_VNNI256)
typedef __m256i Sum;
constexpr size_t TALL = 6, COLUMNS = 8, SUMS = 2;
inline Sum begin(const int32_t* offsets) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(offsets)); }
inline __m256i four_of(const Number* a) { return _mm256_set1_epi32(load_as<int32_t>(a)); }
inline __m256i weights_of(const int8_t* b) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(b)); }
#if defined(__AVXVNNI__)
inline Sum add(Sum sum, __m256i a, __m256i b) { return _mm256_dpbusd_avx_epi32(sum, a, b); }
#else  // the AVX-512 form of the same instruction, with which tests run this tile
inline Sum add(Sum sum, __m256i a, __m256i b) { return _mm256_dpbusd_epi32(sum, a, b); }
#endif
inline void finish(int32_t* at, Sum sum) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(at), sum); }
#elif defined(__AVX512F__)
typedef __m512i Sum;  // two adjacent lanes add up to a column
constexpr size_t TALL = 12, COLUMNS = 8, SUMS = 2;
inline Sum begin(const int32_t*) { return _mm512_setzero_si512(); }
inline __m512i four_of(const Number* a) { return _mm512_set1_epi64(load_as<int64_t>(a)); }
inline __m512i weights_of(const int8_t* b) {
  return _mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(b)));
}
inline Sum add(Sum sum, __m512i a, __m512i b) { return _mm512_add_epi32(sum, _mm512_madd_epi16(a, b)); }
inline void finish(int32_t* at, Sum sum) {
  const __m512i both = _mm512_add_epi32(sum, _mm512_srli_epi64(sum, 32));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(at), _mm512_cvtepi64_epi32(both));
}
#elif defined(__ARM_FEATURE_DOTPROD)
typedef int32x4_t Sum;
constexpr size_t TALL = 6, COLUMNS = 4, SUMS = 4;
inline Sum begin(const int32_t*) { return vdupq_n_s32(0); }
inline int8x16_t four_of(const Number* a) { return vreinterpretq_s8_s32(vdupq_n_s32(load_as<int32_t>(a))); }
inline int8x16_t weights_of(const int8_t* b) { return vld1q_s8(b); }
inline Sum add(Sum sum, int8x16_t a, int8x16_t b) { return vdotq_s32(sum, a, b); }
inline void finish(int32_t* at, Sum sum) { vst1q_s32(at, sum); }
#elif defined(__ARM_NEON)
typedef int32x4_t Sum;  // two adjacent lanes add up to a column
constexpr size_t TALL = 4, COLUMNS = 2, SUMS = 4;
inline Sum begin(const int32_t*) { return vdupq_n_s32(0); }
inline int8x8_t four_of(const Number* a) { return vreinterpret_s8_s32(vdup_n_s32(load_as<int32_t>(a))); }
inline int8x8_t weights_of(const int8_t* b) { return vld1_s8(b); }
inline Sum add(Sum sum, int8x8_t a, int8x8_t b) { return vpadalq_s16(sum, vmull_s8(a, b)); }
inline void finish(int32_t* at, Sum sum) {
  const int32x2_t both = vpadd_s32(vget_low_s32(sum), vget_high_s32(sum));
  vst1_s32(at, both);
}
#else
typedef int32_t Sum;
constexpr size_t TALL = 1, COLUMNS = 1, SUMS = 4;
inline Sum begin(const int32_t*) { return 0; }
inline const Number* four_of(const Number* a) { return a; }
inline const int8_t* weights_of(const int8_t* b) { return b; }
inline Sum add(Sum sum, const Number* a, const int8_t* b) { return sum + a[0] * b[0] + a[1] * b[1] + a[2] * b[2] + a[3] * b[3]; }
inline void finish(int32_t* at, Sum sum) { *at = sum; }
#endif

// Computes the sums [ROWS, 32] of the whole groups of a panel. ahead: distance of the prefetch in bytes
template <size_t ROWS>
inline __attribute__((always_inline)) void groups_of(const Number* a, size_t k, const int8_t* panel,
                                                     const int32_t* offsets, size_t ahead, int32_t* sums) {
UNROLLED
  for (size_t c = 0; c < PANEL; c += SUMS * COLUMNS) {
    Sum sum[ROWS][SUMS];
UNROLLED
    for (size_t m = 0; m < ROWS; m++)
UNROLLED
      for (size_t v = 0; v < SUMS; v++) sum[m][v] = begin(offsets + c + v * COLUMNS);
    const int8_t* at = panel + 4 * c;
    const Number* from = a;
    for (size_t g = k / 4; g; g--, at += 4 * PANEL, from += 4) {
      if (c == 0) fetch(at + ahead);  // a branch would make compilers move the sums
      decltype(weights_of(at)) b[SUMS];
UNROLLED
      for (size_t v = 0; v < SUMS; v++) b[v] = weights_of(at + 4 * v * COLUMNS);
UNROLLED
      for (size_t m = 0; m < ROWS; m++) {
        const auto four = four_of(from + m * k);
UNROLLED
        for (size_t v = 0; v < SUMS; v++) sum[m][v] = add(sum[m][v], four, b[v]);
      }
    }
UNROLLED
    for (size_t m = 0; m < ROWS; m++)
UNROLLED
      for (size_t v = 0; v < SUMS; v++) finish(sums + m * PANEL + c + v * COLUMNS, sum[m][v]);
  }
}

#if defined(__ARM_FEATURE_MATMUL_INT8)
constexpr size_t HIGH = 8;  // rows of a tile; one instruction multiplies two rows with two columns, over two groups

inline int8x16_t two_rows(const Number* a, const Number* other, bool both) {  // eight numbers of each row, or four and zeros
  if (both) return vcombine_s8(vld1_s8(a), vld1_s8(other));
  return vreinterpretq_s8_s32(int32x4_t{load_as<int32_t>(a), 0, load_as<int32_t>(other), 0});
}

template <size_t ROWS>
inline __attribute__((always_inline)) void pairs_of(const Number* a, size_t k, const int8_t* panel, const int32_t*,
                                                    size_t ahead, int32_t* sums) {
  constexpr size_t PAIRS = (ROWS + 1) / 2;
  for (size_t c = 0; c < PANEL; c += 8) {
    int32x4_t sum[PAIRS][4];
UNROLLED
    for (size_t p = 0; p < PAIRS; p++)
UNROLLED
      for (size_t v = 0; v < 4; v++) sum[p][v] = vdupq_n_s32(0);
    const int8_t* at = panel + 4 * c;
    for (size_t g = 0; g < k / 4; g += 2, at += 8 * PANEL) {
      const bool both = g + 1 < k / 4;
      if (c == 0) fetch(at + ahead), fetch(at + ahead + 4 * PANEL);
      int8x16_t b[4];
UNROLLED
      for (size_t v = 0; v < 2; v++) {
        const int32x4_t now = vreinterpretq_s32_s8(vld1q_s8(at + 16 * v));
        const int32x4_t then = both ? vreinterpretq_s32_s8(vld1q_s8(at + 4 * PANEL + 16 * v)) : vdupq_n_s32(0);
        b[2 * v] = vreinterpretq_s8_s32(vzip1q_s32(now, then));
        b[2 * v + 1] = vreinterpretq_s8_s32(vzip2q_s32(now, then));
      }
UNROLLED
      for (size_t p = 0; p < PAIRS; p++) {
        const size_t other = 2 * p + 1 < ROWS ? 2 * p + 1 : 2 * p;
        const int8x16_t rows = two_rows(a + 2 * p * k + 4 * g, a + other * k + 4 * g, both);
UNROLLED
        for (size_t v = 0; v < 4; v++) sum[p][v] = vmmlaq_s32(sum[p][v], rows, b[v]);
      }
    }
    for (size_t p = 0; p < PAIRS; p++)
      for (size_t v = 0; v < 4; v++) {
        vst1_s32(sums + 2 * p * PANEL + c + 2 * v, vget_low_s32(sum[p][v]));
        if (2 * p + 1 < ROWS) vst1_s32(sums + (2 * p + 1) * PANEL + c + 2 * v, vget_high_s32(sum[p][v]));
      }
  }
}
#else
constexpr size_t HIGH = TALL;
template <size_t ROWS>
inline __attribute__((always_inline)) void pairs_of(const Number* a, size_t k, const int8_t* panel,
                                                    const int32_t* offsets, size_t ahead, int32_t* sums) {
  groups_of<ROWS>(a, k, panel, offsets, ahead, sums);
}
#endif

// Rounds to the nearest integers.
inline void store_numbers(const Floats& v, Number* at, size_t count) {
#if defined(__AVX512F__)
  const __m512i ints = _mm512_add_epi32(_mm512_cvtps_epi32(v.part[0]), _mm512_set1_epi32(OFFSET));
  if (count == LANES && sizeof(Number) == 1)
    return _mm_storeu_si128(reinterpret_cast<__m128i*>(at), _mm512_cvtepi32_epi8(ints));
  if (count == LANES) return _mm256_storeu_si256(reinterpret_cast<__m256i*>(at), _mm512_cvtepi32_epi16(ints));
#endif
  alignas(64) int32_t all[LANES];
  for (size_t i = 0; i < LANES / WIDTH; i++) to_ints(v.part[i], all + i * WIDTH);
  for (size_t i = 0; i < count; i++) at[i] = static_cast<Number>(all[i] + OFFSET);
}

// Writes a row of k numbers. make(i, count): the numbers from i, `count` of them, not rounded yet
template <typename Make>
inline void write_row(size_t k, void* numbers, Make make) {
  Number* out = static_cast<Number*>(numbers);
  each_sixteen(k, [&](size_t i) { store_numbers(make(i, LANES), out + i, LANES); },
               [&](size_t i, size_t count) { store_numbers(make(i, count), out + i, count); });
}

// Returns the sum of a row times weights [k], which are not packed.
inline int32_t dot(const Number* a, const int8_t* b, size_t k) {
  int32_t sum = 0;
  size_t i = 0;
#if defined(__AVX512VNNI__) && !defined(CONVOY_VNNI256)
  __m512i sums = _mm512_setzero_si512();
  for (; i + 64 <= k; i += 64) sums = _mm512_dpbusd_epi32(sums, _mm512_loadu_si512(a + i), _mm512_loadu_si512(b + i));
  sum = _mm512_reduce_add_epi32(sums);
#elif defined(__AVXVNNI__) || defined(CONVOY_VNNI256)
  alignas(32) int32_t lanes[8] = {};
  __m256i sums = _mm256_setzero_si256();
  for (; i + 32 <= k; i += 32)
    sums = add(sums, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(a + i)), weights_of(b + i));
  _mm256_store_si256(reinterpret_cast<__m256i*>(lanes), sums);
  for (int32_t lane : lanes) sum += lane;
#elif defined(__AVX512F__)
  __m512i sums = _mm512_setzero_si512();
  for (; i + 32 <= k; i += 32) sums = add(sums, _mm512_loadu_si512(a + i), weights_of(b + i));
  sum = _mm512_reduce_add_epi32(sums);
#elif defined(__ARM_NEON)
  int32x4_t sums = vdupq_n_s32(0);
  for (; i + 16 <= k; i += 16) {
    const int8x16_t x = vld1q_s8(a + i), y = vld1q_s8(b + i);
#if defined(__ARM_FEATURE_DOTPROD)
    sums = vdotq_s32(sums, x, y);
#else
    sums = vpadalq_s16(vpadalq_s16(sums, vmull_s8(vget_low_s8(x), vget_low_s8(y))), vmull_high_s8(x, y));
#endif
  }
  sum = vaddvq_s32(sums);
#endif
  for (; i < k; i++) sum += a[i] * b[i];
  return sum;
}
#endif

// Index of a panel's halves of 16 columns in scales, biases and results.
struct Place {
  size_t at[2], width[2];
};

inline Place place_of(size_t n, size_t number, Epilogue epilogue) {
  const bool gated = epilogue == Epilogue::glu;
  const size_t begin = number * (gated ? LANES : PANEL), end = gated ? n / 2 : n;
  const size_t first = std::min(LANES, end - begin);
  const size_t second = gated ? first : std::min(LANES, end - begin - first);
  return {{begin, gated ? n / 2 + begin : begin + first}, {first, second}};
}

struct Out {
  const float* scales;  // one for each row
  float* y;
  size_t ldy;
  Epilogue epilogue;
};

// Converts the sums of 16 columns to floats.
struct Scales {
  Floats scale, bias;

  Floats of(const int32_t* sums, float row) const {
    const Floats whole = each_part([&](size_t i) { return of_ints(sums + i * WIDTH); });
    return fma(whole * scale, splat(row), bias);
  }
};

template <bool FULL>
inline Scales scales_of(const Weights& w, const Place& place, size_t half) {
  const size_t at = place.at[half], width = place.width[half];
  const Floats none = splat(0.0f);
  if (FULL) return {load(w.scales + at), w.bias ? load(w.bias + at) : none};
  return {load(w.scales + at, width), w.bias ? load(w.bias + at, width) : none};
}

template <bool FULL>
inline void put(float* at, const Floats& v, size_t width) {
  FULL ? store(at, v) : store(at, v, width);
}

template <size_t ROWS, bool FULL>
void tile(const Number* a, const Sizes& s, const int8_t* panel, const Weights& w, size_t number, size_t row, const Out& out) {
  alignas(64) int32_t sums[ROWS * PANEL];
  const Place place = place_of(s.n, number, out.epilogue);
  // results are prefetched, because a store that waits for its cache line delays the later ones; not for the first
  // rows, which would delay the weights
UNROLLED
  for (size_t m = 0; row && m < ROWS; m++) {
    const float* y = out.y + (row + m) * out.ldy;
    __builtin_prefetch(y + place.at[0], 1);
    __builtin_prefetch(y + place.at[1], 1);
  }
  pairs_of<ROWS>(a, s.k, panel, w.offsets + number * PANEL, row ? 0 : AHEAD, sums);
  if (const size_t rest = s.k % 4) {  // the rows after the last whole group
    const int8_t* last = panel + s.k / 4 * 4 * PANEL;
    const size_t width = stride_of(s.k) / sizeof(Number);
    for (size_t m = 0; m < ROWS; m++)
      for (size_t i = 0; i < PANEL; i++)
        for (size_t r = 0; r < rest; r++) sums[m * PANEL + i] += whole_times(a + m * width, s.k - rest + r, last[i * rest + r]);
  }
  const Scales firsts = scales_of<FULL>(w, place, 0), seconds = scales_of<FULL>(w, place, 1);
  for (size_t m = 0; m < ROWS; m++) {
    const float scale = out.scales[row + m];
    float* y = out.y + (row + m) * out.ldy;
    Floats values = firsts.of(sums + m * PANEL, scale), others = seconds.of(sums + m * PANEL + LANES, scale);
    if (out.epilogue == Epilogue::glu) {
      put<FULL>(y + place.at[0], sigmoid_times(values, others), place.width[0]);
      continue;
    }
    if (out.epilogue == Epilogue::relu) {
      values = larger(values, splat(0.0f));
      others = larger(others, splat(0.0f));
    }
    put<FULL>(y + place.at[0], values, place.width[0]);
    put<FULL>(y + place.at[1], others, place.width[1]);
  }
}

void product(const Quantized& x, const Weights& w, const Sizes& s, size_t from, size_t until, float* y,
             Epilogue epilogue) {
  using Tile = void (*)(const Number*, const Sizes&, const int8_t*, const Weights&, size_t, size_t, const Out&);
  static constexpr auto tiles = []<size_t... I>(std::index_sequence<I...>) {
    return std::array<std::array<Tile, HIGH>, 2>{{{tile<I + 1, false>...}, {tile<I + 1, true>...}}};
  }(std::make_index_sequence<HIGH>{});
  const bool gated = epilogue == Epilogue::glu;
  const Out out{x.scales, y, gated ? s.n / 2 : s.n, epilogue};
  const uint8_t* rows = static_cast<const uint8_t*>(x.rows);
  const size_t count = (s.m + HIGH - 1) / HIGH;  // tiles of nearly equal height
  for (size_t number = from; number < until; number++) {
    const bool full = gated ? (number + 1) * LANES <= s.n / 2 : (number + 1) * PANEL <= s.n;
    const int8_t* panel = full ? w.packed + number * PANEL * s.k : w.last;
    for (size_t t = 0; t < count; t++) {
      const size_t row = s.m * t / count, end = s.m * (t + 1) / count;
      const Number* first = reinterpret_cast<const Number*>(rows + row * stride_of(s.k));
      tiles[full][end - row - 1](first, s, panel, w, number, row, out);
    }
  }
}

// Divides by a reciprocal and corrects the error: rounds like a division, at the cost of a product.
inline Floats quotient(const Floats& v, const Floats& step, const Floats& inverse) {
  const Floats q = v * inverse;
  return fma(fnma(q, step, v), inverse, q);
}

void quantize(const float* x, size_t k, void* numbers, float* scale) {
  Floats top = splat(0.0f);
  each_sixteen(k, [&](size_t i) { top = larger(absolute(load(x + i)), top); },
               [&](size_t i, size_t count) { top = larger(absolute(load(x + i, count)), top); });
  *scale = std::max(largest(top) * (1.0f / 127.0f), 1e-30f);  // so that a row of zeros stays zero
  const Floats step = splat(*scale), inverse = splat(1.0f) / step;
  write_row(k, numbers, [&](size_t i, size_t count) {
    return quotient(count == LANES ? load(x + i) : load(x + i, count), step, inverse);
  });
}

void among8(Quantized x, const int8_t* rows, const float* scales, const int32_t* offsets, size_t m, size_t k,
            const int64_t* ids, size_t count, float* y) {
  const uint8_t* a = static_cast<const uint8_t*>(x.rows);
  for (size_t j = 0; j < count; j++) {
    if (ids[j] < 0) {
      for (size_t i = 0; i < m; i++) y[i * count + j] = LOWEST;
      continue;
    }
    const size_t id = static_cast<size_t>(ids[j]);
    const int8_t* row = rows + id * k;
    if (j + 4 < count && ids[j + 4] >= 0)  // rows are scattered, so they are prefetched
      for (size_t at = 0; at < k; at += 64) __builtin_prefetch(rows + static_cast<size_t>(ids[j + 4]) * k + at);
    for (size_t i = 0; i < m; i++)
      y[i * count + j] = static_cast<float>(dot(reinterpret_cast<const Number*>(a + i * stride_of(k)), row, k) + offsets[id]) * scales[id] * x.scales[i];
  }
}
