// Which rows run in the next step. Host only, no device, no plugins, no text.
#pragma once
#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "cache/page_pool.h"
#include "cache/prefix_index.h"
#include "cache/reference_store.h"
#include "request/request.h"
#include "tessera/sdk/batch.h"

namespace tessera {

/// One sequence: one choice of one request. Never reused.
using SequenceId = std::uint64_t;

struct SchedulerLimits {
  std::int32_t max_batch = 16;      // running sequences
  std::int32_t step_tokens = 1024;  // rows of one step; at least max_batch
  std::int32_t chunk_cap = 0;       // prefill rows of one sequence in one step; 0 = no cap
  std::int32_t max_queue = 64;      // waiting sequences
  std::int32_t max_context = 2048;
  std::int32_t depths = 1;            // page tables of one sequence
  std::int32_t capture_depth = 0;     // of sparse rows (of depth 0 there are none); deeper ones consume
  bool sparse_tables = false;         // sparse rows attend to some of their pages (models without loops)
  std::int32_t draft_tokens = 0;      // candidates of one round of speculation at most; 0 = no speculation
  std::int32_t draft_loops = 0;       // loops that draft them; 0 = they are looked up in the sequence itself
  std::int32_t rounds_in_flight = 1;  // of one sequence; from 2 on rounds may run on the device alone (RoundPlan)
  bool prefix_cache = true;
  std::int32_t num_list_pages = 0;  // of index lists; never short for one sequence alone
  /// [max_context] list pages of a row captured at each position, never fewer at a higher one; null: none.
  std::shared_ptr<const std::vector<std::int32_t>> list_pages{};

  bool sparse_decode() const { return capture_depth > 0 || sparse_tables; }
  /// That a sequence may have in one step for one round; step_tokens holds those of max_batch sequences.
  std::int32_t round_rows() const { return draft_tokens + 1; }
  std::int32_t list_pages_at(std::int32_t position) const {
    return list_pages ? (*list_pages)[static_cast<std::size_t>(position)] : 0;
  }
};

struct SequenceSpec {
  SequenceId id;
  std::vector<std::int32_t> prompt;
  std::int32_t max_tokens;  // generated at most
  LoopParams loops{};
  /// With draft_loops: every decoded row answers after these loops too, also the last of a round and one that no round
  /// has room for. So what a token's row drafts is known wherever rounds begin and end.
  bool draft_every_row = false;
  /// Its token is the best of its row's logits and nobody wants to know more of them: the device can draw it.
  bool greedy = false;
};

/// Whether candidates are proposed for a sequence of these loops, which is a function of its request.
inline bool speculates(const SchedulerLimits& limits, const LoopParams& loops) {
  return limits.draft_tokens > 0 && loops.exit_threshold >= 1 && loops.max > limits.draft_loops;
}

/// What decides, after a pass, whether a decoded row of a looped model has seen loops enough.
struct ExitRule {
  std::int32_t min_loops;
  float threshold;
  float remaining;  // probability of no exit in the loops so far, from 1
};

/// What a slice's rows are for. A draft says which token may come next; a verification runs the rows of a round, whose
/// tokens after the first are such candidates, to the end. What the last row of a round drafts is no candidate.
enum class SliceRole { plain, draft, verify };

/// Consecutive positions of one sequence. `pages` is its whole table after the step's grants:
/// pages[depth * blocks + p / 16], blocks = pages.size() / depths.
struct PlanSlice {
  SequenceId id;
  std::int32_t first_position;
  std::vector<std::int32_t> tokens;  // of the rows
  std::vector<PageId> pages;
  bool wants_logits;  // of the last row once it leaves (a verification: of all): tokens are sampled from it
  SliceRole role = SliceRole::plain;
  std::int32_t round_rows = 0;             // drafts: of their round
  std::vector<std::int32_t> candidates{};  // drafts: of the round so far
  // Looped models. A slice leaves after the pass of depth `loops` - 1, or earlier by its exit rule; a draft waits then.
  std::int32_t depth = 0;
  std::int32_t loops = 1;
  std::int32_t planes = 1;                  // the KV of the last loop run is copied up to this depth when it leaves
  std::optional<ExitRule> exit{};           // slices of one decoded row
  sdk::RowMode mode = sdk::RowMode::dense;  // of this pass
  std::vector<RowReference> references{};   // one a row; empty for dense rows
  std::vector<std::int32_t> states{};  // rows of the state bank, one a row; empty when no pass follows or went before

