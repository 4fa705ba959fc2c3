// Loop-referenced sparse decoding: loop 2 of a decoded row remembers which positions mattered and what they gave; loops
// 3 and on exchange only their part. O = O_ref - C_ref + m * C_new.
#include <algorithm>
#include <atomic>
#include <memory>

#include "reference.h"
#include "retention.h"
#include "tessera/sdk/host.h"
#include "tessera/sdk/register.h"

namespace tessera_loop {

namespace sdk = tessera::sdk;
using sdk::Status;

class LoopReference final : public LoopReferenceBase {
 public:
  LoopReference(sdk::Host& host, Status& status) : LoopReferenceBase(host, status) {}
  virtual ~LoopReference() = default;

  Status bind(const sdk::AttentionShape& shape, const sdk::StepLimits& limits, const sdk::ReferenceRoom& room,
              const sdk::DeviceContext& device, std::size_t& workspace_bytes) noexcept override;
  Status capture(const sdk::SparseArgs& args, const sdk::DeviceContext& device) noexcept override {
    return for_each_item(args, device, kernels_.capture);
  }
  Status consume(const sdk::SparseArgs& args, const sdk::DeviceContext& device) noexcept override {
    return for_each_item(args, device, kernels_.consume);
  }

 private:
  Status for_each_item(const sdk::SparseArgs& args, const sdk::DeviceContext& device, ItemFunction function) noexcept;
  Reference reference_of(const sdk::SparseArgs& args, std::int32_t row, std::int32_t head) const;

  std::int64_t context_ = 0;  // positions of a history at most
  Kernels kernels_{};
  std::unique_ptr<std::int32_t[]> counts_;                     // [slot][layer][head]
  std::unique_ptr<float[]> masses_, outputs_, contributions_;  // likewise; the last two have head_dim floats each
  std::unique_ptr<std::int32_t[]> lists_;                      // [list page][layer][head][kListPage]
};

Status LoopReference::bind(const sdk::AttentionShape& shape, const sdk::StepLimits& limits,
                           const sdk::ReferenceRoom& room, const sdk::DeviceContext& device,
                           std::size_t& workspace_bytes) noexcept {
  return sdk::guarded([&]() -> Status {
    if (Status status = accept(shape, limits, room); !status.ok()) return status;
    context_ = limits.max_context;
    kernels_ = device.isa == sdk::CpuIsa::avx512 ? avx512::kKernels
               : device.isa == sdk::CpuIsa::avx2 ? avx2::kKernels
                                                 : scalar::kKernels;
    const std::size_t vectors = heads_ * static_cast<std::size_t>(shape.head_dim);
    counts_ = std::make_unique<std::int32_t[]>(heads_);
    lists_ = std::make_unique<std::int32_t[]>(list_entries_);
    masses_ = std::make_unique<float[]>(heads_);
    outputs_ = std::make_unique<float[]>(vectors);
    contributions_ = std::make_unique<float[]>(vectors);
    workspace_bytes = static_cast<std::size_t>(device.executor->width()) * static_cast<std::size_t>(context_) *
                      (sizeof(std::uint64_t) + sizeof(float));
    return {};
  });
}

Reference LoopReference::reference_of(const sdk::SparseArgs& args, std::int32_t row, std::int32_t head) const {
  const std::int64_t place = std::int64_t{args.layer} * shape_.num_q_heads + head;  // of a slot's, and a page's
  const std::int64_t each = std::int64_t{shape_.num_layers} * shape_.num_q_heads;
  const std::int64_t index = args.rows.references[row] * each + place;
  return {
      &counts_[static_cast<std::size_t>(index)],
      &masses_[static_cast<std::size_t>(index)],
      outputs_.get() + index * shape_.head_dim,
      contributions_.get() + index * shape_.head_dim,
      {lists_.get() + place * sdk::kListPage, args.rows.list_pages + args.rows.list_first[row], each * sdk::kListPage}};
}

Status LoopReference::for_each_item(const sdk::SparseArgs& args, const sdk::DeviceContext& device,
                                    ItemFunction function) noexcept {
  const std::int64_t items = static_cast<std::int64_t>(args.rows.num_rows) * shape_.num_q_heads;
  const std::int64_t width = device.executor->width();
  std::atomic<std::int64_t> next{0};
  // One task a worker, each with its own scratch; they share the (row, head) pairs.
  sdk::parallel_for(*device.executor, std::min(width, items), [&](std::int64_t worker) {
    auto* keys = static_cast<std::uint64_t*>(args.workspace) + worker * context_;
    float* scores =
        reinterpret_cast<float*>(static_cast<std::uint64_t*>(args.workspace) + width * context_) + worker * context_;
    for (std::int64_t i = next++; i < items; i = next++) {
      const auto row = static_cast<std::int32_t>(i / shape_.num_q_heads);
      const auto head = static_cast<std::int32_t>(i % shape_.num_q_heads);
      function({&args,
                &shape_,
                row,
                head,
                retained_count(args.rows.positions[row] + 1, retention_),
                reference_of(args, row, head),
                {keys, scores}});
    }
  });
  return {};
}

}  // namespace tessera_loop

TESSERA_REGISTER_PLUGIN(tessera::sdk::SparseDecode, tessera_loop::LoopReference, tessera::sdk::Device::cpu,
                        "loop_reference", "0.1.0",
                        tessera::sdk::Traits{
                            tessera::sdk::kBatchInvariant | tessera::sdk::kChunkInvariant | tessera::sdk::kPortableBits,
                            1u << static_cast<unsigned>(tessera::sdk::DType::f32), 32, 1024, ""})
