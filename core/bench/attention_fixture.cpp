#include "bench/attention_fixture.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <numeric>

#include "base/check.h"
#include "base/random.h"
#include "base/sha256.h"
#include "bench/noise.h"
#include "cache/kv_pool.h"

namespace tessera {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kFinite = 977.0f;                 // large: a row that sees it shows it
constexpr std::uint32_t kUnwritten = 0x7fc5a5a5;  // a NaN that no arithmetic makes

std::int32_t pages_for(std::int32_t positions) { return (positions + sdk::kPageSize - 1) / sdk::kPageSize; }

std::vector<std::int32_t> shuffled(std::int32_t count, std::uint64_t seed) {
  std::vector<std::int32_t> ids(static_cast<std::size_t>(count));
  std::iota(ids.begin(), ids.end(), 0);
  Random random(seed, 7);
  for (std::size_t i = ids.size(); i > 1; --i) std::swap(ids[i - 1], ids[random.below(static_cast<std::uint32_t>(i))]);
  return ids;
}

}  // namespace

Result<std::unique_ptr<AttentionFixture>> AttentionFixture::open(const PluginConfig& backend, Registry& registry,
                                                                 const AttentionGeometry& geometry,
                                                                 const FixtureLimits& limits) {
  std::unique_ptr<AttentionFixture> fixture(new AttentionFixture(geometry));
  auto made = registry.create<sdk::Backend>(backend, sdk::Device::any);
  if (!made.ok()) return made.status();
  fixture->backend_ = std::move(*made);
  const std::int32_t table = pages_for(limits.max_context) + 1;
  fixture->limits_ = {limits.max_rows, limits.max_slices, limits.max_slices, limits.max_context,
                      table * limits.max_slices};
  fixture->limits_.max_list_pages = limits.max_rows * limits.list_pages;
  fixture->list_pages_ = shuffled(fixture->limits_.max_list_pages, 1);
  TESSERA_TRY(fixture->backend_->bind(fixture->limits_));
  // A quarter more than can be listed, so that unlisted pages lie between listed ones.
  const std::int64_t pages = limits.max_pages + limits.max_pages / 4 + 8;
  const KvShape shape{geometry.layers, geometry.kv_heads, geometry.head_dim, sdk::DType::f32};
  std::size_t total = 0, free = 0;
  TESSERA_TRY(fixture->backend_->memory(&total, &free));
  if (page_bytes(shape) * pages > static_cast<std::int64_t>(free / 10 * 8))
    return fail(Code::resource_exhausted, "{} MiB of pages do not fit in the {} MiB that are free",
                (page_bytes(shape) * pages) >> 20, free >> 20);
  auto kv = allocate_kv(fixture->backend(), shape, static_cast<std::int32_t>(pages));
  if (!kv.ok()) return kv.status();
  fixture->kv_ = *kv;
  const auto elements = static_cast<std::size_t>(limits.max_rows * fixture->stride_);
  TESSERA_TRY(fixture->backend_->allocate(elements * sizeof(float), &fixture->q_));
  TESSERA_TRY(fixture->backend_->allocate((elements + 2 * kGuard) * sizeof(float), &fixture->out_));
  fixture->unwritten_image_.assign(elements + 2 * kGuard, std::bit_cast<float>(kUnwritten));
  TESSERA_TRY(fixture->fill_pool(kFinite));
  return fixture;
}

Status AttentionFixture::bind(sdk::Attention& attention) {
  std::size_t bytes = 0;
  TESSERA_TRY(attention.bind(geometry_.shape(), limits_, backend_->context(), bytes));
  shares_[&attention] = bytes;
  return share_workspace(bytes);
}

Status AttentionFixture::bind(sdk::SparseDecode& sparse) {
  std::size_t bytes = 0;
  check(sparse.list_pages(limits_.max_context - 1) * limits_.max_rows <= limits_.max_list_pages,
        "{} list pages do not hold what {} rows may keep", limits_.max_list_pages, limits_.max_rows);
  const sdk::ReferenceRoom room{limits_.max_rows, limits_.max_list_pages};
  TESSERA_TRY(sparse.bind(geometry_.shape(), limits_, room, backend_->context(), bytes));
  TESSERA_TRY(claim_scores());
  return share_workspace(bytes);
}