  bool last_pass() const { return depth + 1 == loops; }
  std::int32_t num_rows() const { return static_cast<std::int32_t>(tokens.size()); }
  /// Rows that answer when the slice leaves.
  std::int32_t num_answers() const { return !wants_logits ? 0 : role == SliceRole::verify ? num_rows() : 1; }
};

/// Everything that commit() will do, decided without changing anything.
struct StepPlan {
  struct Admission {
    SequenceId id;
    std::vector<PageId> hits;  // shared pages, [block * depths + depth], all full
  };
  struct Grant {
    SequenceId id;
    std::vector<PageId> pages;  // private pages appended to its table, [block * depths + depth]
  };
  std::uint64_t number = 0;           // steps committed before it; commit refuses any other plan
  std::vector<SequenceId> preempted;  // youngest first
  std::vector<Admission> admitted;    // in arrival order
  std::vector<Grant> grants;
  std::vector<PlanSlice> slices;  // decode rows first, then prefill, both in arrival order
  std::int32_t num_rows = 0;
  /// It lacks pages that rounds in flight may hold in vain: it does nothing, and they should all be landed first.
  bool recall = false;

  bool empty() const { return slices.empty(); }
  /// One line an item, for logs and replays.
  std::string dump() const;
};

/// What a pass made of a slice with an exit rule.
struct ExitOutcome {
  SequenceId id;
  bool left;
  float remaining;
};

/// What sampling made of one slice that wanted logits and left. A verification's tokens are the candidates that it
/// confirmed and the one after them.
struct StepOutcome {
  SequenceId id;
  std::vector<std::int32_t> tokens;
  bool finished;  // the sequence leaves and its pages return
};

/// A round of speculation of several sequences, with draft_tokens candidates each, that runs on the device from the
/// frontiers that it keeps itself: the last token of each sequence and its position.
struct RoundPlan {
  struct Item {
    SequenceId id;
    bool first;  // no round of it is in flight: the frontier is `token` at `position`
    std::int32_t token;
    std::int32_t position;                 // else `position` is the most that the frontier can be
    std::vector<PageId> pages;             // of the whole round, as PlanSlice::pages
    std::vector<std::int32_t> states;      // one a row; the same in all rounds in flight, which run one after the other
    std::vector<RowReference> references;  // one a row, of this round alone; empty where its rows are dense
    std::vector<PageId> grant;             // appended to its table, [block * depths + depth]
  };
  std::uint64_t number = 0;  // rounds launched before it; launch refuses any other
  std::vector<Item> items;   // in arrival order

  bool empty() const { return items.empty(); }
};

/// What a round on the device made of one sequence: as a verification's outcome, and how many candidates were right.
struct RoundOutcome {
  SequenceId id;
  std::vector<std::int32_t> tokens;
  bool finished;
  std::int32_t confirmed;
};

struct SchedulerStats {
  std::int64_t steps = 0, rows = 0, prefill_rows = 0, decode_rows = 0;
  std::int64_t preemptions = 0, recomputed_rows = 0, prefix_hit_tokens = 0;
  std::int64_t captured_rows = 0, consumed_rows = 0, selecting_rows = 0;
  std::int64_t rounds = 0, round_tokens = 0, rejected_rows = 0;
  std::int64_t device_rounds = 0;     // of them, those that ran on the device alone
  std::int64_t discarded_rounds = 0;  // whose sequence had ended when they came back
  /// Candidates verified and confirmed, by their place in the round. None counts beyond the end of its sequence.
  std::array<std::int64_t, 16> candidates{}, confirmed{};
  /// Decoded rows that a token was sampled from, by the loops they ran, [loops - 1].
  std::array<std::int64_t, 16> decoded_loops{};
};

struct Sequence;

/// Not thread-safe; the engine thread owns it.
///
/// First come, first served: a waiting sequence is admitted only when all before it are. Running decode rows ride in
/// every step. When pages run out the youngest running sequence is preempted: it goes back to its place in the queue
/// with its tokens, and is recomputed with equal bits. The oldest can always finish, because no sequence is accepted
/// whose worst case exceeds the whole pool.
///
/// Pages of index lists are promised: a sequence is admitted when as many as its rows can ever hold at one time are
/// promised to nobody. So a captured row always finds its own, and nobody is preempted for them.
class Scheduler {
 public:
  /// `pool` outlives the scheduler. With a seed, list pages are handed out in any order.
  Scheduler(const SchedulerLimits& limits, PagePool& pool, std::optional<std::uint64_t> list_seed = std::nullopt);
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  /// All or none. Refuses (invalid_argument) what could never run, and (resource_exhausted) what the queue cannot hold.
  Status submit(std::span<const SequenceSpec> sequences);
  /// Between steps only. False when the id is not alive (any more).
  bool cancel(SequenceId id);
  bool alive(SequenceId id) const;

