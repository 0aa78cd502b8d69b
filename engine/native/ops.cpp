// Registers the operators of this library with ONNX Runtime, domain "convoy". export/graphs/ops.py defines the same
// functions by standard operators.
#include <cstdlib>

#include "run.h"

namespace convoy {

Operators attention();
Operators convolutions();
Operators products();
Operators recurrence();
Operators selection();

const Kernels& chosen() {
  static const Kernels& kernels = []() -> const Kernels& {
    const char* wish = std::getenv("CONVOY_KERNELS_ISA");  // forces an instruction set that this machine has
    const Kernels* wished = wish ? named(wish) : nullptr;
    return wished ? *wished : best();
  }();
  return kernels;
}

}  // namespace convoy

#define CONVOY_FACE extern "C" __attribute__((visibility("default")))

CONVOY_FACE const char* convoy_kernels() { return convoy::chosen().name; }

CONVOY_FACE int convoy_fast() { return convoy::chosen().fast; }

CONVOY_FACE OrtStatus* RegisterCustomOps(OrtSessionOptions* options, const OrtApiBase* base) {
  using namespace convoy;
  const OrtApi* api = base->GetApi(ort::VERSION);
  OrtCustomOpDomain* domain = nullptr;
  if (OrtStatus* status = api->get<ort::CreateCustomOpDomain>(26)("convoy", &domain)) return status;
  for (const Operators& family : {attention(), convolutions(), products(), recurrence(), selection()})
    for (const ort::CustomOp* op : family)
      if (OrtStatus* status = api->get<ort::CustomOpDomainAdd>(27)(domain, op)) return status;
  return api->get<ort::AddCustomOpDomain>(28)(options, domain);
}
