// Quantised rows as magnitudes and signs, for AVX2 without VNNI. Included by bytes.h.
//
// AVX2 multiplies unsigned bytes with signed bytes and adds two products in 16 bits, with saturation. Magnitudes up to
// 127 never saturate: a negative number times w is its magnitude times ~w, plus the magnitude. Two such pairs are added
// in 16 bits and then widened together, which is exact if their four magnitudes add up to 255 at most. Where they do
// not, the row keeps the largest magnitudes in a list. A row with a full list is widened pair by pair.
//
// A row of K numbers: for each 8 of them, 8 magnitudes and 8 signs (bytes 0 or -1); then a Summary; then its list.
typedef uint8_t Number;
constexpr int32_t OFFSET = 0;
constexpr size_t HIGH = 4;  // rows of a tile
constexpr int32_t MOST = 255;

// Four adjacent numbers, three of which are zero.
struct Lifted {
  uint32_t group, magnitudes, signs;
};

struct Summary {
  int32_t below;    // sum of the magnitudes of negative numbers in whole groups of four
  uint32_t lifted;  // length of the list
  bool negative;    // whether there is a negative number
  bool apart;       // whether four magnitudes of the row add up to more than MOST
};

inline size_t body_of(size_t k) { return (k + 7) / 8 * 16; }
inline size_t longest_list(size_t k) { return k / 32; }
inline size_t stride_of(size_t k) {
  return (body_of(k) + sizeof(Summary) + longest_list(k) * sizeof(Lifted) + 15) / 16 * 16;
}
inline const Summary& summary_of(const Number* row, size_t k) {
  return *reinterpret_cast<const Summary*>(row + body_of(k));
}
inline const Lifted* list_of(const Number* row, size_t k) {
  return reinterpret_cast<const Lifted*>(row + body_of(k) + sizeof(Summary));
}
// Returns the magnitude of a number times w, or ~w if the number is negative.
inline int32_t times(const Number* row, size_t i, int8_t w) {
  const Number* at = row + i / 8 * 16 + i % 8;
  return at[0] * static_cast<int8_t>(w ^ static_cast<int8_t>(at[8]));
}
// Returns a number times w, for a number that is not lifted.
inline int32_t whole_times(const Number* row, size_t i, int8_t w) {
  const Number* at = row + i / 8 * 16 + i % 8;
  return times(row, i, w) + (at[8] ? at[0] : 0);
}

inline __m256i four_of(const Number* at) { return _mm256_set1_epi32(load_as<int32_t>(at)); }
inline __m256i weights_of(const int8_t* at) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)); }
template <bool SIGNS>
inline __m256i pairs(__m256i magnitudes, __m256i signs, const int8_t* weights) {
  const __m256i w = weights_of(weights);
  return _mm256_maddubs_epi16(magnitudes, SIGNS ? _mm256_xor_si256(w, signs) : w);
}

// Computes the sums [ROWS, 32] of the whole groups of a panel.
template <size_t ROWS, bool SIGNS, bool TOGETHER, bool FETCH>
void blocks_of(const Number* a, size_t k, const int8_t* panel, int32_t* sums) {
  constexpr size_t PARTS8 = PANEL / 8;
  const __m256i one = _mm256_set1_epi16(1);
  const size_t stride = stride_of(k);
  __m256i sum[ROWS][PARTS8];
UNROLLED
  for (size_t m = 0; m < ROWS; m++)
UNROLLED
    for (size_t v = 0; v < PARTS8; v++) sum[m][v] = _mm256_set1_epi32(summary_of(a + m * stride, k).below);
  size_t left = k / 4;
  const Number* from = a;
  const int8_t* at = panel;
  for (; left >= 2; left -= 2, at += 8 * PANEL, from += 16) {
    if (FETCH) {
      fetch(at + AHEAD);
      fetch(at + 4 * PANEL + AHEAD);
    }
UNROLLED
    for (size_t m = 0; m < ROWS; m++) {
      const Number* row = from + m * stride;
      const __m256i x = four_of(row), y = four_of(row + 4), xs = four_of(row + 8), ys = four_of(row + 12);
UNROLLED
      for (size_t v = 0; v < PARTS8; v++) {
        const __m256i first = pairs<SIGNS>(x, xs, at + 32 * v), second = pairs<SIGNS>(y, ys, at + 4 * PANEL + 32 * v);
        if (TOGETHER) {
          sum[m][v] = _mm256_add_epi32(sum[m][v], _mm256_madd_epi16(_mm256_add_epi16(first, second), one));
        } else {
          sum[m][v] = _mm256_add_epi32(sum[m][v], _mm256_madd_epi16(first, one));
          sum[m][v] = _mm256_add_epi32(sum[m][v], _mm256_madd_epi16(second, one));
        }
      }
    }
  }
  for (size_t m = 0; m < ROWS; m++)
UNROLLED
    for (size_t v = 0; v < PARTS8; v++) {
      const Number* row = from + m * stride;
      if (left) {
        const __m256i first = pairs<true>(four_of(row), four_of(row + 8), at + 32 * v);
        sum[m][v] = _mm256_add_epi32(sum[m][v], _mm256_madd_epi16(first, one));
      }
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(sums + m * PANEL + 8 * v), sum[m][v]);
    }
}

