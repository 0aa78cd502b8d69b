// Kernels of static scales and recurrent cells. Included by kernels.cpp, once for each instruction set.

// Quantises x by a fixed scale, in the form of the instruction set, clipped to a byte.
void quantize_static(const float* x, float alpha, size_t k, void* numbers) {
  const Floats scale = splat(alpha), low = splat(-127.0f), high = splat(127.0f);
  write_row(k, numbers, [&](size_t i, size_t count) {
    const Floats scaled = (count == LANES ? load(x + i) : load(x + i, count)) * scale;
    return each_part([&](size_t p) { return smaller(high.part[p], larger(low.part[p], scaled.part[p])); });
  });
}

// Computes a row of a simpler simple recurrent unit: cell = f * before + (1 - f) * candidate, f = sigmoid(gate).
void ssru(const float* candidate, const float* gate, const float* before, size_t n, float* __restrict cell,
          float* __restrict out) {
  const Floats one = splat(1.0f), zero = splat(0.0f);
  auto next = [&](const Floats& fresh, const Floats& open, const Floats& old) {
    const Floats forget = sigmoid_times(one, open);
    return fma(forget, old, (one - forget) * fresh);
  };
  each_sixteen(
      n,
      [&](size_t i) {
        const Floats c = next(load(candidate + i), load(gate + i), load(before + i));
        store(cell + i, c);
        store(out + i, larger(c, zero));
      },
      [&](size_t i, size_t count) {
        const Floats c = next(load(candidate + i, count), load(gate + i, count), load(before + i, count));
        store(cell + i, c, count);
        store(out + i, larger(c, zero), count);
      });
}
