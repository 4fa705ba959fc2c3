// Counters and gauges, in Prometheus' text form (prometheus-cpp). Thread-safe.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "model/graph_cache.h"
#include "sched/scheduler.h"

namespace tessera {

class Metrics {
 public:
  Metrics();
  ~Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  void request_accepted();
  void request_refused();
  /// outcome: "finished", "failed" or "cancelled".
  void request_ended(const std::string& outcome);
  void tokens(std::int64_t prompt, std::int64_t generated);
  void first_token_seconds(double seconds);
  void step_seconds(double seconds);
  void scheduler(const SchedulerStats& stats, std::int32_t waiting, std::int32_t running);
  /// Slots of sparse decoding: taken now, taken at most at any time, and there in all.
  void references(std::int32_t in_use, std::int32_t high_water, std::int32_t total);
  /// Likewise of the pages of its index lists.
  void list_pages(std::int32_t in_use, std::int32_t high_water, std::int32_t total);
  /// Rounds of greedy sequences that the device could not be given, and that were decoded by steps.
  void declined_rounds(std::int64_t count);
  /// Of the last sample of captured rows: the attention that selections kept, [layer][each].
  void retained_mass(std::span<const float> masses, std::int32_t layers);
  void pages(std::int32_t in_use, std::int32_t total);
  /// Passes by how they were launched, and recorded ones that are kept.
  void graphs(const GraphStats& stats, std::int32_t kept);
  /// Attention calls that a slower kernel than the one asked for had to serve.
  void attention_fallbacks(std::uint64_t count);
  /// What serves: model, fingerprint and plugins, as labels of tessera_info.
  void info(const std::string& model, const std::string& fingerprint, const std::string& backend,
            const std::string& attention, const std::string& variant);

  std::string text() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera
