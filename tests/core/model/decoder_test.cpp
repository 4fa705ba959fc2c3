// What a forward pass asks of its backend and plugins, on one that computes nothing: docs/looped-defects.md.
#include "model/decoder.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "support/recording_backend.h"

namespace tessera {
namespace {

constexpr std::int32_t kContext = 4096, kLayers = 3;

DecoderSpec looped() {
  DecoderSpec spec;
  spec.vocab = 64, spec.hidden = 64, spec.intermediate = 32, spec.layers = kLayers;
  spec.q_heads = spec.kv_heads = 1, spec.head_dim = 64;
  spec.max_context = kContext;
  spec.rotary = {1e6, 64};
  spec.loops = 4;
  return spec;
}

std::unique_ptr<Decoder> load(RecordingBackend& backend) {
  RandomWeights weights(1, sdk::DType::bf16);
  const sdk::StepLimits limits{.max_rows = 16,
                               .max_slices = 4,
                               .max_logit_rows = 4,
                               .max_context = kContext,
                               .max_pages = 64,
                               .max_decode_rows = 8};
  auto decoder = Decoder::load(looped(), weights, backend, limits, true);
  REQUIRE_MESSAGE(decoder.ok(), decoder.status().message);
  return std::move(*decoder);
}

/// Records that it recorded.
struct GraphBackend final : RecordingBackend {
  virtual ~GraphBackend() = default;
  sdk::Status capture_begin() noexcept override { return {}; }
  sdk::Status capture_end(std::uint64_t* graph) noexcept override {
    *graph = ++graphs;
    return {};
  }
  sdk::Status replay(std::uint64_t) noexcept override { return {}; }
  std::uint64_t graphs = 0;
};

struct Attention final : sdk::Attention {
  explicit Attention(std::vector<std::string>& log) : calls(log) {}
  virtual ~Attention() = default;
  sdk::Status bind(const sdk::AttentionShape&, const sdk::StepLimits&, const sdk::DeviceContext&,
                   std::size_t&) noexcept override {
    return {};
  }
  sdk::Status plan(const sdk::PackedRows&) noexcept override { return {}; }
  std::uint64_t topology() const noexcept override { return number; }
  std::uint64_t number = 0;
  sdk::Status run(const sdk::AttentionArgs&, const sdk::DeviceContext&) noexcept override {
    calls.emplace_back("attend");
    return {};
  }
  std::vector<std::string>& calls;
};

struct Sparse final : sdk::SparseDecode {
  explicit Sparse(std::vector<std::string>& log) : calls(log) {}
  virtual ~Sparse() = default;
  std::int32_t capture_depth() const noexcept override { return 1; }
  bool active() const noexcept override { return true; }
  sdk::Status bind(const sdk::AttentionShape&, const sdk::StepLimits&, const sdk::ReferenceRoom&,
                   const sdk::DeviceContext&, std::size_t&) noexcept override {
    return {};
  }
  sdk::Status plan(sdk::RowMode mode, const sdk::PackedRows& rows) noexcept override {
    for (std::int32_t row = 0; row < rows.num_rows; ++row) planned.push_back({mode, rows.positions[row]});
    return {};
  }
  std::uint64_t topology(sdk::RowMode) const noexcept override { return number; }
  std::uint64_t number = 0;
  sdk::Status capture(const sdk::SparseArgs&, const sdk::DeviceContext&) noexcept override {
    calls.emplace_back("capture");
    return {};
  }
  sdk::Status consume(const sdk::SparseArgs&, const sdk::DeviceContext&) noexcept override {
    calls.emplace_back("consume");
    return {};
  }
  std::vector<std::string>& calls;
  std::vector<std::pair<sdk::RowMode, std::int32_t>> planned;
};

TEST_CASE("a step of captured and consuming rows claims nothing, goes to the device once, and reads back last") {
  RecordingBackend backend;
  const auto decoder = load(backend);
  backend.calls.clear();
  Attention attention(backend.calls);
  Sparse sparse(backend.calls);
  const std::int32_t tokens[] = {1, 2, 3}, positions[] = {900, 40, 41}, row_slice[] = {0, 0, 0}, pages[] = {0, 1};
  const std::int32_t states[] = {0, 1, 2}, references[] = {0, 1, 2}, logit_rows[] = {1, 2};
  const sdk::Slice slices[] = {{0, 1, 900, 1, 0, 1}, {0, 2, 40, 3, 1, 1}};
  const sdk::PackedRows rows{3, 2, tokens, positions, row_slice, slices, pages, 2, logit_rows, 2, states, references};
  const std::vector<RowGroup> groups{{sdk::RowMode::capture, 0, 1, 0, 1}, {sdk::RowMode::consume, 1, 2, 1, 1}};
  const sdk::KvView kv{};
  PassAnswer answer;
  GraphCache graphs(backend, 0);
  REQUIRE(decoder->forward({attention, &sparse, nullptr, nullptr, kv, groups, graphs}, rows, false, answer).ok());

  const auto count = [&](const char* call) { return std::count(backend.calls.begin(), backend.calls.end(), call); };
  for (const char* call : {"allocate", "prepare_linear", "upload", "memory"}) CHECK_MESSAGE(count(call) == 0, call);
  CHECK(backend.calls.at(0) == "begin_step");
  CHECK(count("begin_step") == 1);
  CHECK(count("download") == 1);
  CHECK(backend.calls.back() == "download");
  CHECK(answer.logits.size() == 2 * 64);
  CHECK(count("attend") == kLayers);  // of the captured row: consuming ones read their lists instead
  CHECK(count("capture") == kLayers);
  CHECK(count("consume") == kLayers);
  // The plugin learns how long histories are from the host, before any layer.
  CHECK(sparse.planned == std::vector<std::pair<sdk::RowMode, std::int32_t>>{
                              {sdk::RowMode::capture, 900}, {sdk::RowMode::consume, 40}, {sdk::RowMode::consume, 41}});
}

TEST_CASE("a step without answers reads nothing back") {
  RecordingBackend backend;
  const auto decoder = load(backend);
  backend.calls.clear();
  Attention attention(backend.calls);
  Sparse sparse(backend.calls);
  const std::int32_t token = 1, position = 5, zero = 0;
  const sdk::Slice slice{0, 1, 5, 1, 0, 1};
  const sdk::PackedRows rows{1, 1, &token, &position, &zero, &slice, &zero, 1, nullptr, 0, &zero, &zero};
  const std::vector<RowGroup> groups{{sdk::RowMode::capture, 0, 1, 0, 1}};
  const sdk::KvView kv{};
  PassAnswer answer;
  GraphCache graphs(backend, 0);
  REQUIRE(decoder->forward({attention, &sparse, nullptr, nullptr, kv, groups, graphs}, rows, false, answer).ok());
  CHECK(std::count(backend.calls.begin(), backend.calls.end(), "download") == 0);
  CHECK(backend.calls.back() == "gather");
}

TEST_CASE("a recorded step is replayed for other positions and pages, and never for another mode, count or topology") {
  GraphBackend backend;
  const auto decoder = load(backend);
  Attention attention(backend.calls);
  Sparse sparse(backend.calls);
  attention.number = sparse.number = 7;
  GraphCache graphs(backend, 16);
  const sdk::KvView kv{};
  const std::int32_t tokens[] = {1, 2}, zeros[] = {0, 0}, ones[] = {0, 1}, places[] = {0, 1};
  /// Two rows: of one slice, or of one each.
  const auto forward = [&](sdk::RowMode mode, std::int32_t position, std::int32_t page, bool one_slice,
                           std::int32_t answers) {
    const std::int32_t positions[] = {position, position + 1}, pages[] = {page, page + 1};
    const sdk::Slice slices[] = {{0, one_slice ? 2 : 1, position, 1, 0, 1}, {1, 1, position + 1, 1, 1, 1}};
    const sdk::PackedRows rows{2,     one_slice ? 1 : 2, tokens, positions, one_slice ? zeros : ones, slices, pages, 2,
                               zeros, answers,           places, places};
    const std::vector<RowGroup> groups{{mode, 0, 2, 0, one_slice ? 1 : 2}};
    PassAnswer answer;
    REQUIRE(decoder->forward({attention, &sparse, nullptr, nullptr, kv, groups, graphs}, rows, false, answer).ok());
  };
  const auto recorded = [&](auto&&... how) {  // by coming twice
    const std::uint64_t before = backend.graphs;
    for (int i = 0; i < 2; ++i) forward(how...);
    return backend.graphs - before;
  };
  using enum sdk::RowMode;
  CHECK(recorded(dense, 40, 3, false, 1) == 1);
  CHECK(recorded(dense, 1900, 20, false, 1) == 0);  // the same launches
  CHECK(graphs.stats().replayed == 3);
  CHECK(recorded(dense, 40, 3, true, 1) == 1);
  CHECK(recorded(dense, 40, 3, false, 0) == 1);
  CHECK(recorded(capture, 40, 3, false, 1) == 1);
  CHECK(recorded(consume, 40, 3, false, 1) == 1);
  attention.number = 8;
  CHECK(recorded(dense, 40, 3, false, 1) == 1);
  CHECK(recorded(capture, 40, 3, false, 1) == 1);
  CHECK(recorded(consume, 40, 3, false, 1) == 0);  // no attention runs
  sparse.number = 9;
  CHECK(recorded(capture, 40, 3, false, 1) == 1);
  CHECK(recorded(consume, 40, 3, false, 1) == 1);
  attention.number = 0;  // unknown
  CHECK(recorded(dense, 40, 3, false, 1) == 0);
  CHECK(recorded(capture, 40, 3, false, 1) == 0);
}

TEST_CASE("rotary tables are f64 values rounded once, also of a model whose weights are bf16") {
  RecordingBackend backend;
  load(backend);
  std::vector<const std::vector<float>*> tables;
  for (const auto& values : backend.uploads)
    if (values.size() == kContext * 32u) tables.push_back(&values);
  REQUIRE(tables.size() == 2);
  constexpr double kHalfUlp = 1.0 / (1 << 25);  // of values up to 1
  for (std::size_t position = 0; position < kContext; ++position)
    for (std::size_t i = 0; i < 32; ++i) {
      const long double angle =
          static_cast<long double>(position) * std::pow(1e6L, -static_cast<long double>(2 * i) / 64);
      REQUIRE(std::abs((*tables[0])[position * 32 + i] - static_cast<double>(std::cos(angle))) < kHalfUlp * 1.001);
      REQUIRE(std::abs((*tables[1])[position * 32 + i] - static_cast<double>(std::sin(angle))) < kHalfUlp * 1.001);
    }
}

}  // namespace
}  // namespace tessera
