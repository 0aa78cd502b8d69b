// Sixteen floats of an instruction set: one vector of AVX-512, two of AVX2, four of NEON, or plain numbers. Included by
// kernels.cpp, once for each instruction set.
//
// Every operation rounds alike on all of them: only `fma` fuses products with sums (build.py forbids it to the
// compiler), and sums over lanes are taken by halves. So answers are equal bit for bit everywhere.
constexpr size_t LANES = 16;

#if defined(__AVX512F__)
typedef __m512 Part;
inline Part load_part(const float* at) { return _mm512_loadu_ps(at); }
inline void store_part(float* at, Part v) { _mm512_storeu_ps(at, v); }
inline Part splat_part(float x) { return _mm512_set1_ps(x); }
inline Part fma(Part a, Part b, Part c) { return _mm512_fmadd_ps(a, b, c); }
inline Part fnma(Part a, Part b, Part c) { return _mm512_fnmadd_ps(a, b, c); }  // c - a * b
inline Part larger(Part a, Part b) { return _mm512_max_ps(a, b); }               // b if either is NaN
inline Part smaller(Part a, Part b) { return _mm512_min_ps(a, b); }
inline Part absolute(Part a) { return _mm512_abs_ps(a); }
inline Part rounded(Part a) { return _mm512_roundscale_ps(a, 0); }
inline Part times_power(Part a, Part n) { return _mm512_scalef_ps(a, n); }  // a * 2^n
inline Part zero_below(Part x, float bound, Part y) {                       // y, or 0 where x < bound
  return _mm512_mask_mov_ps(y, _mm512_cmp_ps_mask(x, _mm512_set1_ps(bound), _CMP_LT_OQ), _mm512_setzero_ps());
}
inline Part of_ints(const int32_t* at) { return _mm512_cvtepi32_ps(_mm512_loadu_si512(at)); }
inline void to_ints(Part a, int32_t* at) { _mm512_storeu_si512(at, _mm512_cvtps_epi32(a)); }
#elif defined(__AVX2__)
typedef __m256 Part;
inline Part load_part(const float* at) { return _mm256_loadu_ps(at); }
inline void store_part(float* at, Part v) { _mm256_storeu_ps(at, v); }
inline Part splat_part(float x) { return _mm256_set1_ps(x); }
inline Part fma(Part a, Part b, Part c) { return _mm256_fmadd_ps(a, b, c); }
inline Part fnma(Part a, Part b, Part c) { return _mm256_fnmadd_ps(a, b, c); }
inline Part larger(Part a, Part b) { return _mm256_max_ps(a, b); }
inline Part smaller(Part a, Part b) { return _mm256_min_ps(a, b); }
inline Part absolute(Part a) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a); }
inline Part rounded(Part a) { return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
inline Part times_power(Part a, Part n) {
  const __m256i bits = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
  return _mm256_mul_ps(a, _mm256_castsi256_ps(_mm256_slli_epi32(bits, 23)));
}
inline Part zero_below(Part x, float bound, Part y) {
  return _mm256_andnot_ps(_mm256_cmp_ps(x, _mm256_set1_ps(bound), _CMP_LT_OQ), y);
}
inline Part of_ints(const int32_t* at) {
  return _mm256_cvtepi32_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)));
}
inline void to_ints(Part a, int32_t* at) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(at), _mm256_cvtps_epi32(a));
}
#elif defined(__ARM_NEON)
typedef float32x4_t Part;
inline Part load_part(const float* at) { return vld1q_f32(at); }
inline void store_part(float* at, Part v) { vst1q_f32(at, v); }
inline Part splat_part(float x) { return vdupq_n_f32(x); }
inline Part fma(Part a, Part b, Part c) { return vfmaq_f32(c, a, b); }
inline Part fnma(Part a, Part b, Part c) { return vfmsq_f32(c, a, b); }
inline Part larger(Part a, Part b) { return vbslq_f32(vcgtq_f32(a, b), a, b); }
inline Part smaller(Part a, Part b) { return vbslq_f32(vcltq_f32(a, b), a, b); }
inline Part absolute(Part a) { return vabsq_f32(a); }
inline Part rounded(Part a) { return vrndnq_f32(a); }
inline Part times_power(Part a, Part n) {
  return vmulq_f32(a, vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(vcvtnq_s32_f32(n), vdupq_n_s32(127)), 23)));
}
inline Part zero_below(Part x, float bound, Part y) {
  return vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_f32(y), vcltq_f32(x, vdupq_n_f32(bound))));
}
inline Part of_ints(const int32_t* at) { return vcvtq_f32_s32(vld1q_s32(at)); }
inline void to_ints(Part a, int32_t* at) { vst1q_s32(at, vcvtnq_s32_f32(a)); }
#else
typedef float Part;
inline Part load_part(const float* at) { return *at; }
inline void store_part(float* at, Part v) { *at = v; }
inline Part splat_part(float x) { return x; }
inline Part fma(Part a, Part b, Part c) { return __builtin_fmaf(a, b, c); }
inline Part fnma(Part a, Part b, Part c) { return __builtin_fmaf(-a, b, c); }
inline Part larger(Part a, Part b) { return a > b ? a : b; }
inline Part smaller(Part a, Part b) { return a < b ? a : b; }
inline Part absolute(Part a) { return __builtin_fabsf(a); }
inline Part rounded(Part a) { return __builtin_nearbyintf(a); }
inline Part times_power(Part a, Part n) {
  if (!(n == n)) return n;
  const int32_t bits = (static_cast<int32_t>(n) + 127) << 23;
  float power;
  std::memcpy(&power, &bits, sizeof power);
  return a * power;
}
inline Part zero_below(Part x, float bound, Part y) { return x < bound ? 0.0f : y; }
inline Part of_ints(const int32_t* at) { return static_cast<float>(*at); }
inline void to_ints(Part a, int32_t* at) { *at = static_cast<int32_t>(__builtin_nearbyintf(a)); }
#endif
constexpr size_t WIDTH = sizeof(Part) / sizeof(float);

