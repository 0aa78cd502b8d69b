// Many small copies in one launch: data placed into slots, moved between slots, or packed for the host.
// Each item (a new request, a move, a slot) has the same copies. Each number of a copy is the sum of the item's terms
// multiplied by a plan [terms, copies, FIELDS]. A copy has some rows; the end of a row without a source is filled with zeros.
// Copies do not overlap. Grid (copies * items, chunks), block of one warp or more.
#include "common.cuh"

struct Copy {
  unsigned char* target;
  const unsigned char* source;  // null: only zeros
  Index rows, bytes;            // bytes of a row with a source
  Index filled;                 // bytes of a row to write
  Index target_pitch, source_pitch;
};

constexpr int FIELDS = sizeof(Copy) / sizeof(Index);

extern "C" __global__ void __launch_bounds__(256, 1)
    scatter(const Index* plan, const Index* items, int terms, int copies) {
  __shared__ Copy shared;
  await_inputs();
  if (threadIdx.x < FIELDS) {
    const Index* of = items + static_cast<Index>(blockIdx.x / copies) * terms;
    const Index* row = plan + static_cast<Index>(blockIdx.x % copies) * FIELDS + threadIdx.x;
    Index sum = 0;
    for (int term = 0; term < terms; ++term) sum += of[term] * row[static_cast<Index>(term) * copies * FIELDS];
    reinterpret_cast<Index*>(&shared)[threadIdx.x] = sum;
  }
  __syncthreads();
  const Copy copy = shared;
  const Index bytes = copy.source == nullptr ? 0 : copy.bytes;
  // copies the largest aligned unit; a unit that the source ends within is padded with zeros
  const Index all = reinterpret_cast<Index>(copy.target) | reinterpret_cast<Index>(copy.source) | copy.filled |
                    copy.target_pitch | copy.source_pitch;
  const int unit = all % 16 == 0 ? 16 : all % 4 == 0 ? 4 : 1;
  const Index across = copy.filled / unit, count = copy.rows * across;
  const Index step = static_cast<Index>(gridDim.y) * blockDim.x;
  for (Index at = static_cast<Index>(blockIdx.y) * blockDim.x + threadIdx.x; at < count; at += step) {
    const Index row = at / across, column = at % across * unit;
    unsigned char* to = copy.target + row * copy.target_pitch + column;
    const unsigned char* from = copy.source + row * copy.source_pitch + column;
    const bool there = column < bytes;
    if (there && column + unit > bytes) {
      for (int i = 0; i < unit; i++) to[i] = column + i < bytes ? from[i] : static_cast<unsigned char>(0);
    } else if (unit == 16) {
      struct alignas(16) Wide {
        Index a, b;
      };
      *reinterpret_cast<Wide*>(to) = there ? *reinterpret_cast<const Wide*>(from) : Wide{0, 0};
    } else if (unit == 4) {
      *reinterpret_cast<unsigned*>(to) = there ? *reinterpret_cast<const unsigned*>(from) : 0u;
    } else {
      *to = there ? *from : static_cast<unsigned char>(0);
    }
  }
}
