// Queries, keys and values for attention checks: a function of a seed, whatever pages or packing they meet later.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "tessera/sdk/attention.h"

namespace tessera {

/// The default is the published 113 M geometry, in the middle one of three layers.
struct AttentionGeometry {
  std::int32_t q_heads = 12;
  std::int32_t kv_heads = 3;
  std::int32_t head_dim = 64;
  std::int32_t layers = 3;
  std::int32_t layer = 1;

  std::int32_t q_width() const { return q_heads * head_dim; }
  std::int32_t kv_width() const { return kv_heads * head_dim; }
  sdk::AttentionShape shape() const;
  bool operator==(const AttentionGeometry&) const = default;
};

/// Rows [start, start + length) of one sequence; positions [0, start) are its history.
struct RowRange {
  std::int32_t start;
  std::int32_t length;
};

/// normal: all values about a unit Gaussian. zeros: queries and keys are zeros of both signs, so every score ties.
/// mixed_scales: powers of two from 2^-12 to 2^2 within one vector. growing: each key scores above those before it.
enum class Profile { normal, zeros, mixed_scales, growing };
inline constexpr Profile kProfiles[] = {Profile::normal, Profile::zeros, Profile::mixed_scales, Profile::growing};

struct AttentionCase {
  std::string name;
  AttentionGeometry geometry;
  std::vector<RowRange> slices;
  Profile profile = Profile::normal;
  std::uint64_t seed = 0;
  bool poison = false;  // also with NaN wherever no row may look
};

/// Sums of history lengths over rows: what the work of a case grows with.
std::int64_t causal_pairs(const std::vector<RowRange>& slices);
std::int64_t num_rows(const std::vector<RowRange>& slices);

struct SequenceData {
  std::int32_t start;
  std::int32_t length;
  std::vector<float> q;  // [length][q_width]
  std::vector<float> k;  // [start + length][kv_width]
  std::vector<float> v;

  std::int32_t end() const { return start + length; }
};

struct AttentionData {
  AttentionGeometry geometry;
  std::vector<SequenceData> sequences;
};

AttentionData make_data(const AttentionCase& description);

/// One output row in f64, by the textbook. `row` counts from the sequence's start.
std::vector<double> attention_oracle(const AttentionData& data, std::size_t sequence, std::int32_t row);

}  // namespace tessera
