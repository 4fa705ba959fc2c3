// Compiled once for each instruction set: the compiler vectorizes over lanes and components, never over a chain.
#include "reference.h"

#include "tessera/sdk/numerics.h"

namespace tessera_loop::TESSERA_ISA {
namespace {

namespace sdk = tessera::sdk;

constexpr std::int32_t kSegment = sdk::kAttentionSegment;
constexpr std::int32_t kMostDim = 1024;

/// Ascending order of these is: larger score first, then lower position. -0 is +0, and NaN has a place too.
std::uint64_t selection_key(float score, std::int32_t position) {
  return static_cast<std::uint64_t>(~sdk::rank_key(score)) << 32 | static_cast<std::uint32_t>(position);
}

void exchange(std::uint64_t& a, std::uint64_t& b) {
  const std::uint64_t kept = a;
  a = b, b = kept;
}

/// The `count` least keys come first, in any order (quickselect; the keys differ).
void select_least(std::uint64_t* keys, std::int32_t size, std::int32_t count) {
  std::int32_t low = 0, high = size - 1;
  while (low < high) {
    const std::uint64_t pivot = keys[low + (high - low) / 2];
    std::int32_t i = low, j = high;
    while (i <= j) {
      while (keys[i] < pivot) ++i;
      while (pivot < keys[j]) --j;
      if (i <= j) exchange(keys[i++], keys[j--]);
    }
    if (count - 1 <= j)
      high = j;
    else if (count - 1 >= i)
      low = i;
    else
      return;
  }
}

/// One sum of weights and one weighted sum of vectors over a list, in the order of attention: ranks instead of
/// positions.
struct Weighted {
  float sum = 0.0f;
  float values[kMostDim];

  /// e_i = exp(score(i) - largest) for the ranks i < count; value(i) is a vector.
  template <class Score, class Value>
  void add_all(std::int32_t count, float largest, std::int32_t dim, Score&& score, Value&& value) {
    for (std::int32_t begin = 0; begin < count; begin += kSegment) {
      const std::int32_t end = count - begin < kSegment ? count - begin : kSegment;
      float weights[kSegment], lanes[kSegment], part[kMostDim];
      for (std::int32_t i = 0; i < kSegment; ++i)
        weights[i] = lanes[i] = i < end ? sdk::exp_f32(score(begin + i) - largest) : 0.0f;
      const float folded = sdk::fold_256(lanes);
      for (std::int32_t d = 0; d < dim; ++d) part[d] = 0.0f;
      for (std::int32_t i = 0; i < end; ++i) {
        const float* v = value(begin + i);
        for (std::int32_t d = 0; d < dim; ++d) part[d] = sdk::fma_f32(weights[i], v[d], part[d]);
      }
      sum = begin == 0 ? folded : sum + folded;
      for (std::int32_t d = 0; d < dim; ++d) values[d] = begin == 0 ? part[d] : values[d] + part[d];
    }
  }
};

/// Keys and values of the row's slice.
struct History {
  const sdk::SparseArgs& args;
  const std::int32_t* pages;
  std::int32_t kv_head;

  explicit History(const Item& item)
      : args(*item.args),
        pages(args.rows.pages + args.rows.slices[args.rows.row_slice[item.row]].first_page),
        kv_head(item.head / (item.shape->num_q_heads / item.shape->num_kv_heads)) {}
  std::int64_t at(std::int32_t position) const {
    return args.kv.offset(pages[position / sdk::kPageSize], args.layer, position % sdk::kPageSize, kv_head);
  }
  const float* key(std::int32_t position) const { return static_cast<const float*>(args.kv.k) + at(position); }
  const float* value(std::int32_t position) const { return static_cast<const float*>(args.kv.v) + at(position); }
};

std::int32_t& entry(const List& list, std::int32_t i) {
  return list.entries[list.pages[i / sdk::kListPage] * list.stride + i % sdk::kListPage];
}

/// Keeps the `item.retained` positions of the largest scores, ascending: those up to the last of the least keys.
void select_positions(const Item& item, const float* scores, std::int32_t length) {
  std::uint64_t* keys = item.scratch.keys;
  for (std::int32_t j = 0; j < length; ++j) keys[j] = selection_key(scores[j], j);
  select_least(keys, length, item.retained);
  std::uint64_t last = keys[0];
  for (std::int32_t i = 1; i < item.retained; ++i) last = keys[i] > last ? keys[i] : last;
  std::int32_t count = 0;
  for (std::int32_t j = 0; j < length; ++j)
    if (selection_key(scores[j], j) <= last) entry(item.reference.selected, count++) = j;
  *item.reference.count = count;
}

void capture(const Item& item) {
  const sdk::SparseArgs& args = *item.args;
  const std::int32_t dim = item.shape->head_dim, length = args.rows.positions[item.row] + 1;
  const float* scores =
      args.scores + (static_cast<std::int64_t>(item.row) * item.shape->num_q_heads + item.head) * args.scores_stride;
  const Reference& reference = item.reference;
  float largest = -__builtin_inff();
  for (std::int32_t j = 0; j < length; ++j) largest = scores[j] > largest ? scores[j] : largest;
  select_positions(item, scores, length);

  const History history(item);
  Weighted all, kept;
  all.add_all(
      length, largest, 0, [&](std::int32_t j) { return scores[j]; }, [](std::int32_t) { return nullptr; });
  kept.add_all(
      item.retained, largest, dim, [&](std::int32_t i) { return scores[entry(reference.selected, i)]; },
      [&](std::int32_t i) { return history.value(entry(reference.selected, i)); });
  const float inverse = 1.0f / all.sum;
  *reference.mass = kept.sum * inverse;
  const float* out = args.out.f32(item.row) + item.head * dim;
  for (std::int32_t d = 0; d < dim; ++d) {
    reference.output[d] = out[d];
    reference.contribution[d] = kept.values[d] * inverse;
  }
  if (args.masses != nullptr)
    args.masses[static_cast<std::int64_t>(item.row) * item.shape->num_q_heads + item.head] = *reference.mass;
}

void consume(const Item& item) {
  const sdk::SparseArgs& args = *item.args;
  const std::int32_t dim = item.shape->head_dim;
  const Reference& reference = item.reference;
  const History history(item);
  const float* q = args.q.f32(item.row) + item.head * dim;
  float* scores = item.scratch.scores;
  float largest = -__builtin_inff();
  for (std::int32_t i = 0; i < *reference.count; ++i) {
    scores[i] = sdk::attention_score(q, history.key(entry(reference.selected, i)), dim, item.shape->scale);
    largest = scores[i] > largest ? scores[i] : largest;
  }
  Weighted kept;
  kept.add_all(
      *reference.count, largest, dim, [&](std::int32_t i) { return scores[i]; },
      [&](std::int32_t i) { return history.value(entry(reference.selected, i)); });
  const float inverse = 1.0f / kept.sum;
  float* out = args.out.f32(item.row) + item.head * dim;
  for (std::int32_t d = 0; d < dim; ++d)
    out[d] = sdk::fma_f32(*reference.mass, kept.values[d] * inverse, reference.output[d] - reference.contribution[d]);
}

}  // namespace

extern const Kernels kKernels;
const Kernels kKernels{capture, consume};

}  // namespace tessera_loop::TESSERA_ISA
