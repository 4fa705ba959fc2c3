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
  std::int32_t depths = 1;         // page tables of one sequence
  std::int32_t capture_depth = 0;  // of sparse rows (of depth 0 there are none); deeper ones consume
  bool sparse_tables = false;      // sparse rows attend to some of their pages (models without loops)
  std::int32_t draft_tokens = 0;   // candidates of one round of speculation at most; 0 = no speculation
  std::int32_t draft_loops = 0;    // loops that draft them; 0 = they are looked up in the sequence itself
  bool prefix_cache = true;

  bool sparse_decode() const { return capture_depth > 0 || sparse_tables; }
  /// That a sequence may have in one step for one round; step_tokens holds those of max_batch sequences.
  std::int32_t round_rows() const { return draft_tokens + 1; }
};

struct SequenceSpec {
  SequenceId id;
  std::vector<std::int32_t> prompt;
  std::int32_t max_tokens;  // generated at most
  LoopParams loops{};
  /// With draft_loops: every decoded row answers after these loops too, also the last of a round and one that no round
  /// has room for. So what a token's row drafts is known wherever rounds begin and end.
  bool draft_every_row = false;
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
  std::vector<std::int32_t> references{};   // slots of the reference store, one a row; empty for dense rows
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

struct SchedulerStats {
  std::int64_t steps = 0, rows = 0, prefill_rows = 0, decode_rows = 0;
  std::int64_t preemptions = 0, recomputed_rows = 0, prefix_hit_tokens = 0;
  std::int64_t captured_rows = 0, consumed_rows = 0, selecting_rows = 0;
  std::int64_t rounds = 0, round_tokens = 0, rejected_rows = 0;
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
class Scheduler {
 public:
  /// `pool` outlives the scheduler.
  Scheduler(const SchedulerLimits& limits, PagePool& pool);
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
  void leave(Sequence& sequence, const PlanSlice& slice, std::int32_t rows, bool decoded);
  /// A drafted row waits for the others of its round.
  void park(Sequence& sequence, const PlanSlice& slice, const StepOutcome* outcome);
  void end_round(Sequence& sequence, const PlanSlice& slice, const StepOutcome& outcome);
  void index_blocks(Sequence& sequence);
  void extend_chain(Sequence& sequence);
  void take_states(const StepPlan& plan);
  void track_references(Sequence& sequence, const PlanSlice& slice);
  void drop_pass(Sequence& sequence);
  void append(Sequence& sequence, const StepOutcome& outcome);
  /// All pages after the first `blocks` blocks.
  void release_pages(Sequence& sequence, std::int32_t blocks = 0);
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
  std::vector<std::int32_t> free_states_;  // rows of the state bank; the last one is taken first
  std::uint64_t steps_ = 0;
  SchedulerStats stats_;
};

}  // namespace tessera
