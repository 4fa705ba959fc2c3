// The engine without threads: submit, cancel, step. One thread owns it (engine/service.h).
#pragma once
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "engine/answer.h"
#include "engine/drafts.h"
#include "engine/metrics.h"
#include "engine/runner.h"
#include "request/request.h"
#include "sample/sampler.h"
#include "sched/scheduler.h"
#include "tessera/sdk/frontend.h"
#include "text/tokenizer.h"

namespace tessera {

class Engine {
 public:
  /// `tokenizer` and `metrics` outlive the engine.
  Engine(std::unique_ptr<Runner> runner, const SchedulerLimits& limits, Acceptance acceptance,
         const Tokenizer& tokenizer, Metrics& metrics);

  const Runner& runner() const { return *runner_; }

  /// `ticket` is the caller's and never reused. Events of the request go to `sink` until its terminal event.
  Status submit(std::uint64_t ticket, Request request, sdk::EventSink& sink);
  /// Terminal: pages return now, a `cancelled` event is delivered. Unknown tickets are ignored.
  void cancel(std::uint64_t ticket);
  /// One packed step of what the host draws for, and one more round in flight of what the device draws for itself.
  /// False when there is nothing to do.
  bool step();
  bool idle() const { return scheduler_.idle() && flights_.empty(); }
  const SchedulerStats& stats() const { return scheduler_.stats(); }
  const PagePool& pages() const { return pool_; }
  const ReferenceStore& references() const { return scheduler_.references(); }
  void cancel_all();

 private:
  struct Choice {
    SequenceId sequence;
    Answer answer;
    RoundDrafts drafts;
  };
  struct Job {
    std::uint64_t ticket;
    Request request;
    sdk::EventSink* sink;
    std::vector<Choice> choices;
    std::int32_t open = 0;
    bool started = false;
    Status failure;  // set within a step; the request ends after the commit
    std::int32_t cached_tokens = 0;
    std::int64_t submitted_ns = 0;
  };
  struct Place {
    Job* job;
    std::size_t choice;
  };

  /// Plans, runs and commits. False when there was nothing to do.
  bool run_step();
  /// Ends the requests that a step or a round has completed.
  void end_completed();
  // Rounds on the device (flights.cpp).
  /// Whether one was enqueued; a failure ends its requests.
  bool launch_round();
  /// Waits for the oldest round in flight and tells its requests.
  void land_round();
  void land_all();
  RoundOutcome take_answer(const Place& place, SequenceId id, const sdk::RoundAnswer& answer);
  /// Every round in flight is dropped unread, and its requests end.
  void fail_rounds(const Status& status);
  void announce_starts(const StepPlan& plan);
  void drop_preempted(const StepPlan& plan);
  /// Samples one slice and tells its request; of a draft nobody else learns.
  StepOutcome take_tokens(const PlanSlice& slice, std::span<const float> logits);
  Result<Sampled> sample_at(const Place& place, std::int32_t position, std::span<const float> logits);
  /// As if the round's candidates so far were confirmed; without logprobs, which nobody sees.
  std::int32_t propose(const Place& place, const PlanSlice& slice, std::span<const float> logits);
  void deliver(Job& job, std::size_t choice, const Sampled& sampled);
  void end(Job& job, sdk::EventKind kind, const Status* status);
  void fail_step(const StepPlan& plan, const Status& status);
  void publish();
  sdk::Usage usage(const Job& job) const;

  std::unique_ptr<Runner> runner_;
  SchedulerLimits limits_;
  Acceptance acceptance_;
  PagePool pool_;
  Scheduler scheduler_;
  const Tokenizer& tokenizer_;
  Metrics& metrics_;
  std::map<std::uint64_t, std::unique_ptr<Job>> jobs_;
  std::map<SequenceId, Place> sequences_;
  SequenceId next_sequence_ = 1;
  SampleScratch scratch_;
  StepResult result_;
  std::deque<RoundPlan> flights_;  // oldest first
  bool recalled_ = false;          // the next step is planned before another round is launched
};

}  // namespace tessera
