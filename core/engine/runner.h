// A loaded model on a backend: runs planned steps and gives back logits. Knows no requests.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/sha256.h"
#include "base/status.h"
#include "config/config.h"
#include "engine/device_rounds.h"
#include "engine/packer.h"
#include "model/decoder.h"
#include "registry/registry.h"
#include "sched/scheduler.h"
#include "tessera/sdk/attention.h"
#include "tessera/sdk/backend.h"
#include "tessera/sdk/sparse_decode.h"

namespace tessera {

/// Of so many steps that capture rows, and of so many rounds on the device, the masses of one are looked at.
inline constexpr std::int64_t kMassSteps = 64;

struct RunnerOptions {
  bool all_logits = false;          // every row may want logits (evaluation), not only one a sequence
  WeightSource* weights = nullptr;  // with `spec`: instead of the checkpoint at config.model.path (benchmarks)
  const DecoderSpec* spec = nullptr;
  bool masses = false;  // report the retained mass of all captured rows (evaluation), not only of a sample
};

/// What a step gives back.
struct StepResult {
  std::vector<float> logits;          // [answered rows][vocab]
  std::vector<std::size_t> answered;  // indices of the plan's slices that left and want logits: num_answers() rows each
  std::vector<ExitOutcome> exits;     // of the slices with an exit rule
  std::vector<float> masses;  // see PassAnswer; of a sample of the steps that capture rows, or of all (RunnerOptions)
  std::int32_t heads = 0;     // of the model: the last extent of masses
};

/// Hidden states after the final norm, for each loop those of all rows in turn: [rows][hidden].
using LoopStates = std::vector<std::vector<float>>;

/// Used by one thread.
class Runner {
 public:
  static Result<std::unique_ptr<Runner>> open(const Config& config, Registry& registry, const RunnerOptions& options);

  const DecoderSpec& spec() const { return decoder_->spec(); }
  Decoder& decoder() { return *decoder_; }
  sdk::Backend& backend() { return *backend_.get(); }
  const sdk::Descriptor& attention_descriptor() const { return attention_.descriptor(); }
  std::uint64_t attention_fallbacks() const { return attention_->fallbacks(); }
  /// Depth at which sparse rows are captured; 0 = decoding is dense.
  std::int32_t capture_depth() const { return sparse_active_ && !sparse_tables_ ? sparse_->capture_depth() : 0; }
  /// Whether sparse rows attend to some of their pages.
  bool sparse_tables() const { return sparse_active_ && sparse_tables_; }
  /// Position of the first decoded row that may be sparse: it sees `sparse_decode.crossover` positions.
  std::int32_t sparse_from() const { return sparse_active_ ? crossover_ - 1 : LoopParams::kNever; }
  std::int32_t max_context() const { return limits_.max_context; }
  std::int32_t num_pages() const { return kv_.num_pages; }
  /// Of index lists; see SchedulerLimits::list_pages.
  std::int32_t num_list_pages() const { return num_list_pages_; }
  const std::shared_ptr<const std::vector<std::int32_t>>& list_pages() const { return list_pages_; }
  const sdk::KvView& kv() const { return kv_; }
  std::size_t weight_bytes() const { return decoder_->weight_bytes(); }
  /// Set aside when the KV pool is sized, for what the device keeps of recorded passes.
  std::int64_t graph_bytes() const;
  GraphCache& graphs() { return *graphs_; }
  const GraphCache& graphs() const { return *graphs_; }
  /// Null unless the configuration lets rounds be in flight.
  DeviceRounds* rounds() { return rounds_.get(); }
  const sdk::StepLimits& limits() const { return limits_; }
  /// Hex SHA-256 over everything an answer's bits depend on: version, model files, profile, backend, attention, sparse
  /// decoding, and speculation when its acceptance is rejection.
  const std::string& fingerprint() const { return fingerprint_; }

  /// One pass of every slice, each at its depth.
  Status step(const StepPlan& plan, StepResult& result);
  /// All passes of a plan that nobody scheduled, `loops` of them (0 = the model's), without exits. Logits [slices that
  /// want them, in plan order][vocab]; with `every_row`, of all rows (needs all_logits). Of a looped model `states`
  /// gets what each pass left in the state bank.
  Status run(const StepPlan& plan, std::vector<float>& logits, bool every_row = false, std::int32_t loops = 0,
             LoopStates* states = nullptr);
  /// Exit probabilities after the last pass, in the order of its logits; empty without a gate.
  const std::vector<float>& exits() const { return answer_.exits; }

 private:
  Runner() = default;
  Status load_model(const Config& config, const RunnerOptions& options);
  Status open_sparse(const Config& config, Registry& registry);
  Status bind_sparse(const Config& config);
  /// Asks the strategy how many list pages rows need.
  void plan_lists();
  Status size_lists(const Config& config);
  Status check_references(const Config& config);
  void open_graphs(const Config& config);
  Status open_rounds(const Config& config);
  PassContext context();
  /// Of the packed step: whether its retained masses are fetched.
  bool wants_masses();
  std::int64_t wanted_pages(const Config& config) const;
  /// KV pages that fit in the share of the memory that is free now.
  Result<std::int64_t> affordable_pages(const Config& config, std::int64_t reserved) const;
  Status size_pool(const Config& config);
  /// Sorts the answers of rows that may leave from those of rows that did.
  void judge(const StepPlan& plan, StepResult& result);
  /// The KV of rows that left early, where later rows look for it.
  Status copy_left(const StepPlan& plan, const StepResult& result);

  PluginPtr<sdk::Backend> backend_;
  PluginPtr<sdk::Attention> attention_;
  PluginPtr<sdk::SparseDecode> sparse_;
  bool sparse_active_ = false;
  bool sparse_tables_ = false;
  bool masses_ = false;
  std::int64_t capturing_steps_ = 0;
  std::int32_t crossover_ = 1;
  std::int32_t num_list_pages_ = 0;
  std::shared_ptr<const std::vector<std::int32_t>> list_pages_;
  std::unique_ptr<Decoder> decoder_;
  std::unique_ptr<GraphCache> graphs_;
  DecoderSpec spec_;
  Digest model_digest_{};
  sdk::StepLimits limits_{};
  sdk::KvView kv_{};
  void* workspace_ = nullptr;
  void* sparse_workspace_ = nullptr;
  std::string fingerprint_;
  std::unique_ptr<StepPacker> packer_;
  std::unique_ptr<DeviceRounds> rounds_;  // null: none are in flight ever
  PassAnswer answer_;
  std::vector<sdk::KvCopy> copies_;
};

/// How decoded rows of this runner are sparse: its capture depth and list pages, or tables.
void set_sparse(SchedulerLimits& limits, const Runner& runner);

/// What the scheduler may plan for this configuration and runner.
SchedulerLimits scheduler_limits(const Config& config, const Runner& runner);

}  // namespace tessera
