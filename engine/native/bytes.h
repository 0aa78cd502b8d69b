// The product of rows of bytes with packed int8 weights. Included by kernels.cpp, once for each instruction set.
//
// Weights [K, N] lie in panels of 32 columns (fewer in the last), each of which is read from its beginning to its
// end: K / 4 groups of [columns, 4], then the last K % 4 rows as [columns, K % 4]. Under a gate half of a panel's
// columns are values and the other half are the gates of the same columns of the result.
constexpr size_t PANEL = 2 * LANES;

struct Panel {
  const int8_t* data;
  size_t k;
  size_t columns;     // all in it
  size_t at[2];       // where both of its halves begin among scales, biases and sums
  size_t width[2];    // columns of both
};

inline Panel panel_of(const Weights& w, size_t k, size_t n, size_t number, Epilogue epilogue) {
  const bool gated = epilogue == Epilogue::glu;
  const size_t begin = number * (gated ? LANES : PANEL), end = gated ? n / 2 : n;
  const size_t first = std::min(LANES, end - begin);
  const size_t second = gated ? first : std::min(LANES, end - begin - first);
  const size_t other = gated ? n / 2 + begin : begin + first;
  return {w.packed + number * PANEL * k, k, first + second, {begin, other}, {first, second}};
}

struct Out {
  const float* scales;  // of the rows
  const Weights& w;
  float* y;
  size_t ldy;
  Epilogue epilogue;
};

// The scale of a row: of zeros, which stay zero, too.
inline float scale_of(float top) { return std::max(top * (1.0f / 127.0f), 1e-30f); }

#if defined(__AVX512F__)
inline __mmask16 lanes(size_t count) { return static_cast<__mmask16>((1u << count) - 1); }

// v / step as a division rounds it, at the price of a product: the reciprocal's quotient, and its error
inline __m128i bytes_of(__m512 v, __m512 step, __m512 inverse) {
  const __m512 q = _mm512_mul_ps(v, inverse);
  const __m512i whole = _mm512_cvtps_epi32(_mm512_fmadd_ps(_mm512_fnmadd_ps(q, step, v), inverse, q));
  return _mm512_cvtepi32_epi8(_mm512_add_epi32(whole, _mm512_set1_epi32(128)));
}

void quantize(const float* x, size_t k, uint8_t* bytes, float* scale) {
  const size_t whole = k / LANES * LANES;
  const __mmask16 rest = lanes(k % LANES);
  const __m512 last = _mm512_maskz_loadu_ps(rest, x + whole);
  __m512 top = _mm512_abs_ps(last);
  for (size_t i = 0; i < whole; i += LANES) top = _mm512_max_ps(_mm512_abs_ps(_mm512_loadu_ps(x + i)), top);
  *scale = scale_of(_mm512_reduce_max_ps(top));
  const __m512 step = _mm512_set1_ps(*scale), inverse = _mm512_div_ps(_mm512_set1_ps(1.0f), step);
  for (size_t i = 0; i < whole; i += LANES)
    _mm_storeu_si128(reinterpret_cast<__m128i*>(bytes + i), bytes_of(_mm512_loadu_ps(x + i), step, inverse));
  if (rest) _mm_mask_storeu_epi8(bytes + whole, rest, bytes_of(last, step, inverse));
}
#else
void quantize(const float* x, size_t k, uint8_t* bytes, float* scale) {
  float parts[LANES] = {};
  size_t i = 0;
  for (; i + LANES <= k; i += LANES)
    for (size_t l = 0; l < LANES; l++) parts[l] = std::max(parts[l], std::fabs(x[i + l]));
  for (; i < k; i++) parts[0] = std::max(parts[0], std::fabs(x[i]));
  float top = 0;
  for (float part : parts) top = std::max(top, part);
  const float step = *scale = scale_of(top);  // divided by, as the standard operators do: a reciprocal rounds otherwise
  for (i = 0; i < k; i++) bytes[i] = static_cast<uint8_t>(static_cast<int32_t>(std::nearbyint(x[i] / step)) + 128);
}
#endif

#if defined(__AVX512VNNI__)
constexpr size_t TALL = 12;  // rows of a tile: 24 sums, 2 weights and an input fit into 32 registers
constexpr size_t AHEAD = 16 * 1024;  // bytes of weights asked for before they are read: they come from far away

template <bool FULL>
inline __m512i load(__mmask16 mask, const void* at) {
  return FULL ? _mm512_loadu_si512(at) : _mm512_maskz_loadu_epi32(mask, at);
}

template <bool FULL>
inline void store(__mmask16 mask, float* at, __m512 values) {  // unmasked where it can be: Zen is slow otherwise
  FULL ? _mm512_storeu_ps(at, values) : _mm512_mask_storeu_ps(at, mask, values);
}

