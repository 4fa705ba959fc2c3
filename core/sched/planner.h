// The decisions of one step. Private to core/sched.
#pragma once
#include <cstdint>
#include <deque>
#include <memory>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "cache/page_pool.h"
#include "cache/prefix_index.h"
#include "sched/scheduler.h"
#include "sched/sequence.h"

namespace tessera {

/// Used once: it plays the step on its own bookkeeping and changes nothing that it was given.
class Planner {
 public:
  using Sequences = std::deque<std::unique_ptr<Sequence>>;  // in arrival order

  Planner(const SchedulerLimits& limits, const PagePool& pool, const PrefixIndex& index, const Sequences& running,
          const Sequences& waiting, const std::vector<std::int32_t>& free_states, const ReferenceStore& references);

  StepPlan run(std::uint64_t number);

 private:
  /// A running (or just admitted) sequence and what the step does to it.
  struct Item {
    const Sequence* sequence;
    std::int32_t first = 0;  // position of its first row
    std::int32_t rows = 0;
    bool decode = false;   // one row: the last known token, or one of a looped model that is not decided
    bool between = false;  // its rows go on from where they were
    bool flying = false;   // rounds of it are in flight: it rides in no step and keeps its pages
    SliceRole role = SliceRole::plain;
    std::vector<std::int32_t> tokens;  // of a round's rows, as far as known
    std::int32_t round_rows = 0;       // of a draft's round
    std::int32_t depth = 0;            // of its pass
    bool admitted = false;             // by this step
    std::int32_t held_pages = 0;       // table and hits, before the grant
    std::vector<PageId> hits;
    std::vector<PageId> grant;
  };

  void plan_passes();
  void plan_decodes();
  void plan_prefills();
  void plan_admissions();
  bool admit(const Sequence& sequence);
  /// List pages that it can hold at most at one time.
  std::int32_t most_list_pages(const Sequence& sequence) const;

  /// With rounds in flight, recalls them where pages are short. Else
  /// preempts from the young end until `pages` are free or only the `keep` oldest items are left.
  void make_room(std::int32_t pages, std::size_t keep);
  void preempt_youngest();
  /// Pages up to its row `rows` - 1.
  void grant_pages(Item& item, std::int32_t rows);
  void grant_rows(Item& item, std::int32_t rows);
  /// One row, or the first rows of a round of at most `most`.
  void begin_decode(Item& item, std::int32_t most);
  PageId next_page();
  void take_rows(Item& item, std::int32_t rows);
  void give_back_rows(const Item& item);
  bool looped() const { return limits_.depths > 1; }
  bool decodes(const Sequence& sequence) const;
  std::int32_t chunk_limit(const Item& item) const;
  bool joins(const Sequence& sequence, std::int32_t first, std::int32_t position) const;
  /// Pages that the item needs, besides what it holds after this step, to have all its known tokens computed.
  std::int32_t missing_pages(const Item& item) const;
  std::vector<PageId> usable_hits(const Sequence& sequence) const;
  void emit(StepPlan& plan, const Item& item);
  void emit_loops(const Item& item, PlanSlice& slice);
  void emit_mode(const Item& item, PlanSlice& slice);
  void emit_role(const Item& item, PlanSlice& slice) const;

  const SchedulerLimits& limits_;
  const PagePool& pool_;
  const PrefixIndex& index_;
  const Sequences& waiting_;

  std::vector<Item> items_;            // in arrival order
  std::vector<SequenceId> preempted_;  // youngest first
  bool recall_ = false;
  std::int32_t rows_left_;
  /// Rows hold their place for all their loops, and a decoded row must find one in every step: of a looped model each
  /// sequence has the rows of a round, and prefills share these.
  std::int32_t shared_rows_;
  std::vector<std::int32_t> free_states_;
  const ReferenceStore& references_;
  ReferenceDraw draw_;                              // what this step captures
  std::int32_t promised_lists_ = 0;                 // list pages that running and admitted sequences may take
  std::int32_t free_pages_;                         // that next_page() can still hand out
  std::int32_t owed_pages_ = 0;                     // of them, those that admitted sequences will need for known tokens
  PageId cursor_;                                   // next candidate in the pool's own order
  std::deque<PageId> freed_;                        // pages of preempted sequences, used after the pool's own
  std::unordered_map<PageId, std::int32_t> drops_;  // references that preemptions give back
  std::unordered_set<PageId> granted_;
  std::unordered_set<PageId> revived_;  // available pages that admissions share
};

}  // namespace tessera
