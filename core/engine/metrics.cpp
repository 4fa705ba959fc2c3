#include "engine/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <numeric>

namespace tessera {
namespace {

const prometheus::Histogram::BucketBoundaries kSeconds{0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100};

}  // namespace

struct Metrics::Impl {
  prometheus::Registry registry;

  prometheus::Counter& counter(const char* name, const char* help, const prometheus::Labels& labels = {}) {
    return prometheus::BuildCounter().Name(name).Help(help).Register(registry).Add(labels);
  }
  prometheus::Gauge& gauge(const char* name, const char* help, const prometheus::Labels& labels = {}) {
    return prometheus::BuildGauge().Name(name).Help(help).Register(registry).Add(labels);
  }
  prometheus::Histogram& histogram(const char* name, const char* help) {
    return prometheus::BuildHistogram().Name(name).Help(help).Register(registry).Add({}, kSeconds);
  }

  prometheus::Counter& accepted = counter("tessera_requests_accepted_total", "Requests that entered the queue");
  prometheus::Counter& refused = counter("tessera_requests_refused_total", "Requests refused at submission");
  prometheus::Family<prometheus::Counter>& ended = prometheus::BuildCounter()
                                                       .Name("tessera_requests_ended_total")
                                                       .Help("Requests by how they ended")
                                                       .Register(registry);
  prometheus::Counter& prompt = counter("tessera_prompt_tokens_total", "Prompt tokens of requests that started");
  prometheus::Counter& generated = counter("tessera_generated_tokens_total", "Generated tokens");
  prometheus::Histogram& first_token =
      histogram("tessera_time_to_first_token_seconds", "From submission to the first token");
  prometheus::Histogram& step = histogram("tessera_step_seconds", "Duration of a packed step");
  prometheus::Gauge& waiting = gauge("tessera_sequences_waiting", "Sequences in the queue");
  prometheus::Gauge& running = gauge("tessera_sequences_running", "Sequences being computed");
  prometheus::Gauge& steps = gauge("tessera_steps", "Packed steps so far");
  prometheus::Gauge& rows = gauge("tessera_rows", "Rows computed so far");
  prometheus::Gauge& preemptions = gauge("tessera_preemptions", "Sequences preempted so far");
  prometheus::Gauge& hit_tokens = gauge("tessera_prefix_hit_tokens", "Prompt tokens served by the prefix cache");
  prometheus::Gauge& pages_used = gauge("tessera_kv_pages_in_use", "KV pages referenced by a sequence");
  prometheus::Gauge& pages_total = gauge("tessera_kv_pages", "KV pages of the pool");
  prometheus::Gauge& captured =
      gauge("tessera_sparse_captured_rows", "Decoded rows whose attention was captured so far");
  prometheus::Gauge& consumed = gauge("tessera_sparse_consumed_rows", "Passes of decoded rows that were sparse so far");
  prometheus::Gauge& selecting =
      gauge("tessera_sparse_selecting_rows", "Decoded rows that attended to some of their pages so far");
  prometheus::Gauge& references_used = gauge("tessera_references_in_use", "Slots of sparse decoding that a row holds");
  prometheus::Gauge& references_most = gauge("tessera_references_high_water", "The most such slots held at one time");
  prometheus::Gauge& references_total = gauge("tessera_references", "Slots of sparse decoding");
  prometheus::Gauge& lists_used =
      gauge("tessera_reference_list_pages_in_use", "Pages of index lists of sparse decoding that a row holds");
  prometheus::Gauge& lists_most =
      gauge("tessera_reference_list_pages_high_water", "The most such pages held at one time");
  prometheus::Gauge& lists_total = gauge("tessera_reference_list_pages", "Pages of index lists of sparse decoding");
  prometheus::Family<prometheus::Gauge>& decoded = prometheus::BuildGauge()
                                                       .Name("tessera_decoded_rows")
                                                       .Help("Decoded rows of a looped model by the loops they ran")
                                                       .Register(registry);
  prometheus::Gauge& rounds = gauge("tessera_speculation_rounds", "Rounds of speculation so far");
  prometheus::Gauge& device_rounds =
      gauge("tessera_speculation_device_rounds", "Rounds of a sequence so far that ran on the device alone");
  prometheus::Gauge& discarded_rounds =
      gauge("tessera_speculation_discarded_rounds", "Rounds of a sequence so far that came back after it had ended");
  prometheus::Gauge& declined_rounds =
      gauge("tessera_speculation_declined_rounds",
            "Rounds so far that the device could not run alone and that were decoded by steps");
  prometheus::Family<prometheus::Gauge>& candidates =
      prometheus::BuildGauge()
          .Name("tessera_speculation_candidates")
          .Help("Candidates by their place in the round, verified and confirmed so far")
          .Register(registry);
  prometheus::Family<prometheus::Gauge>& retained =
      prometheus::BuildGauge()
          .Name("tessera_sparse_retained_mass")
          .Help("Share of the attention that the selections of a recent step kept, over its rows and heads")
          .Register(registry);
  prometheus::Family<prometheus::Gauge>& passes =
      prometheus::BuildGauge()
          .Name("tessera_passes")
          .Help("Passes so far by how they were launched: kernel by kernel, or replayed from a graph")
          .Register(registry);
  prometheus::Gauge& graphs = gauge("tessera_graphs", "Recorded passes that are kept");
  prometheus::Gauge& graphs_recorded = gauge("tessera_graphs_recorded", "Passes recorded so far");
  prometheus::Gauge& fallbacks =
      gauge("tessera_attention_fallbacks",
            "Attention calls, launched or recorded, that a slower kernel than the one asked for served");
};

Metrics::Metrics() : impl_(std::make_unique<Impl>()) {
  for (const char* outcome : {"finished", "failed", "cancelled"}) impl_->ended.Add({{"outcome", outcome}});
}
Metrics::~Metrics() = default;

void Metrics::request_accepted() { impl_->accepted.Increment(); }
void Metrics::request_refused() { impl_->refused.Increment(); }
void Metrics::request_ended(const std::string& outcome) { impl_->ended.Add({{"outcome", outcome}}).Increment(); }

void Metrics::tokens(std::int64_t prompt, std::int64_t generated) {
  impl_->prompt.Increment(static_cast<double>(prompt));
  impl_->generated.Increment(static_cast<double>(generated));
}

void Metrics::first_token_seconds(double seconds) { impl_->first_token.Observe(seconds); }
void Metrics::step_seconds(double seconds) { impl_->step.Observe(seconds); }

void Metrics::scheduler(const SchedulerStats& stats, std::int32_t waiting, std::int32_t running) {
  impl_->waiting.Set(waiting);
  impl_->running.Set(running);
  impl_->steps.Set(static_cast<double>(stats.steps));
  impl_->rows.Set(static_cast<double>(stats.rows));
  impl_->preemptions.Set(static_cast<double>(stats.preemptions));
  impl_->hit_tokens.Set(static_cast<double>(stats.prefix_hit_tokens));
  impl_->captured.Set(static_cast<double>(stats.captured_rows));
  impl_->consumed.Set(static_cast<double>(stats.consumed_rows));
  impl_->selecting.Set(static_cast<double>(stats.selecting_rows));
  for (std::size_t i = 0; i < stats.decoded_loops.size(); ++i)
    if (stats.decoded_loops[i] > 0)
      impl_->decoded.Add({{"loops", std::to_string(i + 1)}}).Set(static_cast<double>(stats.decoded_loops[i]));
  impl_->rounds.Set(static_cast<double>(stats.rounds));
  impl_->device_rounds.Set(static_cast<double>(stats.device_rounds));
  impl_->discarded_rounds.Set(static_cast<double>(stats.discarded_rounds));
  for (std::size_t i = 0; i < stats.candidates.size() && stats.candidates[i] > 0; ++i) {
    const auto count = [&](const char* outcome, std::int64_t value) {
      impl_->candidates.Add({{"place", std::to_string(i + 1)}, {"outcome", outcome}}).Set(static_cast<double>(value));
    };
    count("verified", stats.candidates[i]);
    count("confirmed", stats.confirmed[i]);
  }
}

void Metrics::declined_rounds(std::int64_t count) { impl_->declined_rounds.Set(static_cast<double>(count)); }

void Metrics::references(std::int32_t in_use, std::int32_t high_water, std::int32_t total) {
  impl_->references_used.Set(in_use);
  impl_->references_most.Set(high_water);
  impl_->references_total.Set(total);
}

void Metrics::list_pages(std::int32_t in_use, std::int32_t high_water, std::int32_t total) {
  impl_->lists_used.Set(in_use);
  impl_->lists_most.Set(high_water);
  impl_->lists_total.Set(total);
}

void Metrics::retained_mass(std::span<const float> masses, std::int32_t layers) {
  const std::size_t each = masses.size() / static_cast<std::size_t>(layers);
  for (std::int32_t layer = 0; layer < layers; ++layer) {
    const std::span<const float> own = masses.subspan(each * static_cast<std::size_t>(layer), each);
    const auto set = [&](const char* statistic, double value) {
      impl_->retained.Add({{"layer", std::to_string(layer)}, {"statistic", statistic}}).Set(value);
    };
    set("mean", std::accumulate(own.begin(), own.end(), 0.0) / static_cast<double>(each));
    set("min", *std::min_element(own.begin(), own.end()));
  }
}

void Metrics::pages(std::int32_t in_use, std::int32_t total) {
  impl_->pages_used.Set(in_use);
  impl_->pages_total.Set(total);
}

void Metrics::graphs(const GraphStats& stats, std::int32_t kept) {
  impl_->passes.Add({{"launch", "eager"}}).Set(static_cast<double>(stats.eager));
  impl_->passes.Add({{"launch", "replayed"}}).Set(static_cast<double>(stats.replayed));
  impl_->graphs.Set(kept);
  impl_->graphs_recorded.Set(static_cast<double>(stats.recorded));
}

void Metrics::attention_fallbacks(std::uint64_t count) { impl_->fallbacks.Set(static_cast<double>(count)); }

void Metrics::info(const std::string& model, const std::string& fingerprint, const std::string& backend,
                   const std::string& attention, const std::string& variant) {
  impl_
      ->gauge("tessera_info", "What serves: always 1",
              {{"model", model},
               {"fingerprint", fingerprint},
               {"backend", backend},
               {"attention", attention},
               {"variant", variant}})
      .Set(1);
}

std::string Metrics::text() const { return prometheus::TextSerializer().Serialize(impl_->registry.Collect()); }

}  // namespace tessera
