// The arithmetic, in the order of docs/numerics.md, "Attention": followed to the letter, it gives the reference's bits
// on every device. This is what you replace.
#pragma once
#include "tessera/sdk/attention.h"
#include "tessera/sdk/numerics.h"

namespace my_attention {

using namespace tessera::sdk;

inline constexpr std::int32_t kMaxHeadDim = 256;

/// Lane d chains the components d, d + 32, d + 64, ...; then the tree over 32 lanes; then the softmax scale.
TESSERA_INLINE float score(const float* q, const float* k, const AttentionShape& shape) {
  float lanes[kLanes];
  for (int lane = 0; lane < kLanes; ++lane) {
    lanes[lane] = q[lane] * k[lane];
    for (int d = lane + kLanes; d < shape.head_dim; d += kLanes) lanes[lane] = fma_f32(q[d], k[d], lanes[lane]);
  }
  return fold_32(lanes) * shape.scale;
}

/// One row and one query head: out = sum of e^(score_j - largest) v_j over the positions j the row sees, over their
/// sum.
TESSERA_INLINE void attend(const AttentionArgs& args, const AttentionShape& shape, std::int32_t row,
                           std::int32_t head) {
  const std::int32_t length = args.rows.positions[row] + 1;  // a row sees itself and what was before it
  const std::int32_t* pages = args.rows.pages + args.rows.slices[args.rows.row_slice[row]].first_page;
  const std::int32_t kv_head = head / (shape.num_q_heads / shape.num_kv_heads);
  const auto at = [&](const void* side, std::int32_t j) {
    return static_cast<const float*>(side) + args.kv.offset(pages[j / kPageSize], args.layer, j % kPageSize, kv_head);
  };
  const float* q = args.q.f32(row) + head * shape.head_dim;  // [head_dim]
  float* out = args.out.f32(row) + head * shape.head_dim;    // [head_dim]

  float largest = score(q, at(args.kv.k, 0), shape);
  for (std::int32_t j = 1; j < length; ++j) {
    const float found = score(q, at(args.kv.k, j), shape);
    largest = found > largest ? found : largest;
  }
  float total = 0;
  for (std::int32_t begin = 0; begin < length; begin += kAttentionSegment) {  // segments lie at absolute positions
    float lanes[kAttentionSegment] = {}, values[kMaxHeadDim] = {};
    for (std::int32_t i = 0; i < kAttentionSegment && begin + i < length; ++i) {
      const float weight = exp_f32(score(q, at(args.kv.k, begin + i), shape) - largest);
      const float* v = at(args.kv.v, begin + i);
      for (int d = 0; d < shape.head_dim; ++d) values[d] = fma_f32(weight, v[d], values[d]);
      lanes[i] = weight;
    }
    const float sum = fold_256(lanes);
    total = begin == 0 ? sum : total + sum;
    for (int d = 0; d < shape.head_dim; ++d) out[d] = begin == 0 ? values[d] : out[d] + values[d];
  }
  const float inverse = 1 / total;
  for (int d = 0; d < shape.head_dim; ++d) out[d] *= inverse;
}

/// Ok, or one sentence that says what this code cannot serve.
inline Status check_shape(const AttentionShape& shape) {
  if (shape.head_dim <= 0 || shape.head_dim % kLanes != 0 || shape.head_dim > kMaxHeadDim)
    return fail(Code::unsupported, "my_attention: wanted a head_dim that is a multiple of 32 up to 256");
  if (shape.num_kv_heads <= 0 || shape.num_q_heads % shape.num_kv_heads != 0)
    return fail(Code::unsupported, "my_attention: wanted query heads that KV heads divide evenly");
  if (shape.kv_dtype != DType::f32) return fail(Code::unsupported, "my_attention: wanted KV of type f32");
  return {};
}

}  // namespace my_attention
