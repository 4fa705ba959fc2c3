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
  }
  return text;
}

Scheduler::Scheduler(const SchedulerLimits& limits, PagePool& pool)
    : limits_(limits),
      pool_(pool),
      index_(limits.depths, ""),
      references_(limits.capture_depth > 0 ? 2 * limits.max_batch : 0) {
  check(limits.max_batch >= 1, "max_batch is {}, at least 1 is needed", limits.max_batch);
  check(limits.step_tokens >= limits.max_batch, "step_tokens {} is less than max_batch {}: decode rows could not ride",
        limits.step_tokens, limits.max_batch);
  check(limits.chunk_cap >= 0, "chunk_cap is {}", limits.chunk_cap);
  if (limits.depths > 1)  // preempted rows give theirs back only when the step is committed
    for (std::int32_t state = 2 * limits.step_tokens; state > 0; --state) free_states_.push_back(state - 1);
}

Scheduler::~Scheduler() {
  for (const auto& sequence : running_) release_pages(*sequence);
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
  Sequence* const sequence = found->second;
  drop_pass(*sequence);
  release_pages(*sequence);
  alive_.erase(found);
  const auto same = [&](const auto& other) { return other.get() == sequence; };
  if (std::erase_if(running_, same) == 0) std::erase_if(waiting_, same);
  return true;
}

bool Scheduler::alive(SequenceId id) const { return alive_.contains(id); }

StepPlan Scheduler::plan() const {
  return Planner(limits_, pool_, index_, running_, waiting_, free_states_, references_.free()).run(steps_);
}

void Scheduler::commit(const StepPlan& plan, std::span<const StepOutcome> outcomes,
                       std::span<const ExitOutcome> exits) {
  check(plan.number == steps_, "plan {} was committed where plan {} is due", plan.number, steps_);
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

  take_states(plan);
  for (const SequenceId id : plan.preempted) preempt(id);
  for (const auto& admission : plan.admitted) admit(admission);
  for (const auto& item : plan.grants) grant(item);
  for (const PlanSlice& slice : plan.slices) advance(slice, slice.exit ? decided.at(slice.id) : nullptr);
  for (const StepOutcome& outcome : outcomes) {
    check(wanted.erase(outcome.id) == 1, "an outcome of sequence {}, which wants none (any more)", outcome.id);
    apply(outcome);
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

void Scheduler::advance(const PlanSlice& slice, const ExitOutcome* exit) {
  Sequence& sequence = running_sequence(slice.id);
  const auto rows = static_cast<std::int32_t>(slice.tokens.size());
  check(slice.first_position == sequence.computed, "sequence {}: rows start at {}, {} positions are computed", slice.id,
        slice.first_position, sequence.computed);
  Sequence::Pass& pass = sequence.pass;
  check(slice.depth == pass.depth && (pass.rows == 0 || pass.rows == rows),
        "sequence {}: {} rows at depth {}, {} at {}", slice.id, rows, slice.depth, pass.rows, pass.depth);
  track_reference(sequence, slice);
  if (exit != nullptr ? !exit->left : !slice.last_pass()) {
    pass = {rows, slice.depth + 1, exit != nullptr ? exit->remaining : 1, slice.states, pass.reference};
    return;
  }
  pass.states = slice.states;
  drop_pass(sequence);
  leave(sequence, slice, exit != nullptr || (limits_.depths > 1 && !sequence.decided(slice.first_position)));
}

void Scheduler::leave(Sequence& sequence, const PlanSlice& slice, bool decoded) {
  const auto rows = static_cast<std::int32_t>(slice.tokens.size());
  const bool decode = rows == 1 && sequence.computed >= sequence.prompt;
  (decode ? stats_.decode_rows : stats_.prefill_rows) += rows;
  if (decoded) {
    sequence.loops.push_back(static_cast<std::uint8_t>(slice.depth + 1));
    if (slice.first_position >= sequence.prompt - 1) ++stats_.decoded_loops[static_cast<std::size_t>(slice.depth)];
  }
  stats_.recomputed_rows += std::clamp(sequence.most_computed - sequence.computed, 0, rows);
  sequence.computed += rows;
  sequence.most_computed = std::max(sequence.most_computed, sequence.computed);
  if (!limits_.prefix_cache) return;
  if (decoded) extend_chain(sequence);
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
  if (limits_.depths == 1) {
    index_.extend(sequence.chain, sequence.tokens);
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
  const auto first = free_states_.end() - std::ssize(taken);
  check(taken.size() <= free_states_.size() && std::is_permutation(first, free_states_.end(), taken.begin()),
        "the plan takes {} states that are not the free ones", taken.size());
  free_states_.erase(first, free_states_.end());
}

/// A plan that still holds the row of an earlier use of the slot ends here, whatever else it got right.
void Scheduler::track_reference(Sequence& sequence, const PlanSlice& slice) {
  std::optional<ReferenceLease>& reference = sequence.pass.reference;
  if (slice.mode == sdk::RowMode::capture) {
    reference = references_.reserve(slice.reference, slice.id, static_cast<std::uint64_t>(slice.first_position));
    references_.captured(*reference);
    ++stats_.captured_rows;
  } else if (slice.mode == sdk::RowMode::consume) {
    check(reference && reference->slot == slice.reference && references_.readable(*reference),
          "sequence {} consumes slot {}, which is not its own", slice.id, slice.reference);
    ++stats_.consumed_rows;
  }
}

void Scheduler::drop_pass(Sequence& sequence) {
  if (sequence.pass.reference)
    check(references_.release(*sequence.pass.reference), "sequence {}: its reference is stale", sequence.id);
  free_states_.insert(free_states_.end(), sequence.pass.states.begin(), sequence.pass.states.end());
  sequence.pass = {};
}

void Scheduler::apply(const StepOutcome& outcome) {
  Sequence& sequence = running_sequence(outcome.id);
  sequence.tokens.push_back(outcome.token);
  check(sequence.size() - sequence.prompt <= sequence.max_tokens, "sequence {} generated more than its {} tokens",
        sequence.id, sequence.max_tokens);
  if (outcome.finished) {
    alive_.erase(outcome.id);
  } else if (limits_.depths == 1) {
    extend_chain(sequence);
  }
}

void Scheduler::release_pages(Sequence& sequence) {
  // From the end: a block is of use only with all blocks before it, so its tail should be taken first.
  for (auto page = sequence.table.rbegin(); page != sequence.table.rend(); ++page) pool_.release(*page);
  sequence.table.clear();
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
