// The operator that selects tokens at the end of a step.
#include <algorithm>

#include "run.h"

namespace convoy {
namespace {

// The end of a step (engine/models/select.py): logits [slots, beams, vocab], forced [slots, beams], banned [slots,
// beams, M], unk and eos penalties [slots], k [1] -> scores and ids [slots, beams, k]. With a list of tokens for each
// slot, [slots, W], logits are in its order.
struct Select {
  static constexpr const char* NAME = "Select";
  static constexpr int INPUTS[] = {ort::FLOAT, ort::INT64, ort::INT64, ort::FLOAT, ort::FLOAT, ort::INT64, ort::INT64};
  static constexpr int OUTPUTS[] = {ort::FLOAT, ort::INT64};
  static constexpr size_t OPTIONAL_FROM = 6;

  explicit Select(const Attributes& a) : unk(a.whole("unk")), eos(a.whole("eos")) {}

  void run(const Run& run) {
    const Tensor logits = run.input(0), forced = run.input(1), banned = run.input(2), unk_penalty = run.input(3),
                 eos_penalty = run.input(4), among = run.input(6);
    const size_t k = static_cast<size_t>(*run.input(5).as<int64_t>()), vocab = logits.last(), bans = banned.last();
    const size_t rows = logits.size() / vocab, beams = static_cast<size_t>(logits.shape[1]);
    const Shape shape{logits.shape[0], logits.shape[1], static_cast<int64_t>(k)};
    const Tensor scores = run.output(0, shape), ids = run.output(1, shape);
    run.each(rows, rows * vocab * 8, [&](size_t from, size_t until) {
      float* blocks = scratch<Select, float>(vocab / 64 + 1);
      int64_t* places = scratch<Select, int64_t>(bans);
      for (size_t i = from; i < until; i++) {
        Selection selection{.logits = logits.as<float>() + i * vocab,
                            .banned = banned.as<int64_t>() + i * bans,
                            .vocab = vocab,
                            .bans = bans,
                            .k = k,
                            .unk_penalty = unk_penalty.as<float>()[i / beams],
                            .eos_penalty = eos_penalty.as<float>()[i / beams],
                            .forced = forced.as<int64_t>()[i],
                            .unk = unk,
                            .eos = eos};
        float* best = scores.as<float>() + i * k;
        int64_t* at = ids.as<int64_t>() + i * k;
        if (!among.data) {
          chosen().select(selection, best, at, blocks);
          continue;
        }
        const int64_t* list = among.as<int64_t>() + i / beams * vocab;
        auto place = [&](int64_t id) {  // index in the list, or -1
          const int64_t* found = id < 0 ? list + vocab : std::find(list, list + vocab, id);
          return found == list + vocab ? int64_t{-1} : found - list;
        };
        for (size_t j = 0; j < bans; j++) places[j] = place(selection.banned[j]);
        selection.banned = places;
        selection.forced = place(selection.forced);
        selection.unk = place(unk);
        selection.eos = place(eos);
        chosen().select(selection, best, at, blocks);
        for (size_t j = 0; j < k; j++) at[j] = std::max<int64_t>(list[at[j]], 0);
      }
    });
  }

  int64_t unk, eos;
};

}  // namespace

Operators selection() { return operators<Select>(); }

}  // namespace convoy
