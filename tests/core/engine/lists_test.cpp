// How much memory index lists take, and that a tight pool changes no answer.
#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "bench/simulate.h"
#include "engine/limits.h"
#include "support.h"

using namespace tessera;

namespace {

/// Pages of lists that keep a share of what each row sees.
std::vector<std::int32_t> pages_of(double retention, std::int32_t max_context) {
  std::vector<std::int32_t> pages;
  for (std::int32_t n = 1; n <= max_context; ++n)
    pages.push_back(static_cast<std::int32_t>(std::ceil(std::ceil(n * retention) / sdk::kListPage)));
  return pages;
}

}  // namespace

TEST_CASE(
    "of a long context and few KV pages, lists take a fraction of the worst case, and never less than one needs") {
  ListDemand demand{.pages = pages_of(0.1, 8192), .sequences = 16, .rows = 8, .positions = 16384, .cheap = 0};
  const std::int64_t worst = 16 * 8 * 13;
  CHECK(demand.pages.back() == 13);
  const std::int64_t tight = list_pool_size(demand);  // two sequences of the whole context
  MESSAGE(tight, " of ", worst);
  CHECK(tight >= 8 * (16 + 25));
  CHECK(tight <= 8 * (16 + 27));
  demand.positions = 16;
  CHECK(list_pool_size(demand) == 8 * (16 + 1));
  demand.sequences = 2;
  CHECK(list_pool_size(demand) == 8 * 13);  // one sequence alone
  demand.sequences = 16, demand.positions = 16 * 8192;
  CHECK(list_pool_size(demand) == worst);
  demand.positions = 16384, demand.cheap = 1000;
  CHECK(list_pool_size(demand) == 1000);
  demand.cheap = 1'000'000'000;
  CHECK(list_pool_size(demand) == worst);
}

TEST_CASE("what is claimed for positions that the KV pool can hold suffices however sequences share them out") {
  for (const double retention : {0.02, 0.1, 0.3, 0.9}) {
    const std::vector<std::int32_t> pages = pages_of(retention, 1024);
    for (const std::int32_t each : {1, 63, 64, 65, 100, 640, 1024})
      for (const std::int32_t sequences : {1, 3, 16}) {
        const ListDemand demand{
            .pages = pages, .sequences = sequences, .rows = 1, .positions = each * sequences, .cheap = 0};
        CHECK(list_pool_size(demand) >= sequences * pages[static_cast<std::size_t>(each) - 1]);
      }
  }
}

TEST_CASE("index lists are claimed for the KV pool that is there, and what waits for them answers the same") {
  std::vector<SimulatedRequest> requests;
  for (std::int32_t i = 0; i < 6; ++i) {
    SimulatedRequest request{.prompt = std::vector<std::int32_t>(20), .sampling = {}, .max_tokens = 12};
    std::iota(request.prompt.begin(), request.prompt.end(), 100 + i);
    request.sampling.temperature = 0;
    request.loops = {.max = 4, .sparse_from = 0};
    requests.push_back(request);
  }
  Config config = looped_config("", "0.9");
  config.speculation.kind = "self";
  config.cache.pages = 512;  // 2048 positions
  const auto open = [&](std::int32_t context) {
    config.model.max_context = context;
    auto plugins = registry();
    auto runner = Runner::open(config, plugins, {});
    REQUIRE_MESSAGE(runner.ok(), runner.status().message);
    return std::move(*runner);
  };
  const auto wide = open(2048);
  const std::int32_t rows = wide->limits().max_decode_rows, worst = rows * wide->list_pages()->back();
  MESSAGE(wide->num_list_pages(), " list pages of ", worst);
  CHECK(wide->num_list_pages() < worst / 4);
  CHECK(wide->num_list_pages() >= worst / wide->limits().max_slices);
  CHECK(wide->limits().max_list_pages == worst);

  const auto runner = open(64);
  SimulationOptions options{.limits = scheduler_limits(config, *runner)};
  const auto roomy = simulate(*runner, requests, options);
  options.limits.num_list_pages = runner->list_pages()->back() * options.limits.round_rows();
  options.page_seed = 3;
  const auto tight = simulate(*runner, requests, options);
  REQUIRE_MESSAGE(roomy.ok(), roomy.status().message);
  REQUIRE_MESSAGE(tight.ok(), tight.status().message);
  CHECK(tight->stats.steps > 2 * roomy->stats.steps);  // they took turns
  for (std::size_t i = 0; i < requests.size(); ++i) {
    CHECK(roomy->traces[i].tokens == tight->traces[i].tokens);
    REQUIRE(roomy->traces[i].logits.size() == tight->traces[i].logits.size());
    for (std::size_t j = 0; j < roomy->traces[i].logits.size(); ++j)
      REQUIRE(std::bit_cast<std::uint32_t>(roomy->traces[i].logits[j]) ==
              std::bit_cast<std::uint32_t>(tight->traces[i].logits[j]));
  }
}

TEST_CASE("metrics tell how many pages of index lists are held, were held at most, and are there") {
  Bench bench(looped_config("", "0.25"));
  Recorder recorder;
  Request request = request_of(300, 4);
  request.loops = {.max = 4, .sparse_from = bench.engine->runner().sparse_from()};
  REQUIRE(bench.engine->submit(1, request, recorder).ok());
  while (bench.engine->step()) {
  }
  CHECK(bench.metric("tessera_reference_list_pages_in_use 0"));
  CHECK(bench.metric("tessera_reference_list_pages_high_water 2"));  // a quarter of some 300 positions
  CHECK(bench.metric("tessera_reference_list_pages " + std::to_string(bench.engine->runner().num_list_pages())));
}
