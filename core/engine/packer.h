// A planned step as the arrays that plugins see. Private to core/engine.
#pragma once
#include <cstdint>
#include <vector>

#include "model/decoder.h"
#include "sched/scheduler.h"
#include "tessera/sdk/batch.h"
#include "tessera/sdk/sparse_decode.h"

namespace tessera {

/// Keeps its arrays from one step to the next, to reuse their memory.
class StepPacker {
 public:
  /// `sparse`, which outlives the packer, is null where all rows are dense.
  StepPacker(std::int32_t loops, const sdk::StepLimits& limits, const sdk::SparseDecode* sparse)
      : loops_(loops), limits_(limits), sparse_(sparse) {}

  /// Host pointers, valid until the next call. With `every_row` all rows answer.
  sdk::PackedRows pack(const StepPlan& plan, bool every_row);

  // Of the step packed last.
  const std::vector<RowGroup>& groups() const { return groups_; }
  /// The plan's slices as packed: modes apart.
  const std::vector<std::size_t>& order() const { return order_; }

 private:
  void order_slices(const StepPlan& plan);
  void pack_slice(const PlanSlice& slice, bool every_row);
  void pack_reference(const RowReference& reference, std::int32_t position);
  /// Selecting rows once more, each with room for its kept pages.
  void pack_kept();

  std::int32_t loops_;
  sdk::StepLimits limits_;
  const sdk::SparseDecode* sparse_;
  std::vector<std::int32_t> tokens_, positions_, row_slice_, pages_, logit_rows_, states_, references_, list_first_,
      list_pages_;
  std::vector<std::size_t> order_;
  std::vector<RowGroup> groups_;
  std::vector<sdk::Slice> slices_;
};

}  // namespace tessera
