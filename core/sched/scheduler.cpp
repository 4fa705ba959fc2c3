#include "sched/scheduler.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <unordered_set>

#include "base/check.h"
#include "sched/planner.h"
#include "sched/sequence.h"

namespace tessera {

std::string StepPlan::dump() const {
  std::string text = fmt::format("step {}: {} rows\n", number, num_rows);
  auto out = std::back_inserter(text);
  for (const SequenceId id : preempted) fmt::format_to(out, "preempt {}\n", id);
  for (const Admission& item : admitted) fmt::format_to(out, "admit {} hits {}\n", item.id, item.hits);
  for (const Grant& item : grants) fmt::format_to(out, "grant {} pages {}\n", item.id, item.pages);
  for (const PlanSlice& slice : slices) {
    fmt::format_to(out, "slice {} at {} tokens {} pages {}{}\n", slice.id, slice.first_position, slice.tokens,
                   slice.pages, slice.wants_logits ? " logits" : "");
    if (slice.loops > 1)
      fmt::format_to(out, "  depth {} of {}{} states {}\n", slice.depth, slice.loops, slice.exit ? " at most" : "",
                     slice.states);
    if (slice.role == SliceRole::draft)
      fmt::format_to(out, "  draft {} of {}\n", slice.candidates.size() + 1, slice.round_rows);
    if (slice.role == SliceRole::verify) fmt::format_to(out, "  verify\n");
  }
  return text;
}

Scheduler::Scheduler(const SchedulerLimits& limits, PagePool& pool, std::optional<std::uint64_t> list_seed)
    : limits_(limits),
      pool_(pool),
      index_(limits.depths, ""),
      references_(limits.capture_depth > 0 ? limits.max_batch * limits.round_rows() * limits.rounds_in_flight : 0,
                  limits.num_list_pages, list_seed) {
  check(limits.max_batch >= 1, "max_batch is {}, at least 1 is needed", limits.max_batch);
  check(limits.step_tokens >= limits.max_batch * limits.round_rows(),
        "step_tokens {} is less than max_batch {} times {} rows: decode rows could not ride", limits.step_tokens,
        limits.max_batch, limits.round_rows());
  check(limits.draft_tokens >= 0 && limits.draft_tokens < std::ssize(stats_.candidates) && limits.draft_loops >= 0 &&
            (limits.draft_loops == 0 || limits.draft_loops < limits.depths),
        "{} draft tokens of {} loops, the model has {}", limits.draft_tokens, limits.draft_loops, limits.depths);
  check(limits.chunk_cap >= 0, "chunk_cap is {}", limits.chunk_cap);
  check(limits.rounds_in_flight == 1 || limits.draft_loops > 0, "{} rounds in flight of {} draft loops",
        limits.rounds_in_flight, limits.draft_loops);
  if (limits.list_pages) {
    const std::vector<std::int32_t>& lists = *limits.list_pages;
    check(std::ssize(lists) == limits.max_context && std::is_sorted(lists.begin(), lists.end()),
          "list pages are known of {} positions of {}, or fewer at a higher one", lists.size(), limits.max_context);
    check(lists.back() * limits.round_rows() * limits.rounds_in_flight <= limits.num_list_pages,
          "{} list pages are too few for one sequence", limits.num_list_pages);
  }
  if (limits.depths > 1)  // preempted rows give theirs back only when the step is committed
    for (std::int32_t state = 2 * limits.step_tokens; state > 0; --state) free_states_.push_back(state - 1);
}

Scheduler::~Scheduler() {
  for (const auto& sequence : running_) release_pages(*sequence);
  for (const auto& sequence : leaving_) release_pages(*sequence);
}

Status Scheduler::accepts(const SequenceSpec& spec) const {
  if (spec.prompt.empty()) {
    return fail(Code::invalid_argument, "the prompt has no tokens, at least 1 is needed; send a non-empty prompt");
  }
  if (spec.max_tokens < 1) {
    return fail(Code::invalid_argument, "max_tokens is {}, at least 1 is needed; raise max_tokens", spec.max_tokens);
  }
  const std::int64_t total = std::ssize(spec.prompt) + std::int64_t{spec.max_tokens};
  if (total > limits_.max_context) {
    return fail(Code::invalid_argument,
                "prompt and max_tokens make {} + {} = {} tokens, more than the context of {}; shorten the prompt or "
                "lower max_tokens",
                spec.prompt.size(), spec.max_tokens, total, limits_.max_context);
  }
  const std::int64_t pages = std::int64_t{blocks_of(static_cast<std::int32_t>(total))} * limits_.depths;
  if (pages > pool_.size()) {
    return fail(Code::invalid_argument,
                "prompt and max_tokens need up to {} cache pages, the pool has {}; raise cache.pages or lower "
                "max_tokens",
                pages, pool_.size());
  }
  return {};
}

Status Scheduler::submit(std::span<const SequenceSpec> sequences) {
  for (const SequenceSpec& spec : sequences) {
    if (Status status = accepts(spec); !status.ok()) return status;
  }
  if (std::ssize(waiting_) + std::ssize(sequences) > limits_.max_queue) {
    return fail(Code::resource_exhausted,
                "the queue holds {} of at most {} sequences and {} more arrived; try again later or raise "
                "scheduler.max_queue",
                waiting_.size(), limits_.max_queue, sequences.size());
  }
  for (const SequenceSpec& spec : sequences) {
    auto sequence = std::make_unique<Sequence>();
    sequence->id = spec.id;
    sequence->tokens = spec.prompt;
    sequence->prompt = sequence->size();
    sequence->max_tokens = spec.max_tokens;
    sequence->rule = spec.loops;
    sequence->draft_every_row = spec.draft_every_row;
    sequence->greedy = spec.greedy;
    sequence->rule.decode_tail = std::clamp(spec.loops.decode_tail, 0, sequence->prompt);
    if (limits_.depths > 1)
      sequence->loops.assign(static_cast<std::size_t>(sequence->decode_from()),
                             static_cast<std::uint8_t>(spec.loops.max));
    extend_chain(*sequence);
    check(alive_.emplace(spec.id, sequence.get()).second, "sequence id {} was submitted twice", spec.id);
    waiting_.push_back(std::move(sequence));
  }
  return {};
}

bool Scheduler::cancel(SequenceId id) {
  const auto found = alive_.find(id);
  if (found == alive_.end()) return false;
  remove(*found->second);
  return true;
}

void Scheduler::remove(Sequence& sequence) {
  drop_pass(sequence);
  alive_.erase(sequence.id);
  for (auto* sequences : {&running_, &waiting_}) {
    const auto found =
        std::find_if(sequences->begin(), sequences->end(), [&](const auto& other) { return other.get() == &sequence; });
    if (found == sequences->end()) continue;
    std::unique_ptr<Sequence> removed = std::move(*found);
    sequences->erase(found);
    if (removed->flight.rounds() > 0)
      leaving_.push_back(std::move(removed));
    else
      release_pages(*removed);
    return;
  }
}

bool Scheduler::alive(SequenceId id) const { return alive_.contains(id); }

StepPlan Scheduler::plan() const {
  check(leaving_.empty(), "a step is planned while {} ended sequences have rounds in flight", leaving_.size());
  return Planner(limits_, pool_, index_, running_, waiting_, free_states_, references_).run(steps_);
}

void Scheduler::commit(const StepPlan& plan, std::span<const StepOutcome> outcomes,
                       std::span<const ExitOutcome> exits) {
  check(plan.number == steps_ && !plan.recall, "plan {} was committed where plan {} is due", plan.number, steps_);
  std::unordered_set<SequenceId> wanted;
  std::unordered_map<SequenceId, const ExitOutcome*> decided;
  for (const ExitOutcome& exit : exits) decided[exit.id] = &exit;
  for (const PlanSlice& slice : plan.slices) {
    check(slice.exit.has_value() == decided.contains(slice.id), "sequence {}: exit rule {}, exit outcome {}", slice.id,
          slice.exit.has_value(), decided.contains(slice.id));
    const bool left = slice.exit ? decided.at(slice.id)->left : slice.last_pass();
    if (slice.wants_logits && left) wanted.insert(slice.id);
  }
  check(wanted.size() == outcomes.size(), "{} outcomes for {} slices that want logits", outcomes.size(), wanted.size());
  std::unordered_map<SequenceId, const StepOutcome*> sampled;
  for (const StepOutcome& outcome : outcomes) {
    check(wanted.erase(outcome.id) == 1, "an outcome of sequence {}, which wants none (any more)", outcome.id);
    sampled[outcome.id] = &outcome;
  }

  take_states(plan);
  for (const SequenceId id : plan.preempted) preempt(id);
  for (const auto& admission : plan.admitted) admit(admission);
  for (const auto& item : plan.grants) grant(item);
  for (const PlanSlice& slice : plan.slices) {
    const auto outcome = sampled.find(slice.id);
    advance(slice, slice.exit ? decided.at(slice.id) : nullptr, outcome == sampled.end() ? nullptr : outcome->second);
  }
  for (const StepOutcome& outcome : outcomes) {
    if (!outcome.finished) continue;
    drop_pass(running_sequence(outcome.id));
    alive_.erase(outcome.id);
  }
  // In arrival order, whatever the order of the outcomes: the order of freed pages is a function of the plan alone.
  std::erase_if(running_, [&](const auto& sequence) {
    if (alive_.contains(sequence->id)) return false;
    release_pages(*sequence);
    return true;
  });
  ++steps_;
  ++stats_.steps;
  stats_.rows += plan.num_rows;
  stats_.preemptions += std::ssize(plan.preempted);
}

void Scheduler::preempt(SequenceId id) {
  check(!running_.empty() && running_.back()->id == id, "sequence {} is preempted out of turn", id);
  Sequence& sequence = *running_.back();
  check(sequence.flight.rounds() == 0, "sequence {} is preempted with rounds in flight", id);
  drop_pass(sequence);
  release_pages(sequence);
  sequence.computed = 0;
  sequence.indexed_blocks = 0;
  waiting_.push_front(std::move(running_.back()));
  running_.pop_back();
}

void Scheduler::admit(const StepPlan::Admission& admission) {
  check(!waiting_.empty() && waiting_.front()->id == admission.id, "sequence {} is admitted out of turn", admission.id);
  Sequence& sequence = *waiting_.front();
  for (const PageId page : admission.hits) pool_.share(page);
  sequence.table = admission.hits;
  sequence.indexed_blocks = static_cast<std::int32_t>(admission.hits.size()) / limits_.depths;
  sequence.computed = sequence.indexed_blocks * kPageTokens;
  if (sequence.cached < 0) {
    sequence.cached = sequence.computed;
    stats_.prefix_hit_tokens += sequence.computed;
  }
  running_.push_back(std::move(waiting_.front()));
  waiting_.pop_front();
}

void Scheduler::grant(const StepPlan::Grant& grant) {
  Sequence& sequence = running_sequence(grant.id);
  for (const PageId page : grant.pages) {
    for (const PageId lost : index_.forget(page)) pool_.set_cached(lost, false);
    pool_.take(page);
    sequence.table.push_back(page);
  }
}

void Scheduler::advance(const PlanSlice& slice, const ExitOutcome* exit, const StepOutcome* outcome) {
  Sequence& sequence = running_sequence(slice.id);
  const std::int32_t rows = slice.num_rows();
  if (slice.role == SliceRole::draft && sequence.round.rows == 0)
    sequence.round = {.rows = slice.round_rows, .tokens = slice.tokens, .states = {}, .references = {}};
  check(slice.first_position == sequence.next(), "sequence {}: rows start at {} where {} is next", slice.id,
        slice.first_position, sequence.next());
  if (slice.role == SliceRole::verify && sequence.round.rows == 0)  // its candidates were looked up
    sequence.round = {.rows = rows, .drafted = rows, .tokens = slice.tokens, .states = {}, .references = {}};
  Sequence::Pass& pass = sequence.pass;
  check(slice.depth == pass.depth && (pass.rows == 0 || pass.rows == rows),
        "sequence {}: {} rows at depth {}, {} at {}", slice.id, rows, slice.depth, pass.rows, pass.depth);
  track_references(sequence, slice);
  if (exit != nullptr ? !exit->left : !slice.last_pass()) {
    pass = {rows, slice.depth + 1, exit != nullptr ? exit->remaining : 1, slice.states, std::move(pass.references)};
    return;
  }
  if (slice.role == SliceRole::draft) return park(sequence, slice, outcome);
  pass.states = slice.states;
  drop_pass(sequence);
  const bool decoded = exit != nullptr || (limits_.depths > 1 && !sequence.decided(slice.first_position));
  if (outcome != nullptr) append(sequence, outcome->tokens);
  const auto answered = outcome != nullptr ? static_cast<std::int32_t>(outcome->tokens.size()) : 0;
  const bool verified = slice.role == SliceRole::verify;
  leave(sequence, verified ? answered : rows, slice.depth + 1, decoded, verified);
  if (verified) end_round(sequence, slice, *outcome);
}

void Scheduler::leave(Sequence& sequence, std::int32_t rows, std::int32_t loops, bool decoded, bool verified) {
  const bool decode = verified || (rows == 1 && sequence.computed >= sequence.prompt);
  (decode ? stats_.decode_rows : stats_.prefill_rows) += rows;
  for (std::int32_t row = 0; decoded && row < rows; ++row) {
    sequence.loops.push_back(static_cast<std::uint8_t>(loops));
    if (sequence.computed + row >= sequence.prompt - 1) ++stats_.decoded_loops[static_cast<std::size_t>(loops - 1)];
  }
  stats_.recomputed_rows += std::clamp(sequence.most_computed - sequence.computed, 0, rows);
  sequence.computed += rows;
  sequence.most_computed = std::max(sequence.most_computed, sequence.computed);
  if (!limits_.prefix_cache) return;
  extend_chain(sequence);
  index_blocks(sequence);
}

void Scheduler::index_blocks(Sequence& sequence) {
  const auto depths = static_cast<std::size_t>(limits_.depths);
  for (; sequence.indexed_blocks < sequence.computed / kPageTokens; ++sequence.indexed_blocks) {
    const auto block = static_cast<std::size_t>(sequence.indexed_blocks);
    const auto pages = std::span(sequence.table).subspan(block * depths, depths);
    if (!index_.insert(sequence.chain[block], pages)) continue;
    for (const PageId page : pages) pool_.set_cached(page, true);
  }
}

/// A block of a looped model is known when the loops of all its tokens are.
void Scheduler::extend_chain(Sequence& sequence) {
  if (!limits_.prefix_cache) return;
  if (limits_.depths == 1 && !limits_.sparse_tables) {
    index_.extend(sequence.chain, sequence.tokens);
  } else if (limits_.depths == 1) {
    if (sequence.tokens.size() / kPageTokens == sequence.chain.size()) return;
    std::vector<std::uint16_t> modes(sequence.tokens.size());
    for (std::size_t i = 0; i < modes.size(); ++i) modes[i] = sequence.sparse(static_cast<std::int32_t>(i)) ? 256 : 0;
    index_.extend(sequence.chain, sequence.tokens, modes);
  } else if (sequence.loops.size() / kPageTokens > sequence.chain.size()) {
    // Planes from the request's last loop on are not written: its number of loops counts too.
    std::vector<std::uint16_t> modes;
    for (const std::uint8_t loops : sequence.loops) {
      const bool sparse = limits_.capture_depth > 0 && sequence.sparse(static_cast<std::int32_t>(modes.size()));
      modes.push_back(static_cast<std::uint16_t>((sparse ? 256 : 0) | (sequence.rule.max - 1) << 4 | (loops - 1)));
    }
    index_.extend(sequence.chain, std::span(sequence.tokens).first(modes.size()), modes);
  }
}

void Scheduler::take_states(const StepPlan& plan) {
  std::vector<std::int32_t> taken;
  for (const PlanSlice& slice : plan.slices)
    if (slice.depth == 0) taken.insert(taken.end(), slice.states.begin(), slice.states.end());
  check(taken.size() <= free_states_.size(), "the plan takes {} states, {} are free", taken.size(),
        free_states_.size());
  std::vector<std::int32_t> free(free_states_.end() - std::ssize(taken), free_states_.end());
  free_states_.resize(free_states_.size() - taken.size());
  std::sort(taken.begin(), taken.end());
  std::sort(free.begin(), free.end());
  check(taken == free, "the plan takes states that are not the free ones");
}

/// A plan that still holds the row of an earlier use of the slot ends here, whatever else it got right.
void Scheduler::track_references(Sequence& sequence, const PlanSlice& slice) {
  std::vector<ReferenceLease>& leases = sequence.pass.references;
  if (slice.mode == sdk::RowMode::capture) {
    for (std::size_t row = 0; row < slice.references.size(); ++row) {
      leases.push_back(
          references_.reserve(slice.references[row], slice.id, static_cast<std::uint64_t>(slice.first_position) + row));
      references_.captured(leases.back());
    }
    stats_.captured_rows += slice.num_rows();
  } else if (slice.mode == sdk::RowMode::consume) {
    check(leases.size() == slice.references.size(), "sequence {} consumes {} references of {}", slice.id,
          slice.references.size(), leases.size());
    for (std::size_t row = 0; row < leases.size(); ++row)
      check(references_.readable(leases[row]) && references_.reference(leases[row]) == slice.references[row],
            "sequence {} consumes slot {}, which with its list pages is not its own", slice.id,
            slice.references[row].slot);
    stats_.consumed_rows += slice.num_rows();
  } else if (slice.mode == sdk::RowMode::select) {
    stats_.selecting_rows += slice.num_rows();
  }
}

/// With the round that it belongs to.
void Scheduler::drop_pass(Sequence& sequence) {
  for (const auto* leases : {&sequence.pass.references, &sequence.round.references})
    for (const ReferenceLease& lease : *leases)
      check(references_.release(lease), "sequence {}: its reference is stale", sequence.id);
  for (const auto* states : {&sequence.pass.states, &sequence.round.states})
    free_states_.insert(free_states_.end(), states->begin(), states->end());
  sequence.pass = {};
  sequence.round = {};
}

void Scheduler::append(Sequence& sequence, std::span<const std::int32_t> tokens) {
  sequence.tokens.insert(sequence.tokens.end(), tokens.begin(), tokens.end());
  check(sequence.size() - sequence.prompt <= sequence.max_tokens, "sequence {} generated more than its {} tokens",
        sequence.id, sequence.max_tokens);
}

void Scheduler::release_pages(Sequence& sequence, std::int32_t blocks) {
  // From the end: a block is of use only with all blocks before it, so its tail should be taken first.
  const auto kept = std::min(static_cast<std::size_t>(blocks * limits_.depths), sequence.table.size());
  while (sequence.table.size() > kept) {
    pool_.release(sequence.table.back());
    sequence.table.pop_back();
  }
}

Sequence& Scheduler::running_sequence(SequenceId id) {
  const auto found = alive_.find(id);
  check(found != alive_.end(), "the plan names sequence {}, which is not alive", id);
  return *found->second;
}

void Scheduler::forget_prefixes() {
  for (PageId page = 0; page < pool_.size(); ++page)
    for (PageId forgotten : index_.forget(page)) pool_.set_cached(forgotten, false);
}

bool Scheduler::idle() const { return running_.empty() && waiting_.empty(); }
std::int32_t Scheduler::waiting() const { return static_cast<std::int32_t>(waiting_.size()); }
std::int32_t Scheduler::running() const { return static_cast<std::int32_t>(running_.size()); }

std::int32_t Scheduler::cached_tokens(SequenceId id) const {
  const auto found = alive_.find(id);
  return found == alive_.end() ? 0 : std::max(found->second->cached, 0);
}

const SchedulerStats& Scheduler::stats() const { return stats_; }

}  // namespace tessera