struct Floats {
  Part part[LANES / WIDTH];
};

// Sets all parts by a function of their index; unrolled, so that they stay in registers.
template <typename Make>
inline __attribute__((always_inline)) Floats each_part(Make make) {
  Floats y;
UNROLLED
  for (size_t i = 0; i < LANES / WIDTH; i++) y.part[i] = make(i);
  return y;
}

inline Floats load(const float* at) { return each_part([&](size_t i) { return load_part(at + i * WIDTH); }); }
inline Floats splat(float x) { return each_part([&](size_t) { return splat_part(x); }); }
inline void store(float* at, const Floats& v) {
UNROLLED
  for (size_t i = 0; i < LANES / WIDTH; i++) store_part(at + i * WIDTH, v.part[i]);
}
// Loads the first `count` lanes; the others are `rest`.
inline Floats load(const float* at, size_t count, float rest = 0.0f) {
#if defined(__AVX512F__)
  return {_mm512_mask_loadu_ps(_mm512_set1_ps(rest), static_cast<__mmask16>((1u << count) - 1), at)};
#elif defined(__AVX2__)
  const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return each_part([&](size_t i) {
    const __m256i wanted = _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count) - static_cast<int>(i * WIDTH)), lanes);
    const Part loaded = _mm256_maskload_ps(at + i * WIDTH, wanted);
    return _mm256_blendv_ps(splat_part(rest), loaded, _mm256_castsi256_ps(wanted));
  });
#else
  float all[LANES];
  for (size_t i = 0; i < LANES; i++) all[i] = i < count ? at[i] : rest;
  return load(all);
#endif
}
inline void store(float* at, const Floats& v, size_t count) {
#if defined(__AVX512F__)
  _mm512_mask_storeu_ps(at, static_cast<__mmask16>((1u << count) - 1), v.part[0]);
#else
  float all[LANES];
  store(all, v);
  std::memcpy(at, all, count * sizeof(float));
#endif
}