// What makes floats of the integer sums of 16 columns: the offset of the bytes off, both scales, the bias.
struct Wide {
  __m512i sums;
  __m512 scales, bias;

  __m512 of(__m512i acc, float scale) const {
    const __m512 scaled = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_sub_epi32(acc, sums)), scales);
    return _mm512_fmadd_ps(scaled, _mm512_set1_ps(scale), bias);
  }
};

template <bool FULL>
inline Wide wide(__mmask16 mask, size_t column, const Weights& w) {
  const __m512i scales = load<FULL>(mask, w.scales + column);
  const __m512i bias = w.bias ? load<FULL>(mask, w.bias + column) : _mm512_setzero_si512();
  return {load<FULL>(mask, w.sums + column), _mm512_castsi512_ps(scales), _mm512_castsi512_ps(bias)};
}

// the K % 4 rows that no group holds
inline __m512i remainder(__m512i acc, const uint8_t* a, const Panel& p, size_t half) {
  alignas(64) int32_t sums[LANES];
  _mm512_store_si512(sums, acc);
  const size_t whole = p.k / 4 * 4, rest = p.k % 4, skip = half ? p.width[0] : 0;
  const int8_t* b = p.data + whole * p.columns + skip * rest;
  for (size_t i = 0; i < p.width[half]; i++)
    for (size_t r = 0; r < rest; r++) sums[i] += a[whole + r] * b[i * rest + r];
  return _mm512_load_si512(sums);
}

template <int ROWS, bool FULL>
void tile(const uint8_t* a, const Panel& p, size_t row, const Out& out) {
  const size_t group = FULL ? 4 * PANEL : 4 * p.columns, half = FULL ? 4 * LANES : 4 * p.width[0];
  const __mmask16 masks[2] = {FULL ? __mmask16(0xffff) : lanes(p.width[0]), FULL ? __mmask16(0xffff) : lanes(p.width[1])};
  __m512i acc[ROWS][2];
#pragma GCC unroll 12
  for (int m = 0; m < ROWS; m++) acc[m][0] = acc[m][1] = _mm512_setzero_si512();
  const int8_t* at = p.data;
  for (size_t g = 0; g < p.k / 4; g++, at += group) {
    if (row == 0) {  // the rows after the first find them in the cache
      _mm_prefetch(reinterpret_cast<const char*>(at + AHEAD), _MM_HINT_T0);
      _mm_prefetch(reinterpret_cast<const char*>(at + AHEAD + 64), _MM_HINT_T0);
    }
    const __m512i first = load<FULL>(masks[0], at), second = load<FULL>(masks[1], at + half);
#pragma GCC unroll 12
    for (int m = 0; m < ROWS; m++) {
      int32_t four;
      std::memcpy(&four, a + m * p.k + g * 4, 4);
      const __m512i x = _mm512_set1_epi32(four);
      acc[m][0] = _mm512_dpbusd_epi32(acc[m][0], x, first);
      acc[m][1] = _mm512_dpbusd_epi32(acc[m][1], x, second);
    }
  }
  const Wide firsts = wide<FULL>(masks[0], p.at[0], out.w), seconds = wide<FULL>(masks[1], p.at[1], out.w);
#pragma GCC unroll 12
  for (int m = 0; m < ROWS; m++) {
    if (p.k % 4) {
      acc[m][0] = remainder(acc[m][0], a + m * p.k, p, 0);
      acc[m][1] = remainder(acc[m][1], a + m * p.k, p, 1);
    }
    float* y = out.y + (row + m) * out.ldy;
    __m512 values = firsts.of(acc[m][0], out.scales[row + m]), others = seconds.of(acc[m][1], out.scales[row + m]);
    if (out.epilogue == Epilogue::glu) {
      const __m512 one = _mm512_set1_ps(1.0f), closed = exponential(_mm512_sub_ps(_mm512_setzero_ps(), others));
      store<FULL>(masks[0], y + p.at[0], _mm512_div_ps(values, _mm512_add_ps(one, closed)));
      continue;
    }
    if (out.epilogue == Epilogue::relu) {
      values = _mm512_max_ps(values, _mm512_setzero_ps());
      others = _mm512_max_ps(others, _mm512_setzero_ps());
    }
    store<FULL>(masks[0], y + p.at[0], values);
    store<FULL>(masks[1], y + p.at[1], others);
  }
}

template <bool FULL>
inline void rows_of(const uint8_t* a, const Panel& p, size_t count, size_t row, const Out& out) {
  static constexpr auto tiles = []<size_t... I>(std::index_sequence<I...>) {
    return std::array<void (*)(const uint8_t*, const Panel&, size_t, const Out&), TALL>{tile<int(I + 1), FULL>...};
  }(std::make_index_sequence<TALL>{});
  tiles[count - 1](a, p, row, out);
}

