// Compiled once for each instruction set: the compiler vectorizes over lanes and components, never over a chain.
#include "reference.h"

#include "tessera/sdk/numerics.h"

namespace tessera_reference::TESSERA_ISA {
namespace {

namespace sdk = tessera::sdk;

void attend(const sdk::AttentionArgs& args, const sdk::AttentionShape& shape, std::int32_t row, std::int32_t head,
            float* scores) {
  constexpr std::int32_t kSegment = sdk::kAttentionSegment;
  const std::int32_t length = args.rows.positions[row] + 1;
  const std::int32_t kv_head = head / (shape.num_q_heads / shape.num_kv_heads);
  const std::int32_t* pages = args.rows.pages + args.rows.slices[args.rows.row_slice[row]].first_page;
  const float* q = args.q.f32(row) + head * shape.head_dim;
  float* out = args.out.f32(row) + head * shape.head_dim;
  const auto at = [&](std::int32_t position) {
    return args.kv.offset(pages[position / sdk::kPageSize], args.layer, position % sdk::kPageSize, kv_head);
  };

  float largest = -__builtin_inff();
  for (std::int32_t j = 0; j < length; ++j) {
    scores[j] = sdk::attention_score(q, static_cast<const float*>(args.kv.k) + at(j), shape.head_dim, shape.scale);
    largest = scores[j] > largest ? scores[j] : largest;
  }
  if (args.scores != nullptr) {
    float* emitted = args.scores + (static_cast<std::int64_t>(row) * shape.num_q_heads + head) * args.scores_stride;
    for (std::int32_t j = 0; j < length; ++j) emitted[j] = scores[j];
  }

  float total = 0.0f;
  for (std::int32_t begin = 0; begin < length; begin += kSegment) {
    const std::int32_t count = length - begin < kSegment ? length - begin : kSegment;
    float weights[kSegment], lanes[kSegment];
    for (std::int32_t i = 0; i < kSegment; ++i)
      weights[i] = lanes[i] = i < count ? sdk::exp_f32(scores[begin + i] - largest) : 0.0f;
    const float sum = sdk::fold_256(lanes);
    float values[1024];  // head_dim at most
    for (std::int32_t d = 0; d < shape.head_dim; ++d) values[d] = 0.0f;
    for (std::int32_t i = 0; i < count; ++i) {
      const float* v = static_cast<const float*>(args.kv.v) + at(begin + i);
      for (std::int32_t d = 0; d < shape.head_dim; ++d) values[d] = sdk::fma_f32(weights[i], v[d], values[d]);
    }
    total = begin == 0 ? sum : total + sum;
    for (std::int32_t d = 0; d < shape.head_dim; ++d) out[d] = begin == 0 ? values[d] : out[d] + values[d];
  }
  const float inverse = 1.0f / total;
  for (std::int32_t d = 0; d < shape.head_dim; ++d) out[d] = out[d] * inverse;
}

}  // namespace

extern const AttendFunction kAttend;
const AttendFunction kAttend = attend;

}  // namespace tessera_reference::TESSERA_ISA
