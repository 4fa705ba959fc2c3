#include "bench/bench.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <numeric>

#include "engine/runner.h"
#include "model/weights.h"

namespace tessera {
namespace {

struct Times {
  double median, fastest, slowest;  // seconds
};

Times time_rounds(int rounds, const std::function<void()>& work) {
  work();  // warm
  std::vector<double> times;
  for (int i = 0; i < rounds; ++i) {
    const auto start = std::chrono::steady_clock::now();
    work();
    times.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  std::sort(times.begin(), times.end());
  return {times[times.size() / 2], times.front(), times.back()};
}

BenchRow flops_row(std::string name, const Times& t, double flops, double tokens) {
  return {std::move(name),         t.median * 1e3, t.fastest * 1e3,  t.slowest * 1e3,
          flops / t.median * 1e-9, "GFLOP/s",      tokens / t.median};
}

BenchRow bytes_row(std::string name, const Times& t, double bytes, double tokens) {
  return {std::move(name),         t.median * 1e3, t.fastest * 1e3,  t.slowest * 1e3,
          bytes / t.median * 1e-9, "GB/s",         tokens / t.median};
}

/// One slice of `rows` tokens from position `first` of sequence `id`, on its own pages.
PlanSlice slice_of(std::int32_t id, std::int32_t first, std::int32_t rows, std::int32_t blocks) {
  PlanSlice slice{static_cast<SequenceId>(id), first, {}, {}, true};
  for (std::int32_t i = 0; i < rows; ++i) slice.tokens.push_back((id * 131 + first + i) % 50000);
  slice.pages.resize(static_cast<std::size_t>(blocks));
  std::iota(slice.pages.begin(), slice.pages.end(), (id - 1) * blocks);
  return slice;
}

}  // namespace

DecoderSpec bench_spec() {
  DecoderSpec spec;
  spec.family = "llama";
  spec.vocab = 50304;
  spec.hidden = 768;
  spec.intermediate = 2048;
  spec.layers = 12;
  spec.q_heads = 12;
  spec.kv_heads = 3;
  spec.head_dim = 64;
  spec.max_context = 2048;
  spec.rotary = {10000.0, 64};
  spec.tied_embeddings = true;
  return spec;
}

Result<std::unique_ptr<Runner>> open_random(const Config& config, Registry& registry, sdk::DType type) {
  Config wide = config;
  wide.model.max_context = 0;
  wide.cache.pages = 0;
  RandomWeights weights(1, type);
  const DecoderSpec spec = bench_spec();
  return Runner::open(wide, registry, {.all_logits = false, .weights = &weights, .spec = &spec});
}

Result<std::vector<BenchRow>> bench_linear(const Config& config, Registry& registry, sdk::DType type) {
  auto backend = registry.create<sdk::Backend>(config.backend, sdk::Device::any);
  if (!backend.ok()) return backend.status();
  const sdk::StepLimits limits{1024, 16, 16, 2048, 2048};
  TESSERA_TRY((*backend)->bind(limits));
  // A GPU works on what is enqueued: many calls for one wait.
  const int calls = (*backend)->context().device == sdk::Device::cpu ? 1 : 50;
  struct Shape {
    std::int32_t inputs, outputs;
  };
  std::vector<BenchRow> rows;
  for (const Shape shape : {Shape{768, 1152}, Shape{768, 768}, Shape{768, 4096}, Shape{2048, 768}}) {
    RandomWeights weights(7, type);
    auto matrix = weights.matrix(TensorName::q, 0, shape.outputs, shape.inputs);
    if (!matrix.ok()) return matrix.status();
    const sdk::Linear* linear = nullptr;
    TESSERA_TRY((*backend)->prepare_linear(&*matrix, 1, nullptr, &linear));
    sdk::Matrix x{nullptr, sdk::DType::f32, 512, shape.inputs, shape.inputs};
    sdk::Matrix y{nullptr, sdk::DType::f32, 512, shape.outputs, shape.outputs};
    TESSERA_TRY((*backend)->allocate(512 * sizeof(float) * static_cast<std::size_t>(shape.inputs), &x.data));
    TESSERA_TRY((*backend)->allocate(512 * sizeof(float) * static_cast<std::size_t>(shape.outputs), &y.data));
    for (std::int32_t count : {1, 16, 64, 512}) {
      x.rows = y.rows = count;
      Status status;
      float sink = 0.0f;
      Times t = time_rounds(15, [&] {
        for (int call = 0; call < calls && status.ok(); ++call) status = (*backend)->linear(*linear, x, y);
        if (status.ok()) status = (*backend)->download(&sink, y.data, sizeof sink);  // waits for the device
      });
      if (!status.ok()) return status;
      for (double* seconds : {&t.median, &t.fastest, &t.slowest}) *seconds /= calls;
      const double flops = 2.0 * count * shape.inputs * shape.outputs;
      rows.push_back(
          flops_row(fmt::format("{} rows, {} -> {}, {}", count, shape.inputs, shape.outputs, sdk::dtype_name(type)), t,
                    flops, 0));
    }
  }
  return rows;
}

Result<std::vector<BenchRow>> bench_decode(const Config& config, Registry& registry, sdk::DType type) {
  auto runner = open_random(config, registry, type);
  if (!runner.ok()) return runner.status();
  std::vector<BenchRow> rows;
  std::vector<float> logits;
  const auto bytes = static_cast<double>((*runner)->decoder().weight_bytes());
  for (std::int32_t batch : {1, 4, 16}) {
    if (batch > (*runner)->limits().max_slices) continue;
    StepPlan plan;
    for (std::int32_t id = 1; id <= batch; ++id) plan.slices.push_back(slice_of(id, 100, 1, 8));
    Status status;
    const Times t = time_rounds(15, [&] {
      if (status.ok()) status = (*runner)->run(plan, logits);
    });
    if (!status.ok()) return status;
    rows.push_back(bytes_row(fmt::format("decode, {} sequences, {}", batch, sdk::dtype_name(type)), t, bytes, batch));
  }
  return rows;
}

Result<std::vector<BenchRow>> bench_prefill(const Config& config, Registry& registry, sdk::DType type) {
  auto runner = open_random(config, registry, type);
  if (!runner.ok()) return runner.status();
  const DecoderSpec spec = bench_spec();
  const double per_row = 2.0 * static_cast<double>(spec.parameters() - std::int64_t{spec.vocab} * spec.hidden);
  std::vector<BenchRow> rows;
  std::vector<float> logits;
  for (std::int32_t count : {64, 256, 512, 1024}) {
    if (count > (*runner)->limits().max_rows) continue;
    StepPlan plan;
    plan.slices.push_back(slice_of(1, 0, count, 64));
    Status status;
    const Times t = time_rounds(5, [&] {
      if (status.ok()) status = (*runner)->run(plan, logits);
    });
    if (!status.ok()) return status;
    rows.push_back(
        flops_row(fmt::format("prefill of {}, {}", count, sdk::dtype_name(type)), t, per_row * count, count));
  }
  return rows;
}

}  // namespace tessera
