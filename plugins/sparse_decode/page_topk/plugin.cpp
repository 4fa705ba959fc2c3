// page_topk on a CPU: the plain statement of it.
#include <algorithm>
#include <memory>
#include <vector>

#include "tessera/sdk/register.h"
#include "topk.h"

namespace tessera_pages {

class PageTopk final : public PageTopkBase {
 public:
  PageTopk(sdk::Host& host, sdk::Status& status) : PageTopkBase(host, status) {}
  virtual ~PageTopk() = default;

  sdk::Status attach(const sdk::KvView& kv) noexcept override {
    return sdk::guarded([&]() -> sdk::Status {
      memory_ = std::make_unique<float[]>(bound_bytes(kv) / sizeof(float));
      bounds_ = bounds_for(kv);
      bounds_.values = memory_.get();
      return {};
    });
  }

  sdk::Status appended(const sdk::TableArgs& args, const sdk::DeviceContext& device) noexcept override {
    sdk::parallel_for(*device.executor, args.rows.num_rows, [&](std::int64_t row) {
      if (ends_page(args.rows, static_cast<std::int32_t>(row))) follow(args, static_cast<std::int32_t>(row));
    });
    return {};
  }

  sdk::Status select(const sdk::TableArgs& args, const sdk::DeviceContext& device) noexcept override {
    sdk::parallel_for(*device.executor, args.rows.num_rows,
                      [&](std::int64_t row) { choose(args, static_cast<std::int32_t>(row)); });
    return {};
  }

 private:
  void follow(const sdk::TableArgs& args, std::int32_t row) const {
    const std::int32_t position = args.rows.positions[row], last = position % sdk::kPageSize;
    const std::int32_t page =
        args.rows.pages[args.rows.slices[args.rows.row_slice[row]].first_page + position / sdk::kPageSize];
    const auto* keys = static_cast<const float*>(args.kv.k);
    for (std::int32_t head = 0; head < args.kv.num_kv_heads; ++head) {
      float* bounds = bounds_.of(page, args.layer, head);
      for (std::int32_t d = 0; d < args.kv.head_dim; ++d) {
        float low = keys[args.kv.offset(page, args.layer, 0, head) + d], high = low;
        for (std::int32_t slot = 1; slot <= last; ++slot) {
          const float key = keys[args.kv.offset(page, args.layer, slot, head) + d];
          low = key < low ? key : low;
          high = key > high ? key : high;
        }
        bounds[d] = low;
        bounds[args.kv.head_dim + d] = high;
      }
    }
  }

  /// The best bound over the row's heads; the first and the last page come before all others.
  std::uint64_t key_of(const sdk::TableArgs& args, std::int32_t row, std::int32_t entry, std::int32_t pages) const {
    std::uint32_t key = 0xFFFFFFFFu;
    if (entry > 0 && entry + 1 < pages) {
      const std::int32_t page = args.rows.pages[args.rows.slices[row].first_page + entry];
      const std::int32_t group = shape_.num_q_heads / shape_.num_kv_heads;
      key = 0;
      for (std::int32_t head = 0; head < shape_.num_q_heads; ++head)
        key = std::max(key, sdk::rank_key(bound_of(args.q.f32(row) + head * shape_.head_dim,
                                                   bounds_.of(page, args.layer, head / group), shape_.head_dim)));
    }
    return static_cast<std::uint64_t>(~key) << 32 | static_cast<std::uint32_t>(entry);
  }

  void choose(const sdk::TableArgs& args, std::int32_t row) const {
    const sdk::Slice &all = args.rows.slices[row], &kept = args.kept_slices[row];
    const std::int32_t pages = args.rows.positions[row] / sdk::kPageSize + 1;
    std::vector<std::uint64_t> keys(static_cast<std::size_t>(pages));
    for (std::int32_t entry = 0; entry < pages; ++entry)
      keys[static_cast<std::size_t>(entry)] = key_of(args, row, entry, pages);
    std::sort(keys.begin(), keys.end());
    std::vector<std::int32_t> entries;
    for (std::int32_t i = 0; i < kept.num_pages; ++i)
      entries.push_back(static_cast<std::int32_t>(keys[static_cast<std::size_t>(i)] & 0xFFFFFFFFu));
    std::sort(entries.begin(), entries.end());
    for (std::int32_t i = 0; i < kept.num_pages; ++i)
      args.pages[kept.first_page + i] = args.rows.pages[all.first_page + entries[static_cast<std::size_t>(i)]];
  }

  std::unique_ptr<float[]> memory_;
};

}  // namespace tessera_pages

TESSERA_REGISTER_PLUGIN(tessera::sdk::SparseDecode, tessera_pages::PageTopk, tessera::sdk::Device::cpu, "page_topk",
                        "0.1.0",
                        tessera::sdk::Traits{
                            tessera::sdk::kBatchInvariant | tessera::sdk::kChunkInvariant | tessera::sdk::kPortableBits,
                            1u << static_cast<unsigned>(tessera::sdk::DType::f32), 1, 1024, ""})
