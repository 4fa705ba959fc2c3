#include "sched/planner.h"

#include <algorithm>

#include "base/check.h"
#include "sched/look_up.h"

namespace tessera {

Planner::Planner(const SchedulerLimits& limits, const PagePool& pool, const PrefixIndex& index,
                 const Sequences& running, const Sequences& waiting, const std::vector<std::int32_t>& free_states,
                 const ReferenceStore& references)
    : limits_(limits),
      pool_(pool),
      index_(index),
      waiting_(waiting),
      rows_left_(limits.step_tokens),
      shared_rows_(limits.step_tokens - limits.max_batch * limits.round_rows()),
      free_states_(free_states),
      references_(references),
      draw_(references),
      free_pages_(pool.available()),
      cursor_(pool.first_available()) {
  items_.reserve(static_cast<std::size_t>(limits.max_batch));
  for (const auto& sequence : running) {
    Item item{.sequence = sequence.get(), .first = sequence->next(), .tokens = {}, .hits = {}, .grant = {}};
    item.flying = sequence->flight.rounds() > 0;
    item.decode = !item.flying && decodes(*sequence);
    item.between = sequence->pass.rows > 0;
    if (sequence->round.rows > 0) {
      item.role = sequence->round.drafting() ? SliceRole::draft : SliceRole::verify;
      item.tokens = sequence->round.tokens;
      item.round_rows = sequence->round.rows;
    }
    item.held_pages = static_cast<std::int32_t>(sequence->table.size());
    items_.push_back(std::move(item));
    promised_lists_ += most_list_pages(*sequence);
  }
}

StepPlan Planner::run(std::uint64_t number) {
  plan_passes();
  plan_decodes();
  plan_prefills();
  StepPlan plan;
  plan.number = number;
  plan.recall = recall_;
  if (recall_) return plan;
  if (preempted_.empty()) plan_admissions();
  plan.preempted = preempted_;
  for (const Item& item : items_)
    if (item.admitted) plan.admitted.push_back({item.sequence->id, item.hits});
  for (const bool decode : {true, false}) {
    for (const Item& item : items_) {
      if (item.decode == decode) emit(plan, item);
    }
  }
  check(plan.num_rows <= limits_.step_tokens, "a step of {} rows where {} fit", plan.num_rows, limits_.step_tokens);
  return plan;
}

bool Planner::decodes(const Sequence& sequence) const {
  const std::int32_t next = sequence.computed;
  if (!looped()) return next == sequence.size() - 1;
  return next >= sequence.decode_from() && !sequence.decided(next);
}

void Planner::plan_passes() {
  for (Item& item : items_) {
    if (!item.between) continue;
    item.depth = item.sequence->pass.depth;
    take_rows(item, item.sequence->pass.rows);
  }
}

void Planner::plan_decodes() {
  // items_ shrinks from its young end when someone is preempted, possibly the one at `i`.
  for (std::size_t i = 0; i < items_.size() && !recall_; ++i) {
    if (!items_[i].decode || items_[i].between) continue;
    if (items_[i].role == SliceRole::draft) {  // its round has its pages
      take_rows(items_[i], 1);
      continue;
    }
    const std::int32_t pages = blocks_of(items_[i].first + 1) * limits_.depths - items_[i].held_pages;
    make_room(pages, i);
    if (i < items_.size() && !recall_) begin_decode(items_[i], limits_.round_rows());
  }
}

void Planner::begin_decode(Item& item, std::int32_t most) {
  const Sequence& sequence = *item.sequence;
  if (speculates(limits_, sequence.rule) && item.first + 1 == sequence.size()) {
    // Nobody is preempted for candidates, and none is drafted that could not be answered any more.
    const std::int32_t left = sequence.max_tokens - (sequence.size() - sequence.prompt);
    const std::int32_t blocks = (item.held_pages + free_pages_) / limits_.depths;
    item.round_rows = std::min({most, left, blocks * kPageTokens - item.first});
    if (limits_.sparse_decode() && !sequence.sparse(item.first))  // rows of a slice are of one kind
      item.round_rows = std::min(item.round_rows, sequence.sparse_from() - item.first);
    else if (limits_.sparse_tables)  // each row has a table, and so a slice, of its own
      item.round_rows = 1;
    if (limits_.draft_loops == 0) {
      item.tokens = look_up(sequence.tokens, item.round_rows - 1);
      item.round_rows = 1 + static_cast<std::int32_t>(item.tokens.size());
    }
    if (item.round_rows > 1 || (limits_.draft_loops > 0 && sequence.draft_every_row)) {
      item.role = limits_.draft_loops == 0 ? SliceRole::verify : SliceRole::draft;
      item.tokens.insert(item.tokens.begin(), sequence.tokens.back());
    }
  }
  grant_pages(item, std::max(item.round_rows, 1));
  take_rows(item, item.role == SliceRole::verify ? item.round_rows : 1);
}

void Planner::plan_prefills() {
  for (std::size_t i = 0; i < items_.size() && !recall_; ++i) {
    if (items_[i].decode || items_[i].between || items_[i].flying) continue;
    std::int32_t rows = chunk_limit(items_[i]);
    if (rows <= 0) continue;
    make_room(blocks_of(items_[i].first + rows) * limits_.depths - items_[i].held_pages, i + 1);
    Item& item = items_[i];
    const std::int32_t blocks = (item.held_pages + free_pages_) / limits_.depths;
    rows = std::min(rows, blocks * kPageTokens - item.first);
    if (rows > 0) grant_rows(item, rows);
  }
}

void Planner::plan_admissions() {
  for (const Item& item : items_) owed_pages_ += missing_pages(item);
  for (const auto& sequence : waiting_) {
    if (std::ssize(items_) >= limits_.max_batch || rows_left_ <= 0 || !admit(*sequence)) return;
  }
}

/// Its rows decode one at a time, or by rounds, of which several are in flight where the device may draw its tokens.
std::int32_t Planner::most_list_pages(const Sequence& sequence) const {
  const std::int32_t last = sequence.prompt + sequence.max_tokens - 1;
  if (limits_.capture_depth == 0 || !sequence.sparse(last)) return 0;
  const std::int32_t rounds = sequence.flies(limits_) ? limits_.rounds_in_flight : 1;
  return limits_.list_pages_at(last) * (speculates(limits_, sequence.rule) ? limits_.round_rows() * rounds : 1);
}

bool Planner::admit(const Sequence& sequence) {
  const std::int32_t lists = most_list_pages(sequence);
  if (lists > limits_.num_list_pages - promised_lists_) return false;
  Item item{.sequence = &sequence, .tokens = {}, .admitted = true, .hits = usable_hits(sequence), .grant = {}};
  item.held_pages = static_cast<std::int32_t>(item.hits.size());
  item.first = item.held_pages / limits_.depths * kPageTokens;
  item.decode = looped() && item.first >= sequence.decode_from() && !sequence.decided(item.first);

  std::vector<PageId> revived;
  for (const PageId page : item.hits) {
    if (pool_.references(page) == 0 && !revived_.contains(page)) revived.push_back(page);
  }
  // Pages that others were admitted for are not free for this one: admitting it would only preempt it soon.
  const std::int32_t spare = free_pages_ - owed_pages_ - static_cast<std::int32_t>(revived.size());
  if (missing_pages(item) > spare) return false;

  free_pages_ -= static_cast<std::int32_t>(revived.size());
  revived_.insert(revived.begin(), revived.end());
  if (item.decode)  // candidates would take pages that the others were admitted for
    begin_decode(item, 1);
  else
    grant_rows(item, chunk_limit(item));
  owed_pages_ += missing_pages(item);
  promised_lists_ += lists;
  items_.push_back(std::move(item));
  return true;
}

std::vector<PageId> Planner::usable_hits(const Sequence& sequence) const {
  // The last known token is always computed, because its logits are wanted.
  const std::size_t most = std::min(sequence.chain.size(), (sequence.tokens.size() - 1) / kPageTokens);
  std::vector<PageId> hits = index_.match(std::span(sequence.chain).first(most));
  const auto lost = std::find_if(hits.begin(), hits.end(), [&](PageId page) { return granted_.contains(page); });
  const auto depths = static_cast<std::ptrdiff_t>(limits_.depths);
  hits.resize(static_cast<std::size_t>((lost - hits.begin()) / depths * depths));
  return hits;
}

void Planner::make_room(std::int32_t pages, std::size_t keep) {
  const bool flies = std::any_of(items_.begin(), items_.end(), [](const Item& item) { return item.flying; });
  recall_ = recall_ || (flies && free_pages_ < pages);
  while (!recall_ && free_pages_ < pages && items_.size() > keep) preempt_youngest();
}

void Planner::preempt_youngest() {
  Item item = std::move(items_.back());
  items_.pop_back();
  preempted_.push_back(item.sequence->id);
  give_back_rows(item);
  // What this step had granted it never was its own; give it back before the older pages.
  for (const PageId page : item.grant) {
    granted_.erase(page);
    freed_.push_back(page);
    ++free_pages_;
  }
  const std::vector<PageId>& table = item.sequence->table;
  for (auto page = table.rbegin(); page != table.rend(); ++page) {
    if (++drops_[*page] < pool_.references(*page)) continue;
    freed_.push_back(*page);
    ++free_pages_;
  }
}

void Planner::grant_rows(Item& item, std::int32_t rows) {
  take_rows(item, rows);
  grant_pages(item, rows);
}

void Planner::grant_pages(Item& item, std::int32_t rows) {
  const std::int32_t pages = blocks_of(item.first + rows) * limits_.depths - item.held_pages;
  for (std::int32_t i = 0; i < pages; ++i) item.grant.push_back(next_page());
}

void Planner::take_rows(Item& item, std::int32_t rows) {
  item.rows = rows;
  rows_left_ -= rows;
  shared_rows_ -= std::max(rows - limits_.round_rows(), 0);
}

void Planner::give_back_rows(const Item& item) {
  rows_left_ += item.rows;
  shared_rows_ += std::max(item.rows - limits_.round_rows(), 0);
}

PageId Planner::next_page() {
  check(free_pages_ > 0, "the planner hands out a page where none is free");
  --free_pages_;
  while (cursor_ != kNoPage && revived_.contains(cursor_)) cursor_ = pool_.next_available(cursor_);
  PageId page = cursor_;
  if (page != kNoPage) {
    cursor_ = pool_.next_available(page);
  } else {
    check(!freed_.empty(), "the planner's count of free pages is wrong");
    page = freed_.front();
    freed_.pop_front();
  }
  granted_.insert(page);
  return page;
}

std::int32_t Planner::chunk_limit(const Item& item) const {
  const Sequence& sequence = *item.sequence;
  std::int32_t rows = std::min(sequence.size() - item.first, rows_left_);
  if (looped()) rows = std::min(rows, limits_.round_rows() + shared_rows_);
  if (looped() || limits_.sparse_tables) {
    std::int32_t alike = 1;
    while (alike < rows && !sequence.sparse(item.first) && joins(sequence, item.first, item.first + alike)) ++alike;
    rows = std::min(rows, alike);
  }
  return limits_.chunk_cap > 0 ? std::min(rows, limits_.chunk_cap) : rows;
}

/// Rows of one slice run the same loops, those that may leave earlier are decoded one by one, and so are sparse ones.
bool Planner::joins(const Sequence& sequence, std::int32_t first, std::int32_t position) const {
  if (!looped()) return !sequence.sparse(position);
  return sequence.loops_of(position) == sequence.loops_of(first) &&
         (position < sequence.decode_from() || (sequence.decided(position) && !sequence.sparse(position)));
}

std::int32_t Planner::missing_pages(const Item& item) const {
  return std::max(0, blocks_of(item.sequence->size()) * limits_.depths - item.held_pages -
                         static_cast<std::int32_t>(item.grant.size()));
}

void Planner::emit(StepPlan& plan, const Item& item) {
  const Sequence& sequence = *item.sequence;
  if (item.rows == 0) return;
  if (!item.grant.empty()) plan.grants.push_back({sequence.id, item.grant});

  std::vector<PageId> table = sequence.table;
  table.insert(table.end(), item.hits.begin(), item.hits.end());
  table.insert(table.end(), item.grant.begin(), item.grant.end());
  PlanSlice slice{.id = sequence.id, .first_position = item.first, .tokens = {}, .pages = {}, .wants_logits = false};
  if (item.role == SliceRole::plain)
    slice.tokens.assign(sequence.tokens.begin() + item.first, sequence.tokens.begin() + item.first + item.rows);
  slice.pages = by_depth(table, static_cast<std::size_t>(limits_.depths));
  slice.wants_logits = item.first + item.rows == sequence.size();
  if (item.role != SliceRole::plain) emit_role(item, slice);
  emit_loops(item, slice);
  plan.slices.push_back(std::move(slice));
  plan.num_rows += item.rows;
}

void Planner::emit_role(const Item& item, PlanSlice& slice) const {
  slice.role = item.role;
  if (item.role == SliceRole::verify) {
    slice.tokens = item.tokens;
    slice.wants_logits = true;
    return;
  }
  slice.tokens = {item.tokens.back()};
  slice.candidates.assign(item.tokens.begin() + 1, item.tokens.end());
  slice.round_rows = item.round_rows;
  const bool last = std::ssize(item.tokens) == item.round_rows;  // its token is the verification's
  slice.wants_logits = !last || item.sequence->draft_every_row;
}

void Planner::emit_loops(const Item& item, PlanSlice& slice) {
  if (limits_.sparse_tables && item.sequence->sparse(item.first)) slice.mode = sdk::RowMode::select;
  if (!looped()) return;
  const Sequence& sequence = *item.sequence;
  slice.depth = item.depth;
  const bool draft = item.role == SliceRole::draft;
  slice.loops = draft ? limits_.draft_loops : sequence.loops_of(item.first);
  slice.planes = draft ? limits_.draft_loops : sequence.rule.max;
  if (item.decode && sequence.rule.exit_threshold < 1)
    slice.exit = ExitRule{sequence.rule.min, sequence.rule.exit_threshold, item.between ? sequence.pass.remaining : 1};
  emit_mode(item, slice);
  if (item.between) {
    slice.states = sequence.pass.states;
  } else if (!slice.last_pass() || draft) {
    const auto count = static_cast<std::ptrdiff_t>(item.rows);
    check(std::ssize(free_states_) >= count, "{} rows begin where {} states are free", count, free_states_.size());
    slice.states.assign(free_states_.end() - count, free_states_.end());
    free_states_.resize(free_states_.size() - static_cast<std::size_t>(count));
  }
}

void Planner::emit_mode(const Item& item, PlanSlice& slice) {
  const Sequence& sequence = *item.sequence;
  if (limits_.capture_depth == 0 || !sequence.sparse(item.first) || slice.depth < limits_.capture_depth) return;
  if (slice.depth > limits_.capture_depth) {
    slice.mode = sdk::RowMode::consume;
    for (const ReferenceLease& lease : sequence.pass.references)
      slice.references.push_back(references_.reference(lease));
  } else if (!slice.last_pass() || item.role == SliceRole::draft) {
    slice.mode = sdk::RowMode::capture;
    for (std::int32_t row = 0; row < item.rows; ++row)
      slice.references.push_back(draw_.take(limits_.list_pages_at(item.first + row)));
  }
}

}  // namespace tessera
