#include "bench/attention_bench.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <functional>

#include "base/progress.h"
#include "bench/attention_check.h"
#include "bench/attention_corpus.h"
#include "bench/attention_fixture.h"

namespace tessera {
namespace {

constexpr double kShortestSample = 5e-3;  // seconds
constexpr std::int64_t kGraphRuns = 50;   // recorded in one graph, at most

/// One variant launched one way.
struct Contender {
  sdk::Attention* attention;
  AttentionTiming timing;
  std::uint64_t graph = 0;
  std::int64_t graph_runs = 0;
  std::vector<double> samples;  // seconds of one run
};

struct Stage {
  std::unique_ptr<AttentionFixture> fixture;  // first: outlives what is bound to it
  std::vector<PluginPtr<sdk::Attention>> attentions;
};

/// Seconds of `count` runs, all enqueued before the one wait.
Result<double> time_runs(AttentionFixture& fixture, Contender& contender, std::int64_t count) {
  const auto start = std::chrono::steady_clock::now();
  const bool replayed = contender.timing.replayed;
  for (std::int64_t i = 0; i < count; i += replayed ? contender.graph_runs : 1)
    TESSERA_TRY(replayed ? fixture.backend().replay(contender.graph) : fixture.enqueue(*contender.attention));
  TESSERA_TRY(fixture.wait());
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Warms up, and finds how many runs make a sample long enough to trust. The faster of two counts: a slow moment of the
/// machine must not leave one variant with short samples.
Status calibrate(AttentionFixture& fixture, Contender& contender) {
  TESSERA_TRY(fixture.plan(*contender.attention));
  contender.timing.runs = std::max<std::int64_t>(1, contender.graph_runs);
  for (;;) {
    double fastest = HUGE_VAL;
    for (int i = 0; i < 2 && fastest >= kShortestSample; ++i) {
      auto seconds = time_runs(fixture, contender, contender.timing.runs);
      if (!seconds.ok()) return seconds.status();
      fastest = std::min(fastest, *seconds);
    }
    if (fastest >= kShortestSample || contender.timing.runs > 1'000'000) return {};
    contender.timing.runs *= 2;
  }
}

Status record_graph(AttentionFixture& fixture, Contender& contender, std::int64_t runs) {
  TESSERA_TRY(fixture.plan(*contender.attention));
  TESSERA_TRY(fixture.backend().capture_begin());
  Status status;
  for (std::int64_t i = 0; i < runs && status.ok(); ++i) status = fixture.enqueue(*contender.attention);
  TESSERA_TRY(fixture.backend().capture_end(&contender.graph));
  contender.graph_runs = runs;
  return status;
}

/// Of the step planned last.
std::vector<sdk::KernelFacts> kernels_of(const sdk::Attention& attention) {
  std::array<sdk::KernelFacts, 16> facts{};
  const std::int32_t count = attention.kernels(facts.data(), static_cast<std::int32_t>(facts.size()));
  return {facts.begin(), facts.begin() + count};
}

Result<std::vector<Contender>> contenders_of(Stage& stage, const std::vector<std::string>& variants) {
  std::vector<Contender> contenders;
  for (std::size_t i = 0; i < variants.size(); ++i) {
    Contender eager{stage.attentions[i].get(), {variants[i], false, 1, {}, {}, 0, {}}, 0, 0, {}};
    TESSERA_TRY(calibrate(*stage.fixture, eager));
    eager.timing.kernels = kernels_of(*eager.attention);
    contenders.push_back(eager);
  }
  for (std::size_t i = 0; i < variants.size(); ++i) {
    const std::uint64_t both = stage.fixture->capabilities() & stage.attentions[i].descriptor().traits.capabilities;
    if ((both & sdk::kGraphCapturable) == 0) continue;
    Contender replayed{stage.attentions[i].get(), {variants[i], true, 1, {}, {}, 0, {}}, 0, 0, {}};
    TESSERA_TRY(record_graph(*stage.fixture, replayed, std::min(kGraphRuns, contenders[i].timing.runs)));
    TESSERA_TRY(calibrate(*stage.fixture, replayed));
    contenders.push_back(replayed);
  }
  return contenders;
}

/// Ratios pair the samples of one round, so that a slow moment of the machine hits both sides.
void summarize(std::vector<Contender>& contenders, const Roof& roof, AttentionBenchRow& row) {
  for (Contender& contender : contenders) {
    const auto baseline = std::find_if(contenders.begin(), contenders.end(), [&](const Contender& other) {
      return other.timing.replayed == contender.timing.replayed;
    });
    std::vector<double> ratios, microseconds;
    for (std::size_t round = 0; round < contender.samples.size(); ++round) {
      ratios.push_back(baseline->samples[round] / contender.samples[round]);
      microseconds.push_back(contender.samples[round] * 1e6);
    }
    AttentionTiming& timing = contender.timing;
    timing.ratio = spread_of(ratios);
    timing.microseconds = spread_of(microseconds);
    if (roof.flops > 0) {
      const double least = std::max(row.flops / roof.flops, row.bytes / roof.bytes_per_second);
      timing.of_roof = least / (timing.microseconds.median * 1e-6);
    }
    row.timings.push_back(timing);
  }
}

Status bench_shape(Stage& stage, const BenchShape& shape, const std::vector<std::string>& variants,
                   const AttentionBenchOptions& options, const Roof& roof, AttentionBenchRow& row) {
  AttentionFixture& fixture = *stage.fixture;
  std::vector<std::int32_t> lengths;
  std::vector<Part> parts;
  for (const RowRange& slice : shape.slices) {
    parts.push_back({static_cast<std::int32_t>(parts.size()), slice.start, slice.length});
    lengths.push_back(slice.start + slice.length);
  }
  fixture.place_anything(lengths);
  TESSERA_TRY(fixture.pack_anything(parts));
  auto contenders = contenders_of(stage, variants);
  if (!contenders.ok()) return contenders.status();
  for (std::int32_t round = 0; round < options.rounds; ++round)
    for (Contender& contender : *contenders) {
      TESSERA_TRY(fixture.plan(*contender.attention));
      auto seconds = time_runs(fixture, contender, contender.timing.runs);
      if (!seconds.ok()) return seconds.status();
      contender.samples.push_back(*seconds / static_cast<double>(contender.timing.runs));
    }
  summarize(*contenders, roof, row);
  return {};
}

AttentionBenchRow describe(const BenchShape& shape, const AttentionGeometry& geometry) {
  AttentionBenchRow row{shape.name, num_rows(shape.slices), causal_pairs(shape.slices), 0, 0, {}, {}};
  row.flops = 4.0 * geometry.head_dim * geometry.q_heads * static_cast<double>(row.pairs);
  double positions = 0;
  for (const RowRange& slice : shape.slices) positions += slice.start + slice.length;
  row.bytes = 4.0 * (2.0 * geometry.kv_width() * positions + 2.0 * geometry.q_width() * static_cast<double>(row.rows));
  return row;
}

Result<Stage> open_stage(const Config& config, Registry& registry, const AttentionGeometry& geometry,
                         const std::vector<BenchShape>& shapes, const std::vector<std::string>& variants,
                         const std::string& default_variant) {
  std::vector<AttentionCase> cases;
  for (const BenchShape& shape : shapes)
    cases.push_back({shape.name, geometry, shape.slices, Profile::normal, 0, false});
  Stage stage;
  auto fixture = AttentionFixture::open(config.backend, registry, geometry, limits_for(cases));
  if (!fixture.ok()) return fixture.status();
  stage.fixture = std::move(*fixture);
  const PluginConfig reference{.name = "attention_reference", .path = {}, .options = {}, .where = {"bench", 0, 0}};
  for (const std::string& variant : variants) {
    auto made = registry.create<sdk::Attention>(
        variant == "reference" ? reference : with_variant(config.attention, variant, default_variant),
        stage.fixture->device());
    if (!made.ok()) return made.status();
    TESSERA_TRY(stage.fixture->bind(*made->get()));
    stage.attentions.push_back(std::move(*made));
  }
  return stage;
}

/// Shapes of at most 1024 positions share a stage; a longer one has its own, so that one too large ends nothing.
std::vector<std::vector<BenchShape>> stages_of(const AttentionBenchOptions& options) {
  std::vector<std::vector<BenchShape>> stages(1);
  for (BenchShape& shape : attention_shapes(options.prefill)) {
    const auto named = [&](const std::string& part) { return shape.name.find(part) != std::string::npos; };
    if (!options.shapes.empty() && std::none_of(options.shapes.begin(), options.shapes.end(), named)) continue;
    const bool fits = std::all_of(shape.slices.begin(), shape.slices.end(),
                                  [](const RowRange& slice) { return slice.start + slice.length <= 1024; });
    if (fits)
      stages[0].push_back(std::move(shape));
    else
      stages.push_back({std::move(shape)});
  }
  if (stages[0].empty()) stages.erase(stages.begin());
  return stages;
}

Result<std::vector<std::string>> choose_variants(const std::vector<std::string>& known,
                                                 const std::vector<std::string>& wanted) {
  const auto has = [&](const std::string& name) { return std::find(known.begin(), known.end(), name) != known.end(); };
  std::vector<std::string> chosen = wanted;
  if (wanted.empty()) {
    chosen = {"reference"};
    for (const char* name : {"exact-q4-k64", "auto"})
      if (has(name)) chosen.emplace_back(name);
  }
  for (const std::string& name : chosen)
    if (name != "reference" && !has(name))
      return fail(Code::invalid_argument, "there is no variant '{}'; there are reference, {}", name,
                  fmt::join(known, ", "));
  return chosen;
}

}  // namespace

Spread spread_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return {values[values.size() / 2], values.front(), values.back()};
}

std::vector<BenchShape> attention_shapes(bool prefill) {
  std::vector<BenchShape> shapes;
  const auto add = [&](std::string name, std::size_t count, RowRange slice) {
    shapes.push_back({std::move(name), std::vector<RowRange>(count, slice)});
  };
  for (const std::int32_t rows : {1, 16, 32, 64, 128, 256, 512, 768, 941, 1024})
    add(fmt::format("single-{}", rows), 1, {0, rows});
  for (const RowRange shape : {RowRange{16, 16}, {8, 32}, {4, 64}, {4, 128}, {4, 256}, {8, 128}, {2, 512}})
    add(fmt::format("{}x{}", shape.start, shape.length), static_cast<std::size_t>(shape.start), {0, shape.length});
  for (const std::int32_t start : {0, 64, 256, 512, 960}) add(fmt::format("history-64-at-{}", start), 4, {start, 64});
  add("scheduled-4x512-first", 4, {0, 256});
  add("scheduled-4x512-second", 4, {256, 256});
  shapes.push_back({"heterogeneous", {{0, 17}, {63, 64}, {255, 129}, {512, 257}}});
  const auto decode = [&](std::size_t rows, std::int32_t history) {
    add(fmt::format("decode-{}-at-{}", rows, history), rows, {history - 1, 1});
  };
  for (const std::int32_t history : {1'024, 8'192, 32'768})
    for (const std::size_t rows : {1, 4, 16, 64}) decode(rows, history);
  decode(1, 2'048), decode(8, 2'048);
  if (prefill)
    for (const RowRange shape : {RowRange{1, 2'048}, {8, 2'048}, {1, 8'192}, {1, 32'768}})
      add(fmt::format("{}x{}", shape.start, shape.length), static_cast<std::size_t>(shape.start), {0, shape.length});
  return shapes;
}

Result<AttentionBench> bench_attention(const Config& config, Registry& registry, const AttentionBenchOptions& options) {
  auto known = attention_variants(config, registry);
  if (!known.ok()) return known.status();
  auto variants = choose_variants(*known, options.variants);
  if (!variants.ok()) return variants.status();
  AttentionBench bench{config.attention.name, config.backend.name, {}, {}, {}};
  bench.geometry.layers = 1, bench.geometry.layer = 0;
  const auto stages = stages_of(options);
  if (stages.empty())
    return fail(Code::invalid_argument, "no shape has a name like '{}'", fmt::join(options.shapes, "', '"));
  Progress progress("timing attention", 0);
  for (const auto& shapes : stages) {
    auto stage = open_stage(config, registry, bench.geometry, shapes, *variants, known->front());
    if (!stage.ok() && stage.status().code != Code::resource_exhausted) return stage.status();
    if (stage.ok() && bench.roof.flops == 0) bench.roof = measure_roof(stage->fixture->backend());
    for (const BenchShape& shape : shapes) {
      bench.rows.push_back(describe(shape, bench.geometry));
      if (!stage.ok())
        bench.rows.back().skipped = stage.status().message;
      else
        TESSERA_TRY(bench_shape(*stage, shape, *variants, options, bench.roof, bench.rows.back()));
      progress.advance(1);
    }
  }
  return bench;
}

}  // namespace tessera
