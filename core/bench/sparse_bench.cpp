#include "bench/sparse_bench.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <numeric>
#include <set>

#include "base/progress.h"
#include "bench/attention_fixture.h"
#include "bench/sparse_config.h"

namespace tessera {
namespace {

constexpr double kShortestSample = 5e-3;  // seconds

/// What is timed: one layer, enqueued.
struct Work {
  std::function<Status()> enqueue;
  std::int64_t runs = 1;          // in one sample
  std::vector<double> samples{};  // microseconds of one run
};
using Works = std::array<Work, 3>;  // dense, capture, consume

Result<double> time_once(AttentionFixture& fixture, const Work& work) {
  const auto start = std::chrono::steady_clock::now();
  for (std::int64_t i = 0; i < work.runs; ++i) TESSERA_TRY(work.enqueue());
  TESSERA_TRY(fixture.wait());
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

Status calibrate(AttentionFixture& fixture, Work& work) {
  TESSERA_TRY(work.enqueue());
  TESSERA_TRY(fixture.wait());
  for (;; work.runs *= 2) {
    auto seconds = time_once(fixture, work);
    if (!seconds.ok()) return seconds.status();
    if (*seconds >= kShortestSample || work.runs > 100'000) return {};
  }
}

/// The same work from a recorded graph of one run.
Result<Work> replayed(AttentionFixture& fixture, const Work& work) {
  std::uint64_t graph = 0;
  TESSERA_TRY(fixture.backend().capture_begin());
  const Status status = work.enqueue();
  TESSERA_TRY(fixture.backend().capture_end(&graph));
  if (!status.ok()) return status;
  return Work{[&fixture, graph] { return fixture.backend().replay(graph); }};
}

Status time_rounds(AttentionFixture& fixture, std::int32_t rounds, Works& works) {
  for (Work& work : works) TESSERA_TRY(calibrate(fixture, work));
  for (std::int32_t round = 0; round < rounds; ++round)
    for (Work& work : works) {
      auto seconds = time_once(fixture, work);
      if (!seconds.ok()) return seconds.status();
      work.samples.push_back(*seconds / static_cast<double>(work.runs) * 1e6);
    }
  return {};
}

void summarize(const Works& works, SparseBenchRow& row) {
  const auto& [dense, capture, consume] = works;
  std::vector<double> ratios;
  for (std::size_t i = 0; i < dense.samples.size(); ++i)
    ratios.push_back((dense.samples[i] + capture.samples[i] + 2 * consume.samples[i]) / (4 * dense.samples[i]));
  row.dense = spread_of(dense.samples), row.capture = spread_of(capture.samples);
  row.consume = spread_of(consume.samples), row.ratio = spread_of(ratios);
}

Status take_masses(AttentionFixture& fixture, SparseBenchRow& row) {
  const auto masses = fixture.masses();
  if (!masses.ok()) return masses.status();
  row.mass.mean = std::accumulate(masses->begin(), masses->end(), 0.0) / static_cast<double>(masses->size());
  row.mass.least = *std::min_element(masses->begin(), masses->end());
  return {};
}

struct Plugins {
  PluginPtr<sdk::Attention> attention;
  PluginPtr<sdk::SparseDecode> sparse;
};

Status bench_context(const Config& config, Registry& registry, const AttentionGeometry& geometry,
                     const SparseBenchOptions& options, SparseBench& bench, std::int32_t rows, std::int32_t context) {
  const std::int64_t blocks = (context + sdk::kPageSize - 1) / sdk::kPageSize + 1;
  const std::int32_t most_lists = (context + sdk::kListPage - 1) / sdk::kListPage;  // whatever is kept
  SparseBenchRow row{.kv_heads = geometry.kv_heads, .rows = rows, .context = context};
  row.dense_bytes = 2.0 * sizeof(float) * geometry.kv_width() * context * rows;
  auto fixture =
      AttentionFixture::open(config.backend, registry, geometry, {rows, rows, context, blocks * rows, most_lists});
  if (!fixture.ok() && fixture.status().code == Code::resource_exhausted) {
    row.skipped = fixture.status().message;
    bench.rows.push_back(row);
    return {};
  }
  if (!fixture.ok()) return fixture.status();
  AttentionFixture& stage = **fixture;
  if (bench.roof.flops == 0) bench.roof = measure_roof(stage.backend());
  Plugins plugins;
  auto attention = registry.create<sdk::Attention>(config.attention, stage.device());
  if (!attention.ok()) return attention.status();
  plugins.attention = std::move(*attention);
  auto sparse = registry.create<sdk::SparseDecode>(config.sparse_decode.plugin, stage.device());
  if (!sparse.ok()) return sparse.status();
  plugins.sparse = std::move(*sparse);
  TESSERA_TRY(stage.bind(*plugins.attention.get()));
  TESSERA_TRY(stage.bind(*plugins.sparse.get()));
  TESSERA_TRY(stage.fill_noise(1));
  std::vector<Part> parts;
  for (std::int32_t i = 0; i < rows; ++i) parts.push_back({i, context - 1, 1});
  stage.place_anything(std::vector<std::int32_t>(parts.size(), context));
  TESSERA_TRY(stage.pack_anything(parts));
  TESSERA_TRY(stage.plan(*plugins.attention.get()));
  TESSERA_TRY(stage.plan(*plugins.sparse.get()));
  Works eager{Work{[&] { return stage.enqueue(*plugins.attention.get()); }},
              Work{[&] { return stage.enqueue_capture(*plugins.attention.get(), *plugins.sparse.get()); }},
              Work{[&] { return stage.enqueue_consume(*plugins.sparse.get()); }}};
  TESSERA_TRY(time_rounds(stage, options.rounds, eager));
  summarize(eager, row);
  row.list_pages = plugins.sparse->list_pages(context - 1);
  TESSERA_TRY(take_masses(stage, row));
  bench.rows.push_back(row);
  const std::uint64_t all = stage.capabilities() & plugins.attention.descriptor().traits.capabilities &
                            plugins.sparse.descriptor().traits.capabilities;
  if ((all & sdk::kGraphCapturable) == 0) return {};
  Works graphs;
  for (std::size_t i = 0; i < eager.size(); ++i) {
    auto recorded = replayed(stage, eager[i]);
    if (!recorded.ok()) return recorded.status();
    graphs[i] = std::move(*recorded);
  }
  TESSERA_TRY(time_rounds(stage, options.rounds, graphs));
  row.replayed = true;
  summarize(graphs, row);
  bench.rows.push_back(row);
  return {};
}

}  // namespace

std::int32_t SparseBench::crossover() const {
  const bool replays = std::any_of(rows.begin(), rows.end(), [](const SparseBenchRow& row) { return row.replayed; });
  std::set<std::int32_t> contexts;
  std::int32_t slower = 0;  // the highest context where any was
  for (const SparseBenchRow& row : rows) {
    if (row.replayed != replays || !row.skipped.empty()) continue;
    contexts.insert(row.context);
    if (row.ratio.median >= 1) slower = std::max(slower, row.context);
  }
  const auto first = contexts.upper_bound(slower);
  return first == contexts.end() ? 0 : *first;
}

Result<SparseBench> bench_sparse(const Config& config, Registry& registry, const SparseBenchOptions& options) {
  const Config named = with_strategy(config, "bench sparse");
  SparseBench bench{named.sparse_decode.plugin.name, config.backend.name, retention_of(named), {}, {}};
  Progress progress("timing sparse decoding",
                    static_cast<std::int64_t>(options.kv_heads.size() * options.rows.size() * options.contexts.size()));
  for (const std::int32_t heads : options.kv_heads)
    for (const std::int32_t rows : options.rows)
      for (const std::int32_t context : options.contexts) {
        AttentionGeometry geometry = options.geometry;
        geometry.kv_heads = heads;
        TESSERA_TRY(bench_context(named, registry, geometry, options, bench, rows, context));
        progress.advance(1);
      }
  return bench;
}

}  // namespace tessera
