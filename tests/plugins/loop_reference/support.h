// One row of one head for the kernels of loop_reference.
#pragma once
#include <algorithm>
#include <numeric>
#include <vector>

#include "reference.h"
#include "retention.h"

namespace tessera_loop {

namespace sdk = tessera::sdk;

constexpr std::int32_t kDim = 32;

constexpr std::int64_t kStride = 3 * sdk::kListPage;  // lists of other heads lie between those of a page

/// One row, one head, its history on pages 0, 1, ...
class Bench {
 public:
  explicit Bench(std::int32_t length)
      : length_(length),
        pages_(static_cast<std::size_t>((length + 15) / 16)),
        k(pages_.size() * 16 * kDim),
        v(k.size()),
        q(kDim),
        out(kDim),
        scores(static_cast<std::size_t>(length)),
        list_pages((scores.size() + sdk::kListPage - 1) / sdk::kListPage),
        lists(list_pages.size() * kStride),
        output_(kDim),
        contribution_(kDim),
        keys_(scores.size()),
        scratch_(scores.size()) {
    std::iota(pages_.begin(), pages_.end(), 0);
    std::iota(list_pages.rbegin(), list_pages.rend(), 0);  // the first ranks are on the last page
  }

  /// Entry `rank` of the list.
  std::int32_t& selected(std::int32_t rank) {
    return lists[static_cast<std::size_t>(list_pages[static_cast<std::size_t>(rank / sdk::kListPage)]) * kStride +
                 static_cast<std::size_t>(rank % sdk::kListPage)];
  }
  /// The row's place from now on, within the room of the first length.
  void set_length(std::int32_t length) { length_ = length; }
  void capture(const Kernels& kernels, double retention) { run(kernels.capture, retained_count(length_, retention)); }
  void consume(const Kernels& kernels) { run(kernels.consume, 0); }
  void set_value(std::int32_t position, float value) {
    std::fill_n(v.begin() + position * kDim, kDim, value);  // pages are in order: position after position
  }

 private:
  void run(ItemFunction function, std::int32_t retained) {
    const std::int32_t position = length_ - 1, zero = 0;
    const sdk::Slice slice{0, 1, position, 0, 0, static_cast<std::int32_t>(pages_.size())};
    sdk::SparseArgs args{};
    args.q = {q.data(), sdk::DType::f32, 1, kDim, kDim};
    args.out = {out.data(), sdk::DType::f32, 1, kDim, kDim};
    args.kv = {k.data(), v.data(), sdk::DType::f32, slice.num_pages, 1, 1, kDim};
    args.rows = {1, 1, &zero, &position, &zero, &slice, pages_.data(), slice.num_pages, nullptr, 0};
    args.scores = scores.data();
    args.scores_stride = length_;
    const sdk::AttentionShape shape{1, 1, 1, kDim, 1.0f, sdk::DType::f32};
    function({&args,
              &shape,
              0,
              0,
              retained,
              {&count, &mass, output_.data(), contribution_.data(), {lists.data(), list_pages.data(), kStride}},
              {keys_.data(), scratch_.data()}});
  }

  std::int32_t length_;
  std::vector<std::int32_t> pages_;

 public:
  std::vector<float> k, v, q, out, scores;
  std::vector<std::int32_t> list_pages, lists;
  std::int32_t count = 0;
  float mass = 0;

 private:
  std::vector<float> output_, contribution_;
  std::vector<std::uint64_t> keys_;
  std::vector<float> scratch_;
};

}  // namespace tessera_loop
