// sink_window and page_topk: which pages a row attends to, worked by hand. The plugins are loaded as the engine does.
#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "registry/registry.h"
#include "tessera/sdk/backend.h"
#include "tessera/sdk/sparse_decode.h"

using namespace tessera;

namespace {

constexpr std::int32_t kPages = 8, kDim = 2;
using Pages = std::vector<std::int32_t>;

Registry& registry() {
  static Registry plugins({TESSERA_BINARY_DIR "/plugins"});
  return plugins;
}

/// One sequence of 8 pages (page i of it is page 7 - i of the pool), one layer, one KV head of two components; its last
/// position is decoded with two query heads.
class Bench {
 public:
  Bench(const char* name, std::vector<PluginOption> options) : k_(kPages * sdk::kPageSize * kDim), q_(2 * kDim) {
    auto backend =
        registry().create<sdk::Backend>({.name = "cpu", .path = {}, .options = {}, .where = {}}, sdk::Device::any);
    REQUIRE(backend.ok());
    backend_ = std::move(*backend);
    const sdk::StepLimits limits{16, 1, 1, kPages * sdk::kPageSize, kPages};
    REQUIRE(backend_->bind(limits).ok());
    auto sparse = registry().create<sdk::SparseDecode>(
        {.name = name, .path = {}, .options = std::move(options), .where = {}}, sdk::Device::cpu);
    REQUIRE_MESSAGE(sparse.ok(), sparse.status().message);
    sparse_ = std::move(*sparse);
    REQUIRE(sparse_->style() == sdk::SparseStyle::tables);
    std::size_t bytes = 0;
    REQUIRE(sparse_->bind({1, 2, 1, kDim, 1.0f, sdk::DType::f32}, limits, {}, backend_->context(), bytes).ok());
    workspace_.resize(bytes + 1);
    kv_ = {k_.data(), k_.data(), sdk::DType::f32, kPages, 1, 1, kDim};
    REQUIRE(sparse_->attach(kv_).ok());
    table_.resize(kPages);
    std::iota(table_.rbegin(), table_.rend(), 0);
  }

  void set_key(std::int32_t position, float a, float b) {
    float* key =
        &k_[static_cast<std::size_t>(kv_.offset(table_[static_cast<std::size_t>(position / 16)], 0, position % 16, 0))];
    key[0] = a, key[1] = b;
  }
  void set_queries(std::vector<float> q) { q_ = std::move(q); }

  /// The rows [first, first + rows) have been written.
  void append(std::int32_t first, std::int32_t rows) {
    Pages positions(static_cast<std::size_t>(rows)), slices(positions.size(), 0);
    std::iota(positions.begin(), positions.end(), first);
    const sdk::Slice slice{0, rows, first, 0, 0, kPages};
    sdk::TableArgs args{{}, kv_, 0, {}, nullptr, nullptr, workspace_.data()};
    args.rows.num_rows = rows, args.rows.num_slices = 1, args.rows.positions = positions.data();
    args.rows.row_slice = slices.data(), args.rows.slices = &slice, args.rows.pages = table_.data();
    REQUIRE(sparse_->appended(args, backend_->context()).ok());
  }

  /// Entries of the sequence's table that the row at `position` attends to.
  Pages select(std::int32_t position) {
    const std::int32_t zero = 0, count = sparse_->pages_kept(position);
    const sdk::Slice all{0, 1, position, 0, 0, position / 16 + 1}, kept{0, 1, 0, 0, 0, count};
    Pages pages(static_cast<std::size_t>(count), -1);
    sdk::TableArgs args{
        {q_.data(), sdk::DType::f32, 1, 2 * kDim, 2 * kDim}, kv_, 0, {}, &kept, pages.data(), workspace_.data()};
    args.rows.num_rows = args.rows.num_slices = 1, args.rows.positions = &position, args.rows.row_slice = &zero;
    args.rows.slices = &all, args.rows.pages = table_.data(), args.rows.num_pages = kPages;
    REQUIRE(sparse_->plan(sdk::RowMode::select, args.rows).ok());
    REQUIRE(sparse_->select(args, backend_->context()).ok());
    for (std::int32_t& page : pages) page = kPages - 1 - page;
    return pages;
  }

 private:
  PluginPtr<sdk::Backend> backend_;
  PluginPtr<sdk::SparseDecode> sparse_;
  std::vector<float> k_, q_;
  std::vector<std::byte> workspace_;
  Pages table_;
  sdk::KvView kv_{};
};

}  // namespace

TEST_CASE("sink_window keeps the first pages and those of the window, and every position of both") {
  Bench bench("sink_window", {{"sink", "20", {}}, {"window", "17", {}}});
  CHECK(bench.select(3) == Pages{0});
  CHECK(bench.select(79) == Pages{0, 1, 2, 3, 4});   // 2 + 3 pages: all
  CHECK(bench.select(127) == Pages{0, 1, 5, 6, 7});  // positions 0..19 and 111..127 among them
  CHECK(bench.select(112) == Pages{0, 1, 5, 6, 7});  // 96..112
  Bench windowed("sink_window", {{"sink", "0", {}}, {"window", "16", {}}});
  CHECK(windowed.select(127) == Pages{6, 7});
}

TEST_CASE("page_topk keeps the first page, the last, and those whose keys can match best") {
  Bench bench("page_topk", {{"budget", "64", {}}});  // 4 pages
  bench.set_queries({1, 0, 0, -1});
  bench.set_key(2 * 16 + 5, 3, 0);    // head 0 finds page 2
  bench.set_key(5 * 16 + 15, 0, -4);  // head 1 finds page 5
  bench.set_key(3 * 16, -9, 9);       // nobody looks there
  bench.append(0, 128);
  CHECK(bench.select(127) == Pages{0, 2, 5, 7});
  CHECK(bench.select(63) == Pages{0, 1, 2, 3});
  CHECK(bench.select(80) == Pages{0, 1, 2, 5});  // page 5 is its last one; page 1 is the earliest of the rest
  bench.set_queries({-1, 0, 0, 0});
  CHECK(bench.select(127) == Pages{0, 1, 3, 7});  // page 3 now; the earliest of those with nothing
}

TEST_CASE("page_topk bounds a page by the least and largest components of its keys, not by a key") {
  Bench bench("page_topk", {{"budget", "48", {}}});  // 3 pages
  bench.set_queries({1, 1, 0, 0});
  bench.set_key(1 * 16, 3, 0), bench.set_key(1 * 16 + 1, 0, 3);  // bound 6, no key above 3
  bench.set_key(2 * 16, 2, 3);                                   // bound 5
  bench.append(0, 128);
  CHECK(bench.select(127) == Pages{0, 1, 7});
}

TEST_CASE("page_topk follows what is written, and forgets what was there before") {
  Bench bench("page_topk", {{"budget", "48", {}}});
  bench.set_queries({1, 0, 1, 0});
  bench.set_key(4 * 16 + 2, 8, 0);
  bench.append(0, 128);
  CHECK(bench.select(127) == Pages{0, 4, 7});
  bench.set_key(4 * 16 + 2, 0, 0);  // another sequence has the page now
  bench.set_key(2 * 16 + 1, 5, 0);
  bench.append(0, 40);  // a prompt whose chunks end within pages
  bench.append(40, 88);
  CHECK(bench.select(127) == Pages{0, 2, 7});
}
