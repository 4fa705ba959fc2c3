#include "engine/packer.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"

namespace tessera {
namespace {

std::int32_t pages_for(std::int32_t positions) { return (positions + sdk::kPageSize - 1) / sdk::kPageSize; }

}  // namespace

void StepPacker::order_slices(const StepPlan& plan) {
  order_.resize(plan.slices.size());
  std::iota(order_.begin(), order_.end(), std::size_t{0});
  std::stable_sort(order_.begin(), order_.end(),
                   [&](std::size_t a, std::size_t b) { return plan.slices[a].mode < plan.slices[b].mode; });
}

sdk::PackedRows StepPacker::pack(const StepPlan& plan, bool every_row) {
  tokens_.clear(), positions_.clear(), row_slice_.clear(), pages_.clear(), logit_rows_.clear(), slices_.clear();
  states_.clear(), references_.clear(), list_first_.clear(), list_pages_.clear(), groups_.clear();
  order_slices(plan);
  for (const std::size_t index : order_) pack_slice(plan.slices[index], every_row);
  check(std::ssize(tokens_) <= limits_.max_rows && std::ssize(pages_) <= limits_.max_pages &&
            std::ssize(list_pages_) <= limits_.max_list_pages,
        "step of {} rows, {} pages, {} list pages exceeds the limits {}, {}, {}", tokens_.size(), pages_.size(),
        list_pages_.size(), limits_.max_rows, limits_.max_pages, limits_.max_list_pages);
  if (!groups_.empty() && groups_.back().mode == sdk::RowMode::select) pack_kept();
  const auto size = [](const auto& list) { return static_cast<std::int32_t>(list.size()); };
  const sdk::PackedRows rows{.num_rows = size(tokens_),
                             .num_slices = size(slices_),
                             .tokens = tokens_.data(),
                             .positions = positions_.data(),
                             .row_slice = row_slice_.data(),
                             .slices = slices_.data(),
                             .pages = pages_.data(),
                             .num_pages = size(pages_),
                             .logit_rows = logit_rows_.data(),
                             .num_logit_rows = size(logit_rows_),
                             .states = loops_ > 1 ? states_.data() : nullptr,
                             .references = sparse_ != nullptr ? references_.data() : nullptr,
                             .list_pages = sparse_ != nullptr ? list_pages_.data() : nullptr,
                             .list_first = sparse_ != nullptr ? list_first_.data() : nullptr,
                             .num_list_pages = size(list_pages_)};
  check(rows.num_logit_rows <= limits_.max_logit_rows, "step of {} logit rows exceeds the limit {}",
        rows.num_logit_rows, limits_.max_logit_rows);
  return rows;
}

void StepPacker::pack_slice(const PlanSlice& slice, bool every_row) {
  const auto first = static_cast<std::int32_t>(tokens_.size());
  const auto rows = static_cast<std::int32_t>(slice.tokens.size());
  if (groups_.empty() || groups_.back().mode != slice.mode)
    groups_.push_back({slice.mode, first, 0, static_cast<std::int32_t>(slices_.size()), 0});
  RowGroup& group = groups_.back();
  const auto blocks = std::ssize(slice.pages) / loops_;
  check(slice.depth >= 0 && slice.depth < loops_ && slice.first_position + rows <= blocks * sdk::kPageSize,
        "a slice at depth {}, positions to {}, with {} pages for {} loops", slice.depth, slice.first_position + rows,
        slice.pages.size(), loops_);
  slices_.push_back({first - group.first_row, rows, slice.first_position, slice.depth,
                     static_cast<std::int32_t>(pages_.size()), static_cast<std::int32_t>(blocks)});
  const auto table = slice.pages.begin() + slice.depth * blocks;
  pages_.insert(pages_.end(), table, table + blocks);
  for (std::int32_t i = 0; i < rows; ++i) {
    const bool answers = slice.last_pass() && i >= rows - slice.num_answers();
    if (every_row || answers || slice.exit) logit_rows_.push_back(first + i);
    tokens_.push_back(slice.tokens[static_cast<std::size_t>(i)]);
    positions_.push_back(slice.first_position + i);
    row_slice_.push_back(group.num_slices);
    states_.push_back(slice.states.empty() ? -1 : slice.states[static_cast<std::size_t>(i)]);
    pack_reference(slice.references.empty() ? RowReference{} : slice.references[static_cast<std::size_t>(i)],
                   slice.first_position + i);
  }
  group.num_rows += rows;
  ++group.num_slices;
}

void StepPacker::pack_reference(const RowReference& reference, std::int32_t position) {
  check(reference.slot < 0 || std::ssize(reference.pages) >= sparse_->list_pages(position),
        "a row at {} has a reference with {} list pages", position, reference.pages.size());
  references_.push_back(reference.slot);
  list_first_.push_back(static_cast<std::int32_t>(list_pages_.size()));
  list_pages_.insert(list_pages_.end(), reference.pages.begin(), reference.pages.end());
}

void StepPacker::pack_kept() {
  RowGroup& group = groups_.back();
  group.first_kept_row = static_cast<std::int32_t>(tokens_.size());
  group.first_kept_slice = static_cast<std::int32_t>(slices_.size());
  for (std::int32_t i = 0; i < group.num_rows; ++i) {
    const std::int32_t position = positions_[static_cast<std::size_t>(group.first_row + i)];
    const std::int32_t pages = sparse_->pages_kept(position), all = pages_for(position + 1);
    check(group.num_slices == group.num_rows && pages >= 1 && pages <= all, "a row at {} selects {} of {} pages",
          position, pages, all);
    const std::int32_t last = (pages - 1) * sdk::kPageSize + position % sdk::kPageSize;
    slices_.push_back({i, 1, last, 0, static_cast<std::int32_t>(pages_.size()), pages});
    pages_.resize(pages_.size() + static_cast<std::size_t>(pages));
    tokens_.push_back(0);
    positions_.push_back(last);
    row_slice_.push_back(i);
    states_.push_back(-1);
    pack_reference({}, last);
  }
}

}  // namespace tessera