  StepPlan plan() const;
  /// `exits` holds one entry for each slice with an exit rule; `outcomes` one for each slice that wants logits and
  /// left; both in any order.
  void commit(const StepPlan& plan, std::span<const StepOutcome> outcomes, std::span<const ExitOutcome> exits = {});

  // Rounds on the device. Between launch and land a sequence rides in no step and keeps what it has, even when it ends
  // or is cancelled: its table, its states and the slots of the rounds that are still in flight.

  /// The greedy sequences that may have one more round in flight, as far as pages last that nobody else will need; none
  /// while prompts are computed.
  RoundPlan plan_round() const;
  /// The round was enqueued. Takes what the plan gives its sequences.
  void launch(const RoundPlan& plan);
  /// The oldest round in flight came back: one outcome for each of its sequences that is alive. Of the others nothing
  /// is told, and what the round held of them returns.
  void land(std::uint64_t number, std::span<const RoundOutcome> outcomes);
  /// Rounds launched and not landed, and sequences that only wait for them: while there are some, nothing is planned.
  std::int32_t in_flight() const { return static_cast<std::int32_t>(flights_.size()); }
  std::int32_t leaving() const { return static_cast<std::int32_t>(leaving_.size()); }
  /// Positions of a live sequence whose KV is known to be written: where its frontier is unless rounds are in flight.
  std::int32_t computed(SequenceId id) const;

  /// After a failed step: what it wrote half must never be served as a prefix.
  void forget_prefixes();

  bool idle() const;  // nothing waiting, nothing running
  std::int32_t waiting() const;
  std::int32_t running() const;
  /// Prompt tokens of a live sequence that came from the prefix cache at its first admission.
  std::int32_t cached_tokens(SequenceId id) const;
  const SchedulerStats& stats() const;
  const ReferenceStore& references() const { return references_; }

 private:
  Status accepts(const SequenceSpec& spec) const;
  void preempt(SequenceId id);
  void admit(const StepPlan::Admission& admission);
  void grant(const StepPlan::Grant& grant);
  /// The slice goes on, or it leaves and its positions are computed.
  void advance(const PlanSlice& slice, const ExitOutcome* exit, const StepOutcome* outcome);
  /// The next `rows` positions are computed, with `loops` loops.
  void leave(Sequence& sequence, std::int32_t rows, std::int32_t loops, bool decoded, bool verified);
  /// A drafted row waits for the others of its round.
  void park(Sequence& sequence, const PlanSlice& slice, const StepOutcome* outcome);
  void end_round(Sequence& sequence, const PlanSlice& slice, const StepOutcome& outcome);
  void index_blocks(Sequence& sequence);
  void extend_chain(Sequence& sequence);
  void take_states(const StepPlan& plan);
  void track_references(Sequence& sequence, const PlanSlice& slice);
  void drop_pass(Sequence& sequence);
  void append(Sequence& sequence, std::span<const std::int32_t> tokens);
  /// All pages after the first `blocks` blocks.
  void release_pages(Sequence& sequence, std::int32_t blocks = 0);
  /// The sequence leaves running_ or waiting_ and gives back what no round in flight holds.
  void remove(Sequence& sequence);
  bool prompts_run() const;
  bool may_launch(const Sequence& sequence) const;
  /// Pages that running sequences need for their known tokens and do not have.
  std::int32_t owed_pages() const;
  void launch_item(const RoundPlan::Item& item);
  void land_item(Sequence& sequence, const RoundOutcome& outcome);
  /// Gives back what the oldest round in flight held.
  void release_flight(Sequence& sequence);
  void count_round(std::int32_t candidates, std::int32_t answered, std::int32_t confirmed, bool finished);
  Sequence& running_sequence(SequenceId id);

  SchedulerLimits limits_;
  PagePool& pool_;
  PrefixIndex index_;
  // In arrival order, and every running sequence arrived before every waiting one: admissions go from the front of
  // waiting_ to the back of running_, preemptions the other way.
  std::deque<std::unique_ptr<Sequence>> running_;
  std::deque<std::unique_ptr<Sequence>> waiting_;
  std::unordered_map<SequenceId, Sequence*> alive_;
  ReferenceStore references_;
  std::vector<std::int32_t> free_states_;           // rows of the state bank; the last one is taken first
  std::deque<RoundPlan> flights_;                   // oldest first
  std::vector<std::unique_ptr<Sequence>> leaving_;  // ended, but of rounds in flight
  std::uint64_t launched_ = 0;
  std::uint64_t steps_ = 0;
  SchedulerStats stats_;
};

}  // namespace tessera