Status AttentionFixture::share_workspace(std::size_t bytes) {
  if (bytes <= workspace_bytes_) return {};
  workspace_bytes_ = bytes;
  return backend_->allocate(bytes + kWorkspaceGuard, &workspace_);
}

Status AttentionFixture::fill_pool(float value) {
  const auto total = static_cast<std::size_t>(kv_.offset(kv_.num_pages, 0, 0, 0));
  return fill_pool_with(std::vector<float>(std::min<std::size_t>(total, 1 << 20), value));
}

Status AttentionFixture::fill_noise(std::uint64_t seed) { return fill_pool_with(noise(seed)); }

Status AttentionFixture::fill_pool_with(std::span<const float> block) {
  const auto total = static_cast<std::size_t>(kv_.offset(kv_.num_pages, 0, 0, 0));
  for (std::size_t begin = 0; begin < total; begin += block.size()) {
    const std::size_t bytes = std::min(block.size(), total - begin) * sizeof(float);
    TESSERA_TRY(backend_->upload(static_cast<float*>(kv_.k) + begin, block.data(), bytes));
    TESSERA_TRY(backend_->upload(static_cast<float*>(kv_.v) + begin, block.data(), bytes));
  }
  return {};
}

void AttentionFixture::deal_pages(std::span<const std::int32_t> lengths, std::uint64_t page_seed) {
  const std::vector<std::int32_t> ids = shuffled(kv_.num_pages, page_seed);
  std::size_t next = 0;
  tables_.clear();
  for (const std::int32_t length : lengths) {
    const auto count = static_cast<std::size_t>(pages_for(length)) + 1;
    check(next + count <= ids.size(), "{} pages do not hold the data", ids.size());
    const auto first = ids.begin() + static_cast<std::ptrdiff_t>(next);
    tables_.emplace_back(first, first + static_cast<std::ptrdiff_t>(count));
    next += count;
  }
}

Status AttentionFixture::write_pages(const AttentionData& data, float past_the_end) {
  const auto width = static_cast<std::size_t>(geometry_.kv_width());
  std::vector<float> page(width * sdk::kPageSize);
  for (std::size_t s = 0; s < data.sequences.size(); ++s) {
    const SequenceData& sequence = data.sequences[s];
    for (std::size_t block = 0; block < tables_[s].size(); ++block) {
      const auto first = std::min(block * sdk::kPageSize, static_cast<std::size_t>(sequence.end()));
      const auto count = std::min<std::size_t>(sdk::kPageSize, static_cast<std::size_t>(sequence.end()) - first);
      const std::int64_t offset = kv_.offset(tables_[s][block], geometry_.layer, 0, 0);
      for (const auto& [side, values] : {std::pair(kv_.k, &sequence.k), std::pair(kv_.v, &sequence.v)}) {
        std::fill(page.begin(), page.end(), past_the_end);
        std::copy_n(values->data() + first * width, count * width, page.begin());
        TESSERA_TRY(backend_->upload(static_cast<float*>(side) + offset, page.data(), page.size() * sizeof(float)));
      }
    }
  }
  return {};
}

Status AttentionFixture::place(const AttentionData& data, std::uint64_t page_seed, Unlisted unlisted) {
  const bool poison = unlisted == Unlisted::poison;
  if (poison || pool_poisoned_) TESSERA_TRY(fill_pool(poison ? kNan : kFinite));
  pool_poisoned_ = poison;
  std::vector<std::int32_t> lengths;
  for (const SequenceData& sequence : data.sequences) lengths.push_back(sequence.end());
  deal_pages(lengths, page_seed);
  return write_pages(data, poison ? kNan : kFinite);
}

