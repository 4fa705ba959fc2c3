// A paged pool, queries and a guarded output on one backend, and any attention plugin run over them.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "bench/attention_data.h"
#include "registry/registry.h"
#include "tessera/sdk/attention.h"
#include "tessera/sdk/backend.h"
#include "tessera/sdk/sparse_decode.h"

namespace tessera {

/// Rows [start, start + length) of one sequence of the data, as one slice of a call.
struct Part {
  std::int32_t sequence;
  std::int32_t start;
  std::int32_t length;
};

struct FixtureLimits {
  std::int32_t max_rows;
  std::int32_t max_slices;
  std::int32_t max_context;
  std::int64_t max_pages;       // of all sequences of the data together
  std::int32_t list_pages = 0;  // of each row that is captured and consumed
};

/// What stands in the pool where no row may look: other layers, unlisted pages, positions past the last row.
enum class Unlisted { finite, poison };

struct AttentionOutput {
  std::vector<float> values;   // [rows][q_width]
  std::int64_t unwritten = 0;  // elements left as they were
  std::int64_t stray = 0;      // elements written between, before or after the rows
};

/// Owns the backend and everything on it; attentions bound to it must be destroyed first. Used by one thread.
///
///   open -> bind... -> (place -> pack -> run...)*
class AttentionFixture {
 public:
  static Result<std::unique_ptr<AttentionFixture>> open(const PluginConfig& backend, Registry& registry,
                                                        const AttentionGeometry& geometry, const FixtureLimits& limits);

  sdk::Backend& backend() { return *backend_.get(); }
  std::uint64_t capabilities() const { return backend_.descriptor().traits.capabilities; }
  sdk::Device device() { return backend_->context().device; }

  /// All attentions of a fixture share one workspace, as large as the largest wish.
  Status bind(sdk::Attention& attention);
  /// With a reference slot for each row of a call, and its list pages in any order.
  Status bind(sdk::SparseDecode& sparse);
  /// Puts the keys and values on pages that `page_seed` chooses. One page more than needed ends every table.
  Status place(const AttentionData& data, std::uint64_t page_seed, Unlisted unlisted);
  /// Only page tables for sequences of these lengths: timings do not need values (benchmarks).
  void place_anything(std::span<const std::int32_t> lengths) { deal_pages(lengths, 1); }
  /// The next call: queries of these rows, and the step's metadata.
  Status pack(const AttentionData& data, std::span<const Part> parts);
  /// The same with random queries.
  Status pack_anything(std::span<const Part> parts);
  /// Poisons the output, runs once, downloads.
  Status run(sdk::Attention& attention, AttentionOutput& out);

  /// One run that also writes its scores [rows][q_heads][max_context], `untouched` where it wrote none.
  Status run_scores(sdk::Attention& attention, std::vector<float>& scores, float untouched);
  /// Hashes of what a bound attention must not change, by name: queries, keys, values, and what lies behind its share
  /// of the workspace.
  Result<std::map<std::string, std::string>> input_hashes(const sdk::Attention& attention);

  /// For timing: plan, then any number of runs, then a wait.
  Status plan(sdk::Attention& attention) { return attention.plan(host_rows_); }
  Status enqueue(sdk::Attention& attention, float* scores = nullptr);
  Status wait();
  /// Random keys and values everywhere (benchmarks whose speed depends on them).
  Status fill_noise(std::uint64_t seed);
  /// The packed rows, one a slice, captured and consumed. Attention is planned beside them.
  Status plan(sdk::SparseDecode& sparse);
  Status enqueue_capture(sdk::Attention& attention, sdk::SparseDecode& sparse);
  Status enqueue_consume(sdk::SparseDecode& sparse);
  /// Of the rows captured last, [row][query head]: the attention that their selections kept.
  Result<std::vector<float>> masses();

  const sdk::PackedRows& rows() const { return host_rows_; }
  const sdk::StepLimits& limits() const { return limits_; }

 private:
  explicit AttentionFixture(const AttentionGeometry& geometry)
      : geometry_(geometry), stride_(geometry.q_width() + kGap) {}
  static constexpr std::int32_t kGap = 32;              // elements between two rows
  static constexpr std::int64_t kGuard = 1024;          // elements before the first and after the last row
  static constexpr std::size_t kWorkspaceGuard = 4096;  // bytes after it

  Status fill_pool(float value);
  Status fill_pool_with(std::span<const float> block);
  Status share_workspace(std::size_t bytes);
  Status claim_scores();
  sdk::Matrix rows_at(void* data) const;
  sdk::SparseArgs sparse_args() const;
  Status write_pages(const AttentionData& data, float past_the_end);
  void deal_pages(std::span<const std::int32_t> lengths, std::uint64_t page_seed);
  Status begin(std::span<const Part> parts);
  void inspect(AttentionOutput& out);

  PluginPtr<sdk::Backend> backend_;
  AttentionGeometry geometry_;
  std::int64_t stride_;
  sdk::StepLimits limits_{};
  sdk::KvView kv_{};
  void* q_ = nullptr;
  void* out_ = nullptr;  // guard, rows, guard
  void* workspace_ = nullptr;
  std::size_t workspace_bytes_ = 0;
  std::map<const sdk::Attention*, std::size_t> shares_;  // bytes each wished for
  void* scores_ = nullptr;
  void* masses_ = nullptr;
  bool pool_poisoned_ = false;
  std::vector<std::vector<std::int32_t>> tables_;
  // The call that is packed, and images of the device's buffers.
  std::vector<std::int32_t> tokens_, positions_, row_slice_, pages_, logit_rows_, references_, list_first_, list_pages_;
  std::vector<sdk::Slice> slices_;
  sdk::PackedRows host_rows_{}, device_rows_{};
  std::vector<float> q_image_, unwritten_image_, out_image_;
};

}  // namespace tessera
