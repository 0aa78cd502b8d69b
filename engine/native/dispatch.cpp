// Which instruction sets this library was built for, and which of them this machine has.
#include <cstring>

#include "kernels.h"

namespace convoy {

namespace baseline { extern const Kernels kernels; }
#if defined(__x86_64__)
namespace avx2 { extern const Kernels kernels; }
namespace avx512vnni { extern const Kernels kernels; }
#endif

namespace {

bool here(const Kernels& k) {
#if defined(__x86_64__)
  if (&k == &avx512vnni::kernels)
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vnni");
  if (&k == &avx2::kernels) return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#endif
  return true;
}

const Kernels* const all[] = {
#if defined(__x86_64__)
    &avx512vnni::kernels, &avx2::kernels,
#endif
    &baseline::kernels};

}  // namespace

const Kernels& best() {
  for (const Kernels* k : all)
    if (here(*k)) return *k;
  return baseline::kernels;
}

const Kernels* named(const char* name) {
  for (const Kernels* k : all)
    if (!std::strcmp(k->name, name) && here(*k)) return k;
  return nullptr;
}

}  // namespace convoy