inline void tile_of(const uint8_t* a, const Panel& p, size_t count, size_t row, const Out& out) {
  p.columns == PANEL ? rows_of<true>(a, p, count, row, out) : rows_of<false>(a, p, count, row, out);
}
#else
#if defined(__AVX2__)
constexpr size_t TALL = 2;

// sums of a panel's 16 columns from byte `from` of each group, for `count` rows
inline void sums_of(const uint8_t* a, const Panel& p, size_t from, size_t count, int32_t (*sums)[LANES]) {
  __m256i acc[TALL][4];  // of two neighbours each: a column is the sum of two lanes
  for (size_t m = 0; m < TALL; m++)
    for (int q = 0; q < 4; q++) acc[m][q] = _mm256_setzero_si256();
  const int8_t* weights = p.data + from;
  for (size_t g = 0; g < p.k / 4; g++, weights += 4 * p.columns)
    for (size_t m = 0; m < TALL; m++) {
      int32_t four;
      std::memcpy(&four, a + (m < count ? m : 0) * p.k + g * 4, 4);
      const __m256i x = _mm256_cvtepu8_epi16(_mm_set1_epi32(four));
      for (int q = 0; q < 4; q++) {
        const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(weights + q * 16));
        acc[m][q] = _mm256_add_epi32(acc[m][q], _mm256_madd_epi16(x, _mm256_cvtepi8_epi16(bytes)));
      }
    }
  for (size_t m = 0; m < count; m++)
    for (int q = 0; q < 4; q++) {
      alignas(32) int32_t pairs[8];
      _mm256_store_si256(reinterpret_cast<__m256i*>(pairs), acc[m][q]);
      for (int i = 0; i < 4; i++) sums[m][q * 4 + i] = pairs[2 * i] + pairs[2 * i + 1];
    }
}
#else
constexpr size_t TALL = 1;
#endif

inline void gate(float* y, const float* gates, size_t count) {
  for (size_t i = 0; i < count; i++) y[i] = y[i] / (1.0f + exponential(-gates[i]));
}

inline void sums_of(const uint8_t* a, const Panel& p, size_t from, size_t width, int32_t* sums) {
  for (size_t g = 0; g < p.k / 4; g++)
    for (size_t i = 0; i < width; i++)
      for (int j = 0; j < 4; j++) sums[i] += a[g * 4 + j] * p.data[g * 4 * p.columns + from + i * 4 + j];
}

void tile_of(const uint8_t* a, const Panel& p, size_t count, size_t row, const Out& out) {
  const size_t whole = p.k / 4 * 4, rest = p.k % 4;
  float results[2][TALL][LANES];
  for (size_t half = 0; half < 2; half++) {
    const size_t width = p.width[half], skip = half ? p.width[0] : 0, column = p.at[half];
    alignas(32) int32_t sums[TALL][LANES] = {};
#if defined(__AVX2__)
    if (width == LANES)
      sums_of(a, p, 4 * skip, count, sums);
    else
#endif
      for (size_t m = 0; m < count; m++) sums_of(a + m * p.k, p, 4 * skip, width, sums[m]);
    const int8_t* last = p.data + whole * p.columns + skip * rest;
    for (size_t m = 0; m < count; m++)
      for (size_t i = 0; i < width; i++) {
        for (size_t r = 0; r < rest; r++) sums[m][i] += a[m * p.k + whole + r] * last[i * rest + r];
        const float v = static_cast<float>(sums[m][i] - out.w.sums[column + i]) * out.w.scales[column + i] *
                            out.scales[row + m] + (out.w.bias ? out.w.bias[column + i] : 0.0f);
        results[half][m][i] = out.epilogue == Epilogue::relu ? std::max(v, 0.0f) : v;
      }
  }
  for (size_t m = 0; m < count; m++) {
    float* y = out.y + (row + m) * out.ldy;
    std::copy_n(results[0][m], p.width[0], y + p.at[0]);
    if (out.epilogue == Epilogue::glu)
      gate(y + p.at[0], results[1][m], p.width[0]);
    else
      std::copy_n(results[1][m], p.width[1], y + p.at[1]);
  }
}
#endif

void product(const Quantized& x, const Weights& w, const Sizes& s, size_t from, size_t until, float* y,
             Epilogue epilogue) {
  const Out out{x.scales, w, y, epilogue == Epilogue::glu ? s.n / 2 : s.n, epilogue};
  const size_t tiles = (s.m + TALL - 1) / TALL;  // of nearly equal height
  for (size_t number = from; number < until; number++) {
    const Panel p = panel_of(w, s.k, s.n, number, epilogue);
    for (size_t t = 0; t < tiles; t++) {
      const size_t row = s.m * t / tiles, end = s.m * (t + 1) / tiles;
      tile_of(x.rows + row * s.k, p, end - row, row, out);
    }
  }
}