Status AttentionFixture::begin(std::span<const Part> parts) {
  tokens_.clear(), positions_.clear(), row_slice_.clear(), pages_.clear(), slices_.clear();
  for (const Part& part : parts) {
    const auto& table = tables_[static_cast<std::size_t>(part.sequence)];
    const auto index = static_cast<std::int32_t>(slices_.size());
    slices_.push_back({static_cast<std::int32_t>(positions_.size()), part.length, part.start, 0,
                       static_cast<std::int32_t>(pages_.size()), static_cast<std::int32_t>(table.size())});
    pages_.insert(pages_.end(), table.begin(), table.end());
    for (std::int32_t i = 0; i < part.length; ++i) {
      positions_.push_back(part.start + i);
      row_slice_.push_back(index);
    }
  }
  tokens_.assign(positions_.size(), 0);
  logit_rows_.assign(1, 0);
  references_.resize(positions_.size());
  std::iota(references_.begin(), references_.end(), 0);
  list_first_.resize(positions_.size());
  for (std::size_t row = 0; row < list_first_.size(); ++row)
    list_first_[row] = static_cast<std::int32_t>(row) * (limits_.max_list_pages / limits_.max_rows);
  host_rows_ = {static_cast<std::int32_t>(positions_.size()),
                static_cast<std::int32_t>(slices_.size()),
                tokens_.data(),
                positions_.data(),
                row_slice_.data(),
                slices_.data(),
                pages_.data(),
                static_cast<std::int32_t>(pages_.size()),
                logit_rows_.data(),
                0,
                nullptr,
                references_.data(),
                list_pages_.data(),
                list_first_.data(),
                limits_.max_list_pages};
  check(host_rows_.num_rows <= limits_.max_rows && host_rows_.num_slices <= limits_.max_slices &&
            host_rows_.num_pages <= limits_.max_pages,
        "a call of {} rows, {} slices, {} pages exceeds the fixture", host_rows_.num_rows, host_rows_.num_slices,
        host_rows_.num_pages);
  TESSERA_TRY(backend_->upload(q_, q_image_.data(), q_image_.size() * sizeof(float)));
  return backend_->begin_step(host_rows_, &device_rows_);
}

Status AttentionFixture::pack(const AttentionData& data, std::span<const Part> parts) {
  const auto width = static_cast<std::size_t>(geometry_.q_width());
  q_image_.clear();
  for (const Part& part : parts) {
    const SequenceData& sequence = data.sequences[static_cast<std::size_t>(part.sequence)];
    const float* row = sequence.q.data() + static_cast<std::size_t>(part.start - sequence.start) * width;
    for (std::int32_t i = 0; i < part.length; ++i, row += width) {
      q_image_.insert(q_image_.end(), row, row + width);
      q_image_.insert(q_image_.end(), kGap, kNan);
    }
  }
  return begin(parts);
}

Status AttentionFixture::pack_anything(std::span<const Part> parts) {
  std::int64_t rows = 0;
  for (const Part& part : parts) rows += part.length;
  q_image_ = noise(1, static_cast<std::size_t>(rows * stride_));
  return begin(parts);
}

Status AttentionFixture::enqueue(sdk::Attention& attention, float* scores) {
  const sdk::AttentionArgs args{rows_at(q_),  rows_at(static_cast<float*>(out_) + kGuard),
                                kv_,          geometry_.layer,
                                device_rows_, workspace_,
                                scores,       limits_.max_context};
  return attention.run(args, backend_->context());
}

sdk::Matrix AttentionFixture::rows_at(void* data) const {
  return {data, sdk::DType::f32, host_rows_.num_rows, geometry_.q_width(), stride_};
}

sdk::SparseArgs AttentionFixture::sparse_args() const {
  return {rows_at(q_),
          rows_at(static_cast<float*>(out_) + kGuard),
          kv_,
          geometry_.layer,
          device_rows_,
          workspace_,
          static_cast<float*>(scores_),
          limits_.max_context,
          static_cast<float*>(masses_)};
}

Status AttentionFixture::plan(sdk::SparseDecode& sparse) {
  TESSERA_TRY(sparse.plan(sdk::RowMode::capture, host_rows_));
  return sparse.plan(sdk::RowMode::consume, host_rows_);
}

Status AttentionFixture::enqueue_capture(sdk::Attention& attention, sdk::SparseDecode& sparse) {
  TESSERA_TRY(enqueue(attention, static_cast<float*>(scores_)));
  return sparse.capture(sparse_args(), backend_->context());
}

Status AttentionFixture::enqueue_consume(sdk::SparseDecode& sparse) {
  return sparse.consume(sparse_args(), backend_->context());
}

Status AttentionFixture::claim_scores() {
  if (scores_ != nullptr) return {};
  const auto pairs = static_cast<std::size_t>(limits_.max_rows) * static_cast<std::size_t>(geometry_.q_heads);
  TESSERA_TRY(backend_->allocate(pairs * sizeof(float), &masses_));
  return backend_->allocate(pairs * static_cast<std::size_t>(limits_.max_context) * sizeof(float), &scores_);
}