template <size_t ROWS>
inline void pairs_of(const Number* a, size_t k, const int8_t* panel, const int32_t*, size_t ahead, int32_t* sums) {
  const size_t stride = stride_of(k);
  bool negative = false, apart = false;
  for (size_t m = 0; m < ROWS; m++) {
    negative |= summary_of(a + m * stride, k).negative;
    apart |= summary_of(a + m * stride, k).apart;
  }
  if (apart) {
    blocks_of<ROWS, true, false, true>(a, k, panel, sums);
  } else if (negative) {
    ahead ? blocks_of<ROWS, true, true, true>(a, k, panel, sums) : blocks_of<ROWS, true, true, false>(a, k, panel, sums);
  } else {
    ahead ? blocks_of<ROWS, false, true, true>(a, k, panel, sums) : blocks_of<ROWS, false, true, false>(a, k, panel, sums);
  }
  for (size_t m = 0; m < ROWS; m++, a += stride, sums += PANEL)
    for (size_t i = 0; i < summary_of(a, k).lifted; i++) {
      const Lifted& entry = list_of(a, k)[i];
      const __m256i x = _mm256_set1_epi32(static_cast<int32_t>(entry.magnitudes));
      const __m256i signs = _mm256_set1_epi32(static_cast<int32_t>(entry.signs));
UNROLLED
      for (size_t c = 0; c < PANEL; c += 8) {
        const __m256i first = pairs<true>(x, signs, panel + entry.group * 4 * PANEL + 4 * c);
        __m256i* sum = reinterpret_cast<__m256i*>(sums + c);
        const __m256i wide = _mm256_madd_epi16(first, _mm256_set1_epi16(1));
        _mm256_storeu_si256(sum, _mm256_add_epi32(_mm256_loadu_si256(sum), wide));
      }
    }
}

// Moves magnitudes of 8 numbers to the list, until the sums of both fours are at most MOST or the list is full.
__attribute__((noinline)) inline void lift(Number* block, size_t at, size_t k, Summary& summary, Lifted* list) {
  for (size_t half = 0; half < 4; half += 2) {
    Number* const four[] = {block + half, block + half + 1, block + half + 4, block + half + 5};
    while (*four[0] + *four[1] + *four[2] + *four[3] > MOST) {
      if (summary.lifted == longest_list(k)) {
        summary.apart = true;
        return;
      }
      Number* top = *std::max_element(four, four + 4, [](const Number* a, const Number* b) { return *a < *b; });
      const size_t index = static_cast<size_t>(top - block), shift = index % 4 * 8;
      const size_t group = at / 4 + index / 4;
      list[summary.lifted++] = {static_cast<uint32_t>(group), uint32_t{*top} << shift, uint32_t{top[8]} << shift};
      *top = 0;
    }
  }
}

