// The product of rows of floats with packed weights. Included by kernels.cpp, once for each instruction set.
//
// Weights [K, N] lie in panels of 32 columns, each [K, 32], the last one filled up with zeros; under a gate the first
// 16 columns of a panel are values and the others the gates of the same columns of the result.
#if defined(__AVX512F__)
constexpr size_t WIDE = 16, HIGH = 12;
#elif defined(__AVX2__)
constexpr size_t WIDE = 8, HIGH = 6;
#else
constexpr size_t WIDE = 4, HIGH = 6;
#endif
typedef float Vector __attribute__((vector_size(4 * WIDE), aligned(4), may_alias));

// ROWS rows of 2 vectors of columns: sums over k, in its order whatever the rows, so that they are the same in any
// company
template <size_t ROWS>
void tile32(const float* a, const float* b, size_t k, bool fetch, float* sums) {
  Vector acc[ROWS][2];
#pragma GCC unroll 12
  for (size_t m = 0; m < ROWS; m++) acc[m][0] = acc[m][1] = Vector{};
  for (size_t i = 0; i < k; i++, b += 32) {
    if (fetch)  // weights come from beyond the caches
      for (size_t v = 0; v < 2 * WIDE; v += LANES) __builtin_prefetch(b + 4096 + v);
    const Vector first = *reinterpret_cast<const Vector*>(b), second = *reinterpret_cast<const Vector*>(b + WIDE);
#pragma GCC unroll 12
    for (size_t m = 0; m < ROWS; m++) {
      const Vector x = a[m * k + i] - Vector{};
      acc[m][0] += x * first;
      acc[m][1] += x * second;
    }
  }
#pragma GCC unroll 12
  for (size_t m = 0; m < ROWS; m++)
    for (size_t v = 0; v < 2; v++) *reinterpret_cast<Vector*>(sums + m * 32 + v * WIDE) = acc[m][v];
}

void product32(const float* x, const Weights32& w, const Sizes& s, size_t from, size_t until, float* y,
               Epilogue epilogue) {
  static constexpr auto tiles = []<size_t... I>(std::index_sequence<I...>) {
    return std::array<void (*)(const float*, const float*, size_t, bool, float*), HIGH>{tile32<I + 1>...};
  }(std::make_index_sequence<HIGH>{});
  const bool gated = epilogue == Epilogue::glu;
  const size_t width = gated ? s.n / 2 : s.n, step = gated ? 16 : 32, count = (s.m + HIGH - 1) / HIGH;
  alignas(64) float sums[HIGH * 32];
  for (size_t number = from; number < until; number++) {
    const float* panel = w.packed + number * 32 * s.k;
    const size_t column = number * step, columns = std::min(step, width - column);
    for (size_t t = 0; t < count; t++) {  // of nearly equal height
      const size_t row = s.m * t / count, rows = s.m * (t + 1) / count - row;
      for (size_t c = 0; c < 32; c += 2 * WIDE) tiles[rows - 1](x + row * s.k, panel + c, s.k, t == 0, sums + c);
      for (size_t m = 0; m < rows; m++) {
        float* __restrict out = y + (row + m) * width + column;
        const float* __restrict sum = sums + m * 32;
        const float* bias = w.bias ? w.bias + column : nullptr;
        for (size_t i = 0; i < columns; i++) {
          const float v = bias ? sum[i] + bias[i] : sum[i];
          out[i] = epilogue == Epilogue::relu ? std::max(v, 0.0f) : v;
        }
        for (size_t i = 0; gated && i < columns; i++)
          out[i] /= 1.0f + exponential(-(bias ? sum[16 + i] + bias[width + i] : sum[16 + i]));
      }
    }
  }
}