Result<std::vector<float>> AttentionFixture::masses() {
  std::vector<float> masses(static_cast<std::size_t>(host_rows_.num_rows) *
                            static_cast<std::size_t>(geometry_.q_heads));
  TESSERA_TRY(backend_->download(masses.data(), masses_, masses.size() * sizeof(float)));
  return masses;
}

Status AttentionFixture::wait() {
  float first = 0;
  return backend_->download(&first, out_, sizeof first);
}

Status AttentionFixture::run(sdk::Attention& attention, AttentionOutput& out) {
  out = {std::move(out.values), 0, 0};
  out.values.clear();
  const auto elements = static_cast<std::size_t>(host_rows_.num_rows * stride_ + 2 * kGuard);
  TESSERA_TRY(backend_->upload(out_, unwritten_image_.data(), elements * sizeof(float)));
  TESSERA_TRY(plan(attention));
  TESSERA_TRY(enqueue(attention));
  out_image_.resize(elements);
  TESSERA_TRY(backend_->download(out_image_.data(), out_, elements * sizeof(float)));
  inspect(out);
  return {};
}

Status AttentionFixture::run_scores(sdk::Attention& attention, std::vector<float>& scores, float untouched) {
  const auto context = static_cast<std::size_t>(limits_.max_context);
  const std::size_t a_row = static_cast<std::size_t>(geometry_.q_heads) * context;
  TESSERA_TRY(claim_scores());
  scores.assign(static_cast<std::size_t>(host_rows_.num_rows) * a_row, untouched);
  TESSERA_TRY(backend_->upload(scores_, scores.data(), scores.size() * sizeof(float)));
  TESSERA_TRY(plan(attention));
  TESSERA_TRY(enqueue(attention, static_cast<float*>(scores_)));
  return backend_->download(scores.data(), scores_, scores.size() * sizeof(float));
}

Result<std::map<std::string, std::string>> AttentionFixture::input_hashes(const sdk::Attention& attention) {
  const auto pool = static_cast<std::size_t>(kv_.offset(kv_.num_pages, 0, 0, 0)) * sizeof(float);
  const std::size_t share = shares_.at(&attention);
  const auto* behind = static_cast<const std::byte*>(workspace_) + share;
  const struct {
    const char* name;
    const void* data;
    std::size_t bytes;
  } inputs[] = {
      {"the queries", q_, q_image_.size() * sizeof(float)},
      {"keys in the KV pool", kv_.k, pool},
      {"values in the KV pool", kv_.v, pool},
      {"memory behind its workspace", behind, workspace_ == nullptr ? 0 : workspace_bytes_ + kWorkspaceGuard - share}};
  std::map<std::string, std::string> hashes;
  for (const auto& input : inputs) {
    std::vector<std::byte> bytes(input.bytes);
    if (!bytes.empty()) TESSERA_TRY(backend_->download(bytes.data(), input.data, bytes.size()));
    hashes[input.name] = to_hex(Sha256().add(bytes).finish());
  }
  return hashes;
}

void AttentionFixture::inspect(AttentionOutput& out) {
  const auto width = static_cast<std::size_t>(geometry_.q_width());
  const auto rows = static_cast<std::size_t>(host_rows_.num_rows);
  const auto left_alone = [](const float* begin, std::size_t count) {
    std::int64_t same = 0;
    for (std::size_t i = 0; i < count; ++i) same += std::bit_cast<std::uint32_t>(begin[i]) == kUnwritten ? 1 : 0;
    return same;
  };
  out.values.resize(rows * width);
  out.unwritten = 0;
  out.stray = kGuard - left_alone(out_image_.data(), kGuard);
  for (std::size_t row = 0; row < rows; ++row) {
    const float* begin = out_image_.data() + kGuard + row * static_cast<std::size_t>(stride_);
    std::memcpy(&out.values[row * width], begin, width * sizeof(float));
    out.unwritten += left_alone(begin, width);
    out.stray += kGap - left_alone(begin + width, kGap);
  }
  const float* after = out_image_.data() + kGuard + rows * static_cast<std::size_t>(stride_);
  out.stray += kGuard - left_alone(after, kGuard);
}

}  // namespace tessera