// Writes a row of k numbers. make(i, count): the numbers from i, `count` of them, not rounded yet
template <typename Make>
inline void write_row(size_t k, void* numbers, Make make) {
  Number* out = static_cast<Number*>(numbers);
  Summary& summary = *reinterpret_cast<Summary*>(out + body_of(k));
  Lifted* list = reinterpret_cast<Lifted*>(out + body_of(k) + sizeof(Summary));
  summary = {0, 0, false, false};
  const __m128i none = _mm_setzero_si128();
  __m128i below = none;
  auto write = [&](size_t i, size_t count) {
    const Floats v = make(i, count);
    const __m256i words = _mm256_packs_epi32(_mm256_cvtps_epi32(v.part[0]), _mm256_cvtps_epi32(v.part[1]));
    const __m256i sorted = _mm256_permute4x64_epi64(words, 0xd8);
    const __m128i bytes = _mm_packs_epi16(_mm256_castsi256_si128(sorted), _mm256_extracti128_si256(sorted, 1));
    const __m128i magnitudes = _mm_abs_epi8(bytes), signs = _mm_cmpgt_epi8(none, bytes);
    __m128i* at = reinterpret_cast<__m128i*>(out + 2 * i);
    _mm_storeu_si128(at, _mm_unpacklo_epi64(magnitudes, signs));
    if (count > 8) _mm_storeu_si128(at + 1, _mm_unpackhi_epi64(magnitudes, signs));
    below = _mm_add_epi64(below, _mm_sad_epu8(_mm_and_si128(magnitudes, signs), none));
    const __m128i twos = _mm_maddubs_epi16(magnitudes, _mm_set1_epi8(1));
    const __m128i fours = _mm_add_epi16(twos, _mm_srli_epi64(twos, 32));
    const int over = _mm_movemask_epi8(_mm_cmpgt_epi16(fours, _mm_set1_epi16(MOST)));
    if (over & 0x000f && !summary.apart && i + 8 <= k) lift(out + 2 * i, i, k, summary, list);
    if (over & 0x0f00 && !summary.apart && i + 16 <= k) lift(out + 2 * i + 16, i + 8, k, summary, list);
  };
  each_sixteen(k, [&](size_t i) { write(i, LANES); }, write);
  summary.below = _mm_cvtsi128_si32(_mm_add_epi64(below, _mm_unpackhi_epi64(below, below)));
  summary.negative = summary.below > 0;
  for (size_t i = k / 4 * 4; i < k; i++) {  // numbers after the whole groups
    const Number* at = out + i / 8 * 16 + i % 8;
    if (at[8]) summary.below -= at[0];
  }
}

// Returns the sum of a row times weights [k], which are not packed.
inline int32_t dot(const Number* a, const int8_t* b, size_t k) {
  const size_t whole = k / 4 * 4;
  int32_t sum = summary_of(a, k).below;
  __m256i sums = _mm256_setzero_si256();
  size_t i = 0;
  for (; i + 32 <= k; i += 32) {
    const __m256i* row = reinterpret_cast<const __m256i*>(a + 2 * i);
    const __m256i x = _mm256_loadu_si256(row), y = _mm256_loadu_si256(row + 1);
    const __m256i w = _mm256_permute4x64_epi64(weights_of(b + i), 0xd8);
    const __m256i first = _mm256_maddubs_epi16(_mm256_unpacklo_epi64(x, y), _mm256_xor_si256(w, _mm256_unpackhi_epi64(x, y)));
    sums = _mm256_add_epi32(sums, _mm256_madd_epi16(first, _mm256_set1_epi16(1)));
  }
  alignas(32) int32_t lanes[8];
  _mm256_store_si256(reinterpret_cast<__m256i*>(lanes), sums);
  for (int32_t lane : lanes) sum += lane;
  for (; i < whole; i++) sum += times(a, i, b[i]);
  for (; i < k; i++) sum += whole_times(a, i, b[i]);
  for (size_t j = 0; j < summary_of(a, k).lifted; j++) {
    const Lifted& entry = list_of(a, k)[j];
    for (size_t r = 0; r < 4; r++) {
      const int8_t sign = static_cast<int8_t>(entry.signs >> 8 * r);
      sum += static_cast<int32_t>(entry.magnitudes >> 8 * r & 255) * static_cast<int8_t>(b[entry.group * 4 + r] ^ sign);
    }
  }
  return sum;
}
