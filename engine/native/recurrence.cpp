// Operators of recurrent cells.
#include "run.h"

namespace convoy {
namespace {

// One step: candidates and gates [slots, beams, C], ring [slots, 1, beams, C], index [slots, beams, 1] -> cells and
// their ReLU, [slots, beams, C] each. With a residual [slots, beams, C], a gain [C] and a shift [C]: the layer norm of
// the ReLU and the residual in its place
struct SsruStep {
  static constexpr const char* NAME = "SsruStep";
  static constexpr int INPUTS[] = {ort::FLOAT, ort::FLOAT, ort::FLOAT, ort::INT64, ort::FLOAT, ort::FLOAT, ort::FLOAT};
  static constexpr int OUTPUTS[] = {ort::FLOAT, ort::FLOAT};
  static constexpr size_t OPTIONAL_FROM = 4;

  explicit SsruStep(const Attributes& a) : eps(a.real("epsilon")) {}

  void run(const Run& run) {
    const Tensor candidate = run.input(0), gate = run.input(1), ring = run.input(2), index = run.input(3);
    const Tensor residual = run.input(4), gain = run.input(5), shift = run.input(6);
    const size_t n = candidate.last(), rows = candidate.size() / n;
    const Tensor cells = run.output(0, candidate.shape), out = run.output(1, candidate.shape);
    run.each(rows, rows * n * 8, [&](size_t from, size_t until) {
      for (size_t i = from; i < until; i++) {
        const float* before = ring.as<float>() + static_cast<size_t>(index.as<int64_t>()[i]) * n;
        float* y = out.as<float>() + i * n;
        chosen().ssru(candidate.as<float>() + i * n, gate.as<float>() + i * n, before, n, cells.as<float>() + i * n, y);
        if (residual.data) chosen().add_norm(y, residual.as<float>() + i * n, gain.as<float>(), shift.as<float>(), eps, n);
      }
    });
  }

  float eps;
};

}  // namespace

Operators recurrence() { return operators<SsruStep>(); }

}  // namespace convoy
