// The product of rows of floats with packed weights. Included by kernels.cpp, once for each instruction set.
//
// Weights [K, N] are stored in panels of 32 columns, each [K, 32], the last one padded with zeros. With a gate, the
// first 16 columns of a panel are values and the others are the gates of the same columns of the result.
#if defined(__AVX512F__)
constexpr size_t TALL32 = 12, PARTS = 2;  // rows and column vectors of a tile, as many as registers hold
#elif defined(__AVX2__)
constexpr size_t TALL32 = 6, PARTS = 2;
#elif defined(__ARM_NEON)
constexpr size_t TALL32 = 6, PARTS = 4;
#else
constexpr size_t TALL32 = 2, PARTS = 4;
#endif

// Number of column vectors of a tile. One or two rows take a whole panel, which is then read once.
constexpr size_t parts_of(size_t rows) { return rows <= 2 && WIDTH > 1 ? PANEL / WIDTH : PARTS; }

// Sums over k in ascending order, so that a row's sums do not depend on the other rows.
template <size_t ROWS>
void tile32(const float* a, const float* b, size_t k, bool fetched, float* sums) {
  constexpr size_t VECTORS = parts_of(ROWS);
  Part sum[ROWS][VECTORS];
UNROLLED
  for (size_t m = 0; m < ROWS; m++)
UNROLLED
    for (size_t v = 0; v < VECTORS; v++) sum[m][v] = splat_part(0.0f);
  for (size_t i = 0; i < k; i++, b += PANEL) {
    // weights are not in a cache, so the whole row is prefetched; later tiles read its rest
    if (fetched)
      for (size_t v = 0; v < PANEL; v += LANES) __builtin_prefetch(b + 4096 + v);
    Part column[VECTORS];
UNROLLED
    for (size_t v = 0; v < VECTORS; v++) column[v] = load_part(b + v * WIDTH);
UNROLLED
    for (size_t m = 0; m < ROWS; m++) {
      const Part x = splat_part(a[m * k + i]);
UNROLLED
      for (size_t v = 0; v < VECTORS; v++) sum[m][v] = fma(x, column[v], sum[m][v]);
    }
  }
UNROLLED
  for (size_t m = 0; m < ROWS; m++)
UNROLLED
    for (size_t v = 0; v < VECTORS; v++) store_part(sums + m * PANEL + v * WIDTH, sum[m][v]);
}

void product32(const float* x, const Weights32& w, const Sizes& s, size_t from, size_t until, float* y,
               Epilogue epilogue) {
  static constexpr auto tiles = []<size_t... I>(std::index_sequence<I...>) {
    return std::array<void (*)(const float*, const float*, size_t, bool, float*), TALL32>{tile32<I + 1>...};
  }(std::make_index_sequence<TALL32>{});
  const bool gated = epilogue == Epilogue::glu;
  const size_t width = gated ? s.n / 2 : s.n, step = gated ? LANES : PANEL, count = (s.m + TALL32 - 1) / TALL32;
  alignas(64) float sums[TALL32 * PANEL];
  const Floats none = splat(0.0f);
  for (size_t number = from; number < until; number++) {
    const float* panel = w.packed + number * PANEL * s.k;
    const size_t column = number * step, columns = std::min(step, width - column);
    auto bias = [&](size_t at, size_t half) {
      const size_t left = columns - std::min(columns, gated ? 0 : half * LANES);
      return w.bias ? load(w.bias + at, std::min(LANES, left)) : none;
    };
    const Floats shifts[2] = {bias(column, 0), bias(gated ? width + column : column + LANES, 1)};
    for (size_t t = 0; t < count; t++) {  // tiles have nearly equal heights
      const size_t row = s.m * t / count, rows = s.m * (t + 1) / count - row;
      for (size_t c = 0; c < PANEL; c += parts_of(rows) * WIDTH) tiles[rows - 1](x + row * s.k, panel + c, s.k, t == 0 && c == 0, sums + c);
      for (size_t m = 0; m < rows; m++) {
        float* out = y + (row + m) * width + column;
        Floats values = load(sums + m * PANEL) + shifts[0], others = load(sums + m * PANEL + LANES) + shifts[1];
        if (gated) {
          const Floats open = sigmoid_times(values, others);
          columns == LANES ? store(out, open) : store(out, open, columns);
          continue;
        }
        if (epilogue == Epilogue::relu) {
          values = larger(values, none);
          others = larger(others, none);
        }
        if (columns == PANEL) {
          store(out, values);
          store(out + LANES, others);
        } else {
          store(out, values, std::min(LANES, columns));
          if (columns > LANES) store(out + LANES, others, columns - LANES);
        }
      }
    }
  }
}
