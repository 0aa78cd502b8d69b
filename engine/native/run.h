// What every operator needs of ONNX Runtime: its inputs, outputs, attributes and threads. Included by ops.cpp.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "kernels.h"
#include "ort.h"

namespace convoy {
namespace {

constexpr size_t GRAIN = 1 << 16;  // multiplications that are worth another thread

struct Failure {
  OrtStatus* status;
};

struct Tensor {
  std::vector<int64_t> shape;
  void* data = nullptr;

  size_t size(size_t from = 0, size_t until = ~size_t{0}) const {
    until = std::min(until, shape.size());
    size_t product = 1;
    for (size_t i = from; i < until; i++) product *= static_cast<size_t>(shape[i]);
    return product;
  }
  size_t last() const { return static_cast<size_t>(shape.back()); }
  template <typename T>
  T* as() const { return static_cast<T*>(data); }
};

// One run of one operator.
class Run {
 public:
  Run(const OrtApi& api, OrtKernelContext* context) : api_(api), context_(context) {}

  Tensor input(size_t at) const {
    const OrtValue* value = nullptr;
    check(api_.get<ort::GetInput>(90)(context_, at, &value));
    return value ? view(value) : Tensor{};
  }
  Tensor output(size_t at, std::vector<int64_t> shape) const {
    OrtValue* value = nullptr;
    check(api_.get<ort::GetOutput>(91)(context_, at, shape.data(), shape.size(), &value));
    Tensor made{std::move(shape), nullptr};
    if (value) check(api_.get<ort::GetTensorMutableData>(51)(value, &made.data));
    return made;
  }
  // body(from, until) over 0..total, in parallel when the work is worth it
  template <typename Body>
  void each(size_t total, size_t work, Body body) const {
    const size_t parts = std::min({total, work / GRAIN + 1, size_t{16}});
    if (parts <= 1) return body(size_t{0}, total);
    struct Shared {
      Body& body;
      size_t total, parts;
    } shared{body, total, parts};
    auto part = [](void* data, size_t at) {
      auto& s = *static_cast<Shared*>(data);
      s.body(s.total * at / s.parts, s.total * (at + 1) / s.parts);
    };
    check(api_.get<ort::ParallelFor>(274)(context_, part, parts, 0, &shared));
  }

 private:
  Tensor view(const OrtValue* value) const {
    OrtTensorTypeAndShapeInfo* info = nullptr;
    size_t rank = 0;
    Tensor found;
    check(api_.get<ort::GetTensorTypeAndShape>(65)(value, &info));
    check(api_.get<ort::GetDimensionsCount>(61)(info, &rank));
    found.shape.resize(rank);
    check(api_.get<ort::GetDimensions>(62)(info, found.shape.data(), rank));
    api_.get<ort::ReleaseShape>(99)(info);
    check(api_.get<ort::GetTensorMutableData>(51)(value, &found.data));
    return found;
  }
  static void check(OrtStatus* status) {
    if (status) throw Failure{status};
  }

  const OrtApi& api_;
  OrtKernelContext* context_;
};

class Attributes {
 public:
  Attributes(const OrtApi& api, const OrtKernelInfo* info) : api_(api), info_(info) {}
  int64_t whole(const char* name) const {
    int64_t value = 0;
    check(api_.get<ort::GetAttributeInt>(86)(info_, name, &value));
    return value;
  }
  float real(const char* name) const {
    float value = 0;
    check(api_.get<ort::GetAttributeFloat>(85)(info_, name, &value));
    return value;
  }

 private:
  static void check(OrtStatus* status) {
    if (status) throw Failure{status};
  }
  const OrtApi& api_;
  const OrtKernelInfo* info_;
};

const Kernels& chosen() {
  static const Kernels& kernels = [] () -> const Kernels& {
    const char* wish = std::getenv("CONVOY_KERNELS_ISA");  // for tests of every path
    const Kernels* found = wish ? named(wish) : nullptr;
    return found ? *found : best();
  }();
  return kernels;
}

}  // namespace
}  // namespace convoy
