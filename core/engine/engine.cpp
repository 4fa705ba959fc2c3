#include "engine/engine.h"

#include <chrono>
#include <limits>

#include "base/check.h"
#include "base/log.h"
#include "engine/confirm.h"

namespace tessera {
namespace {

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

const char* outcome_name(sdk::EventKind kind) {
  switch (kind) {
    case sdk::EventKind::finished: return "finished";
    case sdk::EventKind::cancelled: return "cancelled";
    default: return "failed";
  }
}

}  // namespace

Engine::Engine(std::unique_ptr<Runner> runner, const SchedulerLimits& limits, Acceptance acceptance,
               const Tokenizer& tokenizer, Metrics& metrics)
    : runner_(std::move(runner)),
      limits_(limits),
      acceptance_(acceptance),
      pool_(runner_->num_pages()),
      scheduler_(limits, pool_),
      tokenizer_(tokenizer),
      metrics_(metrics) {
  publish();
}

Status Engine::submit(std::uint64_t ticket, Request request, sdk::EventSink& sink) {
  std::vector<SequenceSpec> specs;
  const DraftSource source = draft_source(acceptance_, limits_, request.sampling, request.loops);
  for (std::int32_t i = 0; i < request.num_choices; ++i)
    specs.push_back({next_sequence_ + static_cast<SequenceId>(i), request.prompt, request.max_tokens, request.loops,
                     source == DraftSource::first_loops, drawn_by_best(request.sampling, request.top_logprobs)});
  if (Status status = scheduler_.submit(specs); !status.ok()) {
    metrics_.request_refused();
    return status;
  }
  next_sequence_ += specs.size();
  auto job = std::make_unique<Job>();
  job->ticket = ticket;
  job->request = std::move(request);
  job->sink = &sink;
  job->open = job->request.num_choices;
  job->submitted_ns = now_ns();
  for (const SequenceSpec& spec : specs) {
    sequences_[spec.id] = {job.get(), job->choices.size()};
    job->choices.push_back({spec.id, Answer(job->request, runner_->spec().eos, tokenizer_), RoundDrafts(source)});
  }
  jobs_[ticket] = std::move(job);
  metrics_.request_accepted();
  publish();
  return {};
}

void Engine::cancel(std::uint64_t ticket) {
  const auto found = jobs_.find(ticket);
  if (found == jobs_.end()) return;
  end(*found->second, sdk::EventKind::cancelled, nullptr);
  publish();
}

void Engine::cancel_all() {
  while (!jobs_.empty()) cancel(jobs_.begin()->first);
}

bool Engine::step() {
  const std::int64_t begin = now_ns();
  const std::size_t before = flights_.size();
  while (scheduler_.leaving() > 0) land_round();
  if (scheduler_.in_flight() == limits_.rounds_in_flight && limits_.rounds_in_flight > 1) land_round();
  const bool launched = !recalled_ && launch_round();
  const bool stepped = run_step();
  if (!launched && !flights_.empty()) land_round();  // no younger round will call for it, however long steps go on
  const bool landed = flights_.size() < before + (launched ? 1 : 0);
  if (!stepped && !launched && !landed) {
    check(scheduler_.idle(), "nothing is planned while {} sequences wait and {} run", scheduler_.waiting(),
          scheduler_.running());
    return false;
  }
  metrics_.step_seconds(static_cast<double>(now_ns() - begin) * 1e-9);
  publish();
  return true;
}

bool Engine::run_step() {
  while (scheduler_.leaving() > 0) land_round();
  const StepPlan plan = scheduler_.plan();
  recalled_ = plan.recall;
  if (plan.recall) {
    land_all();
    return true;
  }
  if (plan.empty() && plan.preempted.empty()) return false;
  announce_starts(plan);
  drop_preempted(plan);
  if (Status status = runner_->step(plan, result_); !status.ok()) {
    fail_step(plan, status);
    return true;
  }
  if (!result_.masses.empty()) metrics_.retained_mass(result_.masses, runner_->spec().layers);
  const auto vocab = static_cast<std::size_t>(runner_->spec().vocab);
  std::vector<StepOutcome> outcomes;
  std::size_t row = 0;
  for (const std::size_t index : result_.answered) {
    const PlanSlice& slice = plan.slices[index];
    const auto rows = static_cast<std::size_t>(slice.num_answers());
    outcomes.push_back(take_tokens(slice, std::span(result_.logits).subspan(vocab * row, vocab * rows)));
    row += rows;
  }
  scheduler_.commit(plan, outcomes, result_.exits);
  end_completed();
  return true;
}

void Engine::end_completed() {
  for (auto next = jobs_.begin(); next != jobs_.end();) {
    Job& job = *(next++)->second;
    if (!job.failure.ok()) {
      const Status failure = job.failure;
      end(job, sdk::EventKind::failed, &failure);
    } else if (job.open == 0) {
      end(job, sdk::EventKind::finished, nullptr);
    }
  }
}

void Engine::announce_starts(const StepPlan& plan) {
  for (const StepPlan::Admission& admission : plan.admitted) {
    const Place place = sequences_.at(admission.id);
    if (place.job->started) continue;
    place.job->started = true;
    place.job->cached_tokens = static_cast<std::int32_t>(admission.hits.size()) * sdk::kPageSize;
    metrics_.tokens(static_cast<std::int64_t>(place.job->request.prompt.size()), 0);
    sdk::EventView event{};
    event.kind = sdk::EventKind::started;
    event.seed = place.job->request.sampling.seed;
    place.job->sink->on_event(event);
  }
}

void Engine::drop_preempted(const StepPlan& plan) {
  for (const SequenceId id : plan.preempted) {
    const Place place = sequences_.at(id);
    place.job->choices[place.choice].drafts.drop();
  }
}

Result<Sampled> Engine::sample_at(const Place& place, std::int32_t position, std::span<const float> logits) {
  const Request& request = place.job->request;
  const Choice& choice = place.job->choices[place.choice];
  return choice.drafts.take(logits,
                            {request.sampling, static_cast<std::uint32_t>(place.choice),
                             static_cast<std::uint32_t>(position), request.prompt, choice.answer.tokens()},
                            request.top_logprobs, scratch_);
}

std::int32_t Engine::propose(const Place& place, const PlanSlice& slice, std::span<const float> logits) {
  const Request& request = place.job->request;
  Choice& choice = place.job->choices[place.choice];
  std::vector<std::int32_t> generated = choice.answer.tokens();
  generated.insert(generated.end(), slice.candidates.begin(), slice.candidates.end());
  return choice.drafts.propose(slice, logits,
                               {request.sampling, static_cast<std::uint32_t>(place.choice),
                                static_cast<std::uint32_t>(slice.first_position + 1), request.prompt, generated},
                               scratch_);
}

StepOutcome Engine::take_tokens(const PlanSlice& slice, std::span<const float> logits) {
  const Place place = sequences_.at(slice.id);
  Job& job = *place.job;
  if (!job.failure.ok()) return {slice.id, {0}, true};
  Choice& choice = job.choices[place.choice];
  if (slice.role == SliceRole::draft) return {slice.id, {propose(place, slice, logits)}, false};
  const auto take = [&](std::span<const float> row, std::int32_t position) -> std::optional<std::int32_t> {
    const auto sampled = sample_at(place, position, row);
    if (!sampled.ok()) {
      job.failure = sampled.status();
      return {};
    }
    if (choice.answer.tokens().empty())
      metrics_.first_token_seconds(static_cast<double>(now_ns() - job.submitted_ns) * 1e-9);
    deliver(job, place.choice, *sampled);
    return sampled->token;
  };
  const auto ends = [&] { return choice.answer.finish() != sdk::FinishReason::none; };
  StepOutcome outcome{slice.id, confirm(slice, logits, take, ends), false};
  choice.drafts.drop();
  outcome.finished = !job.failure.ok() || ends();
  if (outcome.tokens.empty()) outcome.tokens = {0};  // of a failed sequence, which ends
  return outcome;
}

void Engine::deliver(Job& job, std::size_t index, const Sampled& sampled) {
  Choice& choice = job.choices[index];
  const std::string text = choice.answer.push(sampled.token);
  metrics_.tokens(0, 1);
  std::vector<sdk::TokenProb> top;
  for (const RankedToken& ranked : sampled.top)
    top.push_back({ranked.token, ranked.logprob, tokenizer_.bytes(ranked.token)});
  const sdk::TokenView token{{sampled.token, sampled.logprob, tokenizer_.bytes(sampled.token)}, top};
  sdk::EventView event{};
  event.kind = sdk::EventKind::delta;
  event.choice = static_cast<std::int32_t>(index);
  event.text = text;
  event.tokens = std::span(&token, 1);
  event.seed = job.request.sampling.seed;
  job.sink->on_event(event);
  if (choice.answer.finish() == sdk::FinishReason::none) return;
  --job.open;
  sdk::EventView done{};
  done.kind = sdk::EventKind::choice_done;
  done.choice = static_cast<std::int32_t>(index);
  done.finish = choice.answer.finish();
  done.stop_match = choice.answer.stop_match();
  done.seed = job.request.sampling.seed;
  job.sink->on_event(done);
}

void Engine::end(Job& job, sdk::EventKind kind, const Status* status) {
  for (const Choice& choice : job.choices) {
    scheduler_.cancel(choice.sequence);
    sequences_.erase(choice.sequence);
  }
  sdk::EventView event{};
  event.kind = kind;
  event.usage = usage(job);
  event.status = status;
  event.seed = job.request.sampling.seed;
  job.sink->on_event(event);
  metrics_.request_ended(outcome_name(kind));
  jobs_.erase(job.ticket);
}

void Engine::fail_step(const StepPlan& plan, const Status& status) {
  log(LogLevel::error, "a step failed, its requests end: {}", status.message);
  if (!flights_.empty()) fail_rounds(status);
  // Their rows may have been written half, and over the pages of those the step preempted. All others keep theirs.
  std::vector<SequenceId> touched = plan.preempted;
  for (const PlanSlice& slice : plan.slices) touched.push_back(slice.id);
  for (const SequenceId id : touched)
    if (const auto found = sequences_.find(id); found != sequences_.end())
      end(*found->second.job, sdk::EventKind::failed, &status);
  scheduler_.forget_prefixes();
  publish();
}

sdk::Usage Engine::usage(const Job& job) const {
  sdk::Usage result;
  result.prompt_tokens = static_cast<std::int32_t>(job.request.prompt.size());
  result.cached_tokens = job.cached_tokens;
  for (const Choice& choice : job.choices)
    result.completion_tokens += static_cast<std::int32_t>(choice.answer.tokens().size());
  return result;
}

void Engine::publish() {
  metrics_.scheduler(scheduler_.stats(), scheduler_.waiting(), scheduler_.running());
  metrics_.pages(pool_.in_use(), pool_.size());
  const ReferenceStore& references = scheduler_.references();
  metrics_.references(references.outstanding(), references.high_water(), references.size());
  metrics_.list_pages(references.outstanding_pages(), references.pages_high_water(), references.list_pages());
  if (runner_->rounds() != nullptr) metrics_.declined_rounds(runner_->rounds()->declined());
  metrics_.graphs(runner_->graphs().stats(), runner_->graphs().size());
  metrics_.attention_fallbacks(runner_->attention_fallbacks());
}

}  // namespace tessera
