#include "bench/attention_data.h"

#include <algorithm>
#include <cmath>

#include "base/random.h"

namespace tessera {
namespace {

/// About a unit Gaussian: four uniforms of 16 bits, scaled so that mantissas are full.
float gaussian(Random& random) {
  const std::uint32_t a = random.bits(), b = random.bits();
  const auto sum = static_cast<std::int32_t>((a >> 16) + (a & 0xffff) + (b >> 16) + (b & 0xffff)) - 2 * 0xffff;
  return static_cast<float>(sum) * (1.0f / 37837.0f);
}

void fill_gaussian(std::vector<float>& values, Random& random) {
  for (float& value : values) value = gaussian(random);
}

void fill_signed_zeros(std::vector<float>& values, Random& random) {
  for (float& value : values) value = (random.bits() & 1) != 0 ? -0.0f : 0.0f;
}

void fill_mixed_scales(std::vector<float>& values, Random& random, int top) {
  for (float& value : values) {
    value = gaussian(random);
    value = std::ldexp(value, top - static_cast<int>(random.below(static_cast<std::uint32_t>(top) + 13)));
  }
}

/// Every query of a KV group leans on one vector of signs; keys lean on it more and more, up to a score of 16.
void fill_growing(SequenceData& sequence, const AttentionGeometry& geometry, Random& random) {
  std::vector<float> direction(static_cast<std::size_t>(geometry.kv_width()));
  for (float& sign : direction) sign = (random.bits() & 1) != 0 ? -1.0f : 1.0f;
  const auto dim = static_cast<std::size_t>(geometry.head_dim);
  const auto kv_width = direction.size(), q_width = static_cast<std::size_t>(geometry.q_width());
  const auto group = q_width / kv_width;
  for (std::size_t i = 0; i < sequence.q.size(); ++i) {
    const std::size_t head = i % q_width / dim;
    sequence.q[i] = direction[head / group * dim + i % dim] + 0.25f * gaussian(random);
  }
  const float step = 16.0f / (static_cast<float>(sequence.end()) * std::sqrt(static_cast<float>(geometry.head_dim)));
  for (std::size_t i = 0; i < sequence.k.size(); ++i) {
    const float lean = static_cast<float>(i / kv_width) * step;
    sequence.k[i] = direction[i % kv_width] * lean + 0.02f * gaussian(random);
  }
}

void fill(SequenceData& sequence, const AttentionCase& description, std::uint64_t stream) {
  Random random(description.seed, stream);
  fill_gaussian(sequence.v, random);
  switch (description.profile) {
    case Profile::normal:
      fill_gaussian(sequence.q, random);
      fill_gaussian(sequence.k, random);
      break;
    case Profile::zeros:
      fill_signed_zeros(sequence.q, random);
      fill_signed_zeros(sequence.k, random);
      break;
    case Profile::mixed_scales:
      fill_mixed_scales(sequence.q, random, 2);
      fill_mixed_scales(sequence.k, random, 1);
      fill_mixed_scales(sequence.v, random, 1);
      break;
    case Profile::growing: fill_growing(sequence, description.geometry, random); break;
  }
}

}  // namespace

sdk::AttentionShape AttentionGeometry::shape() const {
  const auto scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(head_dim)));
  return {layers, q_heads, kv_heads, head_dim, scale, sdk::DType::f32};
}

std::int64_t causal_pairs(const std::vector<RowRange>& slices) {
  std::int64_t pairs = 0;
  for (const RowRange& slice : slices) {
    const std::int64_t rows = slice.length;
    pairs += rows * slice.start + rows * (rows + 1) / 2;
  }
  return pairs;
}

std::int64_t num_rows(const std::vector<RowRange>& slices) {
  std::int64_t rows = 0;
  for (const RowRange& slice : slices) rows += slice.length;
  return rows;
}

AttentionData make_data(const AttentionCase& description) {
  AttentionData data{description.geometry, {}};
  for (const RowRange& slice : description.slices) {
    SequenceData sequence{slice.start, slice.length, {}, {}, {}};
    const auto rows = static_cast<std::size_t>(slice.length), positions = static_cast<std::size_t>(sequence.end());
    sequence.q.resize(rows * static_cast<std::size_t>(description.geometry.q_width()));
    sequence.k.resize(positions * static_cast<std::size_t>(description.geometry.kv_width()));
    sequence.v.resize(sequence.k.size());
    fill(sequence, description, data.sequences.size());
    data.sequences.push_back(std::move(sequence));
  }
  return data;
}

std::vector<double> attention_oracle(const AttentionData& data, std::size_t index, std::int32_t row) {
  const AttentionGeometry& geometry = data.geometry;
  const SequenceData& sequence = data.sequences[index];
  const auto dim = static_cast<std::size_t>(geometry.head_dim);
  const auto kv_width = static_cast<std::size_t>(geometry.kv_width());
  const auto length = static_cast<std::size_t>(sequence.start + row + 1);
  const auto group = static_cast<std::size_t>(geometry.q_heads / geometry.kv_heads);
  const double scale = geometry.shape().scale;
  std::vector<double> out(static_cast<std::size_t>(geometry.q_width())), weights(length);
  for (std::size_t head = 0; head < static_cast<std::size_t>(geometry.q_heads); ++head) {
    const float* q = &sequence.q[static_cast<std::size_t>(row) * out.size() + head * dim];
    const std::size_t base = head / group * dim;
    double largest = -HUGE_VAL, total = 0;
    for (std::size_t j = 0; j < length; ++j) {
      double score = 0;
      for (std::size_t d = 0; d < dim; ++d) score += double{q[d]} * double{sequence.k[j * kv_width + base + d]};
      weights[j] = score * scale;
      largest = std::max(largest, weights[j]);
    }
    double* result = &out[head * dim];
    for (std::size_t j = 0; j < length; ++j) {
      const double weight = std::exp(weights[j] - largest);
      total += weight;
      for (std::size_t d = 0; d < dim; ++d) result[d] += weight * double{sequence.v[j * kv_width + base + d]};
    }
    for (std::size_t d = 0; d < dim; ++d) result[d] /= total;
  }
  return out;
}

}  // namespace tessera