inline Floats operator+(const Floats& a, const Floats& b) { return each_part([&](size_t i) { return a.part[i] + b.part[i]; }); }
inline Floats operator-(const Floats& a, const Floats& b) { return each_part([&](size_t i) { return a.part[i] - b.part[i]; }); }
inline Floats operator*(const Floats& a, const Floats& b) { return each_part([&](size_t i) { return a.part[i] * b.part[i]; }); }
inline Floats operator/(const Floats& a, const Floats& b) { return each_part([&](size_t i) { return a.part[i] / b.part[i]; }); }
inline Floats fma(const Floats& a, const Floats& b, const Floats& c) {
  return each_part([&](size_t i) { return fma(a.part[i], b.part[i], c.part[i]); });
}
inline Floats fnma(const Floats& a, const Floats& b, const Floats& c) {
  return each_part([&](size_t i) { return fnma(a.part[i], b.part[i], c.part[i]); });
}
inline Floats larger(const Floats& a, const Floats& b) { return each_part([&](size_t i) { return larger(a.part[i], b.part[i]); }); }
inline Floats absolute(const Floats& a) { return each_part([&](size_t i) { return absolute(a.part[i]); }); }

// Sums lanes i and i + 8, then i and i + 4, and so on.
inline float total(const Floats& v) {
  Floats sums = v;
UNROLLED
  for (size_t half = LANES / WIDTH / 2; half; half /= 2)
UNROLLED
    for (size_t i = 0; i < half; i++) sums.part[i] = sums.part[i] + sums.part[i + half];
#if defined(__AVX512F__)
  const __m256 eight = _mm512_castps512_ps256(sums.part[0]) +
                       _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(sums.part[0]), 1));
#elif defined(__AVX2__)
  const __m256 eight = sums.part[0];
#endif
#if defined(__AVX2__)
  const __m128 four = _mm256_castps256_ps128(eight) + _mm256_extractf128_ps(eight, 1);
  const __m128 two = four + _mm_movehl_ps(four, four);
  return _mm_cvtss_f32(two + _mm_movehdup_ps(two));
#elif defined(__ARM_NEON)
  const float32x2_t two = vget_low_f32(sums.part[0]) + vget_high_f32(sums.part[0]);
  return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
#else
  return sums.part[0];
#endif
}
inline float largest(const Floats& v) {
  alignas(64) float lanes[LANES];
  store(lanes, v);
  for (size_t half = LANES / 2; half; half /= 2)
    for (size_t i = 0; i < half; i++) lanes[i] = lanes[i] < lanes[i + half] ? lanes[i + half] : lanes[i];
  return lanes[0];
}

// Cephes' expf: within 2 units in the last place, exactly 0 below the smallest normal number, e^88 beyond 88.
inline Part exponential(Part x) {
  const Part clipped = smaller(splat_part(88.0f), larger(splat_part(-87.3f), x));
  const Part n = rounded(clipped * splat_part(1.44269504088896341f));
  const Part r = fnma(n, splat_part(-2.12194440e-4f), fnma(n, splat_part(0.693359375f), clipped));
  Part p = splat_part(1.9875691500e-4f);
  p = fma(p, r, splat_part(1.3981999507e-3f));
  p = fma(p, r, splat_part(8.3334519073e-3f));
  p = fma(p, r, splat_part(4.1665795894e-2f));
  p = fma(p, r, splat_part(1.6666665459e-1f));
  p = fma(p, r, splat_part(5.0000001201e-1f));
  p = fma(p, r * r, r + splat_part(1.0f));
  return zero_below(x, -87.3f, times_power(p, n));
}
inline Floats exponential(const Floats& x) { return each_part([&](size_t i) { return exponential(x.part[i]); }); }
inline Floats sigmoid_times(const Floats& y, const Floats& gate) {  // y / (1 + e^-gate)
  return y / (splat(1.0f) + exponential(splat(0.0f) - gate));
}
