// The instruction sets of this library, and those that this machine supports.
#include <cstring>

#include "kernels.h"

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__) && defined(__APPLE__)
#include <sys/sysctl.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

namespace convoy {

#if defined(__x86_64__)
#define CONVOY_SETS(SET) SET(avx512vnni) SET(avx512) SET(avxvnni) SET(avx2) SET(baseline)
#elif defined(__aarch64__)
#define CONVOY_SETS(SET) SET(i8mm) SET(dotprod) SET(neon)
#else
#define CONVOY_SETS(SET) SET(baseline)
#endif

#define CONVOY_DECLARED(set) namespace set { extern const Kernels kernels; }
CONVOY_SETS(CONVOY_DECLARED)

namespace {

#define CONVOY_LISTED(set) &set::kernels,
const Kernels* const all[] = {CONVOY_SETS(CONVOY_LISTED)};  // best first

#if defined(__x86_64__)
// Features of the processor and the system, because not all compilers support __builtin_cpu_supports.
struct Features {
  bool avx2 = false, avxvnni = false, avx512 = false, avx512vnni = false;

  Features() {
    unsigned a = 0, b = 0, c = 0, d = 0;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c >> 27 & 1)) return;
    const bool fma = c >> 12 & 1;
    unsigned kept = 0, high = 0;
    __asm__("xgetbv" : "=a"(kept), "=d"(high) : "c"(0));
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (kept & 6) != 6) return;
    const unsigned wide = 1u << 16 | 1u << 17 | 1u << 30 | 1u << 31;  // F, DQ, BW, VL
    avx2 = fma && (b >> 5 & 1);
    avx512 = avx2 && (b & wide) == wide && (kept & 0xe0) == 0xe0;
    avx512vnni = avx512 && (c >> 11 & 1);
    avxvnni = avx2 && a >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 4 & 1);
  }
};
bool here(const Kernels& k) {
  static const Features has;
  if (&k == &avx512vnni::kernels) return has.avx512vnni;
  if (&k == &avx512::kernels) return has.avx512;
  if (&k == &avxvnni::kernels) return has.avxvnni;
  return &k == &baseline::kernels || has.avx2;
}
#elif defined(__aarch64__)
bool has(const char* name, unsigned long word, unsigned bit) {
#if defined(__APPLE__)
  int value = 0;
  size_t size = sizeof value;
  (void)word, (void)bit;
  return !sysctlbyname(name, &value, &size, nullptr, 0) && value;
#elif defined(__linux__)
  (void)name;
  return getauxval(word) >> bit & 1;
#else
  (void)name, (void)word, (void)bit;
  return false;
#endif
}
bool here(const Kernels& k) {  // by bits of AT_HWCAP and AT_HWCAP2
  if (&k == &i8mm::kernels)
    return has("hw.optional.arm.FEAT_DotProd", 16, 20) && has("hw.optional.arm.FEAT_I8MM", 26, 13);
  return &k == &neon::kernels || has("hw.optional.arm.FEAT_DotProd", 16, 20);
}
#else
bool here(const Kernels&) { return true; }
#endif

}  // namespace

const Kernels& best() {
  for (const Kernels* k : all)
    if (here(*k)) return *k;
  return **(all + sizeof all / sizeof *all - 1);
}

const Kernels* named(const char* name) {
  for (const Kernels* k : all)
    if (!std::strcmp(k->name, name) && here(*k)) return k;
  return nullptr;
}

}  // namespace convoy
