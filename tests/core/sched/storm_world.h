// What the steps and the rounds of a storm share: the pool, what each page of it holds, and the sequences.
#pragma once
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/random.h"
#include "sched/scheduler.h"
#include "storm_model.h"

namespace tessera {

class StormWorld {
 protected:
  StormWorld(std::uint64_t seed, std::int32_t depths, std::int32_t draft_tokens, std::int32_t draft_loops,
             std::int32_t rounds_in_flight)
      : random_(seed),
        limits_{.max_batch = 1 + below(5),
                .step_tokens = 0,
                .chunk_cap = below(2) * (1 + below(24)),
                .max_queue = 1 + below(12),
                .max_context = 100,
                .depths = depths,
                .capture_depth = depths > 2 ? below(2) : 0,
                .sparse_tables = depths == 1 && below(2) != 0,
                .draft_tokens = draft_tokens,
                .draft_loops = draft_loops,
                .rounds_in_flight = rounds_in_flight,
                .prefix_cache = below(4) != 0},
        pool_(depths * (5 + below(rounds_in_flight > 1 ? 4 : 9)) + below(depths),
              below(2) ? std::optional(seed) : std::nullopt) {
    limits_.step_tokens = limits_.max_batch * limits_.round_rows() + below(60);
    held_.resize(static_cast<std::size_t>(pool_.size()));
    const std::int32_t sequences = rounds_in_flight * (1 + below(limits_.max_batch));
    if (limits_.capture_depth > 0) give_lists(limits_, 1 + below(40), sequences, below(8));
  }

  bool flies() const { return limits_.rounds_in_flight > 1; }
  std::int32_t below(std::int32_t n) { return static_cast<std::int32_t>(random_.below(static_cast<std::uint32_t>(n))); }

  std::uint64_t& slot_of(const std::vector<PageId>& pages, std::size_t depth, std::size_t position) {
    const std::size_t blocks = pages.size() / static_cast<std::size_t>(limits_.depths);
    return held_.at(static_cast<std::size_t>(pages.at(depth * blocks + position / 16)))[position % 16];
  }

  /// What computing `position` at a depth gives.
  std::uint64_t made(const Model& model, std::size_t position, std::size_t depth) const {
    return content(model.marked(position + 1, limits_.sparse_decode()), loops_before(model, position), depth);
  }

  /// Of a plain model there is nothing to tell.
  std::vector<std::int32_t> loops_before(const Model& model, std::size_t position) const {
    return limits_.depths == 1 ? std::vector<std::int32_t>{} : model.loops_of(position);
  }

  /// KV of a position in a plane, once it has left.
  std::uint64_t wanted(const Model& model, std::size_t position, std::size_t depth) const {
    if (position < model.loops.size()) depth = std::min(depth, static_cast<std::size_t>(model.loops[position]) - 1);
    return made(model, position, depth);
  }

  /// Writes the KV of rows first .. end - 1 at a depth, then reads everything there that the last of them attends to.
  void run_rows(SequenceId id, const Model& model, const std::vector<PageId>& pages, std::size_t depth,
                std::size_t first, std::size_t end) {
    const std::size_t blocks = pages.size() / static_cast<std::size_t>(limits_.depths);
    REQUIRE(blocks >= (end + 15) / 16);
    for (std::size_t p = 0; p < end; ++p) {
      std::uint64_t& slot = slot_of(pages, depth, p);
      if (p >= first) {
        if (p == first || p % 16 == 0) REQUIRE(tables_with(pages[depth * blocks + p / 16]) == 1);
        slot = made(model, p, depth);
      } else if (slot != wanted(model, p, depth)) {
        FAIL("sequence ", id, " reads other KV at position ", p, ", depth ", depth);
      }
    }
  }

  /// The token after `position`: a function of the sequence alone, as greedy sampling is.
  std::int32_t token_after(const Model& model, std::size_t position) const {
    return static_cast<std::int32_t>(made(model, position, 99) >> 40 & 1);
  }

  /// A candidate for it. Mostly right.
  std::int32_t guess_after(const Model& model, std::size_t position) {
    const std::int32_t right = token_after(model, position);
    return below(4) == 0 ? 1 - right : right;
  }

  /// Whether the sequence ends with these more tokens: because it must, or for reasons of its own.
  bool ends(const Model& model, std::size_t more) {
    return static_cast<std::int32_t>(model.tokens.size() + more - model.prompt) == model.max_tokens ||
           below(flies() ? 60 : 30) == 0;
  }

  /// The sequence has ended, or was cancelled. With rounds in flight it keeps its pages, its states and their slots.
  void end(SequenceId id) {
    auto ended = live_.extract(id);
    if (ended.mapped().flies()) leaving_.insert(std::move(ended));
  }

  /// Rejected rows take nothing with them but pages that no computed position needs.
  void trim(Model& model) const {
    const auto depths = static_cast<std::size_t>(limits_.depths), blocks = model.table.size() / depths;
    const auto kept = static_cast<std::size_t>(model.computed + 15) / 16;
    std::vector<PageId> table;
    for (std::size_t i = 0; i < model.table.size(); ++i)
      if (i % blocks < kept) table.push_back(model.table[i]);
    model.table = table;
  }

  template <class Visit>
  void for_each_model(Visit visit) const {
    for (const auto* models : {&live_, &leaving_})
      for (const auto& [id, model] : *models) visit(model);
  }

  std::int64_t tables_with(PageId page) const {
    std::int64_t count = 0;
    for_each_model([&](const Model& model) { count += std::count(model.table.begin(), model.table.end(), page); });
    return count;
  }

  /// Rows of steps and of rounds in flight that a slot of the reference store holds.
  std::int64_t uses_of(std::int32_t slot) const {
    std::int64_t count = 0;
    for_each_model([&](const Model& model) {
      model.for_each_reference([&](const RowReference& reference) { count += reference.slot == slot; });
    });
    return count;
  }

  /// No row of the state bank belongs to two rows.
  void check_states() const {
    std::set<std::int32_t> states;
    for_each_model([&](const Model& model) {
      for (const std::int32_t state : model.states) {
        REQUIRE(states.insert(state).second);
        REQUIRE(state < 2 * limits_.step_tokens);
      }
    });
  }

  void check_references(const Scheduler& scheduler) const {
    std::map<PageId, std::int32_t> count;
    std::int64_t slots = 0, lists = 0;
    std::set<std::int32_t> list_pages;
    for_each_model([&](const Model& model) {
      for (const PageId page : model.table) ++count[page];
      model.for_each_reference([&](const RowReference& reference) {
        ++slots, lists += std::ssize(reference.pages);
        list_pages.insert(reference.pages.begin(), reference.pages.end());
      });
    });
    for (PageId page = 0; page < pool_.size(); ++page) REQUIRE(pool_.references(page) == count[page]);
    REQUIRE(pool_.in_use() == std::count_if(count.begin(), count.end(), [](auto& c) { return c.second > 0; }));
    REQUIRE(scheduler.references().outstanding() == slots);
    REQUIRE(scheduler.references().outstanding_pages() == lists);
    REQUIRE(std::ssize(list_pages) == lists);  // none is two rows'
    REQUIRE(scheduler.leaving() == std::ssize(leaving_));
  }

  Random random_;
  SchedulerLimits limits_;
  PagePool pool_;
  std::vector<std::array<std::uint64_t, 16>> held_;  // [page][slot]
  std::map<SequenceId, Model> live_;                 // ids ascend in arrival order
  std::map<SequenceId, Model> leaving_;              // ended, but of rounds in flight
};

}  // namespace tessera
