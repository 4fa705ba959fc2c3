#include "model/graph_cache.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include "support/recording_backend.h"

using namespace tessera;

namespace {

/// Records how often "the step" was launched since capture_begin, and replays that.
class Recorder final : public RecordingBackend {
 public:
  virtual ~Recorder() = default;

  int launched = 0;  // outside of recordings, and by replays
  bool begins = true, records = true;
  std::vector<std::uint64_t> kept;

  Status launch() {
    ++(recording_ ? recorded_ : launched);
    return {};
  }

  sdk::Status capture_begin() noexcept override {
    if (!begins) return sdk::fail(sdk::Code::unsupported, "this stream records nothing");
    recording_ = true, recorded_ = 0;
    return {};
  }
  sdk::Status capture_end(std::uint64_t* graph) noexcept override {
    recording_ = false;
    if (!records) return sdk::fail(sdk::Code::internal, "this step allocates");
    kept.push_back(*graph = ++last_);
    return {};
  }
  sdk::Status replay(std::uint64_t graph) noexcept override {
    CHECK(std::find(kept.begin(), kept.end(), graph) != kept.end());
    launched += 1;
    return {};
  }
  sdk::Status forget(std::uint64_t graph) noexcept override {
    CHECK(std::erase(kept, graph) == 1);
    return {};
  }

 private:
  bool recording_ = false;
  int recorded_ = 0;
  std::uint64_t last_ = 0;
};

}  // namespace

TEST_CASE("a step is launched the first time, recorded the second time and replayed from then on") {
  Recorder backend;
  GraphCache cache(backend, 4);
  for (int i = 0; i < 5; ++i) REQUIRE(cache.run({1, 2}, [&] { return backend.launch(); }).ok());
  CHECK(backend.launched == 5);
  CHECK(cache.stats().eager == 1);
  CHECK(cache.stats().recorded == 1);
  CHECK(cache.stats().replayed == 4);
}

TEST_CASE("steps with different keys never share a graph") {
  Recorder backend;
  GraphCache cache(backend, 8);
  for (int i = 0; i < 3; ++i)
    for (const GraphKey& key : {GraphKey{1, 2}, GraphKey{2, 1}, GraphKey{1, 2, 0}})
      REQUIRE(cache.run(key, [&] { return backend.launch(); }).ok());
  CHECK(cache.stats().recorded == 3);
  CHECK(cache.size() == 3);
}

TEST_CASE("the least recently used graph makes room, and the backend forgets it") {
  Recorder backend;
  GraphCache cache(backend, 2);
  const auto run = [&](std::uint64_t key) { REQUIRE(cache.run({key}, [&] { return backend.launch(); }).ok()); };
  for (const std::uint64_t key : {1, 1, 2, 2, 1, 3, 3}) run(key);  // 2 goes
  CHECK(backend.kept == std::vector<std::uint64_t>{1, 3});
  const auto recorded = cache.stats().recorded;
  run(1);
  CHECK(cache.stats().recorded == recorded);
  run(2);  // a stranger again
  CHECK(cache.stats().recorded == recorded);
  CHECK(cache.stats().forgotten == 1);
  REQUIRE(cache.set_capacity(0).ok());
  CHECK(backend.kept.empty());
  run(1);
  run(1);
  CHECK(cache.size() == 0);
}

TEST_CASE("many keys that never return are not recorded") {
  Recorder backend;
  GraphCache cache(backend, 4);
  for (std::uint64_t key = 0; key < 1000; ++key) REQUIRE(cache.run({key}, [&] { return backend.launch(); }).ok());
  CHECK(cache.stats().eager == 1000);
  CHECK(cache.stats().recorded == 0);
}

TEST_CASE("a step that cannot be recorded is launched every time, and tried once") {
  for (const bool begins : {true, false}) {
    Recorder backend;
    backend.begins = begins, backend.records = false;
    GraphCache cache(backend, 4);
    for (int i = 0; i < 4; ++i) REQUIRE(cache.run({7}, [&] { return backend.launch(); }).ok());
    CHECK(backend.launched == 4);
    CHECK(cache.stats().recorded == 0);
    CHECK(cache.stats().eager == 4);
  }
}

TEST_CASE("a step that fails while it is recorded leaves no graph behind") {
  Recorder backend;
  GraphCache cache(backend, 4);
  const auto fails = [] { return fail(Code::internal, "no such kernel"); };
  REQUIRE(cache.run({7}, [&] { return backend.launch(); }).ok());
  CHECK(!cache.run({7}, fails).ok());
  CHECK(backend.kept.empty());
  CHECK(cache.size() == 0);
  CHECK(cache.stats().recorded == 0);
  for (int i = 0; i < 2; ++i) REQUIRE(cache.run({7}, [&] { return backend.launch(); }).ok());
  CHECK(cache.stats().recorded == 1);
}
