// A loaded model on a backend: runs planned steps and gives back logits. Knows no requests.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/sha256.h"
#include "base/status.h"
#include "config/config.h"
#include "model/decoder.h"
#include "registry/registry.h"
#include "sched/scheduler.h"
#include "tessera/sdk/attention.h"
#include "tessera/sdk/backend.h"

namespace tessera {

struct RunnerOptions {
  bool all_logits = false;          // every row may want logits (evaluation), not only one a sequence
  WeightSource* weights = nullptr;  // with `spec`: instead of the checkpoint at config.model.path (benchmarks)
  const DecoderSpec* spec = nullptr;
};

/// What a step gives back.
struct StepResult {
  std::vector<float> logits;          // [answered][vocab]
  std::vector<std::size_t> answered;  // indices of the plan's slices that left and want logits, ascending
  std::vector<ExitOutcome> exits;     // of the slices with an exit rule
};

/// Used by one thread.
class Runner {
 public:
  static Result<std::unique_ptr<Runner>> open(const Config& config, Registry& registry, const RunnerOptions& options);

  const DecoderSpec& spec() const { return decoder_->spec(); }
  Decoder& decoder() { return *decoder_; }
  sdk::Backend& backend() { return *backend_.get(); }
  const sdk::Descriptor& attention_descriptor() const { return attention_.descriptor(); }
  std::uint64_t attention_fallbacks() const { return attention_->fallbacks(); }
  std::int32_t max_context() const { return limits_.max_context; }
  std::int32_t num_pages() const { return kv_.num_pages; }
  const sdk::StepLimits& limits() const { return limits_; }
  /// Hex SHA-256 over everything an answer's bits depend on: version, model files, profile, backend, attention.
  const std::string& fingerprint() const { return fingerprint_; }

  /// One pass of every slice, each at its depth.
  Status step(const StepPlan& plan, StepResult& result);
  /// All passes of a plan that nobody scheduled, `loops` of them (0 = the model's), without exits. Logits [slices that
  /// want them, in plan order][vocab]; with `every_row`, of all rows (needs all_logits).
  Status run(const StepPlan& plan, std::vector<float>& logits, bool every_row = false, std::int32_t loops = 0);

 private:
  Runner() = default;
  Status load_model(const Config& config, const RunnerOptions& options);
  Status size_pool(const Config& config);
  sdk::PackedRows pack(const StepPlan& plan, bool every_row);
  /// Sorts the answers of rows that may leave from those of rows that did.
  void judge(const StepPlan& plan, StepResult& result);
  /// The KV of rows that left early, where later rows look for it.
  Status copy_left(const StepPlan& plan, const StepResult& result);

  PluginPtr<sdk::Backend> backend_;
  PluginPtr<sdk::Attention> attention_;
  std::unique_ptr<Decoder> decoder_;
  DecoderSpec spec_;
  Digest model_digest_{};
  sdk::StepLimits limits_{};
  sdk::KvView kv_{};
  void* workspace_ = nullptr;
  std::string fingerprint_;
  // One step's metadata, kept to reuse the memory.
  std::vector<std::int32_t> tokens_, positions_, row_slice_, pages_, logit_rows_, states_;
  std::vector<float> exits_;
  std::vector<sdk::KvCopy> copies_;
  std::vector<sdk::Slice> slices_;
};

/// What the scheduler may plan for this configuration and runner.
SchedulerLimits scheduler_limits(const Config& config, const Runner& runner);

}  // namespace tessera
