#include <doctest/doctest.h>

#include <bit>
#include <filesystem>
#include <numeric>
#include <set>

#include "bench/attention_bench.h"
#include "bench/attention_compare.h"
#include "bench/attention_corpus.h"
#include "bench/attention_golden.h"
#include "bench/attention_session.h"

using namespace tessera;

namespace {

constexpr std::uint64_t kSeed = 20260908;

Registry registry() { return Registry({std::filesystem::path(TESSERA_BINARY_DIR) / "plugins"}); }

/// The reference when `attention` is empty, else a plugin of tests/bad_plugins.
Config config_with(const std::string& attention) {
  Config config;
  if (!attention.empty())
    config.attention = {.name = attention,
                        .path = std::string(TESSERA_BINARY_DIR) + "/bad_plugins/" + attention + ".so",
                        .options = {},
                        .where = {}};
  return config;
}

/// One variant called "auto" on the default geometry.
struct Bench {
  Bench(const std::string& attention, const std::vector<AttentionCase>& cases, bool exact = false) {
    report.default_variant = "auto";
    report.variants.resize(1);
    variant().name = "auto";
    variant().exact = exact;
    auto plugins = registry();
    auto opened = open_session(config_with(attention), plugins, {}, limits_for(cases), report);
    REQUIRE_MESSAGE(opened.ok(), opened.status().message);
    session = std::move(*opened);
    REQUIRE(session.candidates.size() == 1);
  }
  VariantReport& variant() { return report.variants[0]; }

  void check_against_reference(const AttentionCase& one) {
    const AttentionData data = make_data(one);
    AttentionOutput wanted, found;
    REQUIRE(session.fixture->place(data, one.seed, Unlisted::finite).ok());
    REQUIRE(session.fixture->pack(data, whole(data)).ok());
    REQUIRE(session.fixture->run(*session.reference.get(), wanted).ok());
    check_tensor(*session.fixture, *session.candidates[0].attention.get(), variant(), one.name, wanted.values, found);
    session.candidates[0].kept = found.values;
    REQUIRE(check_poison(session, one, data).ok());
  }
  void check_all_arrangements(const std::vector<AttentionCase>& cases) {
    Progress progress("", 0);
    REQUIRE(check_invariance(session, cases, progress).ok());
  }

  AttentionReport report;
  Session session;
};

const AttentionCase kSmall{"small", {}, {{0, 17}, {15, 3}, {40, 1}}, Profile::normal, 5, true};

}  // namespace

TEST_CASE("the corpus has 53 fixed cases with distinct names, within 1024 positions") {
  const auto cases = fixed_cases(kSeed);
  CHECK(cases.size() == 53);
  std::set<std::string> names;
  std::size_t poison = 0;
  for (const AttentionCase& one : cases) {
    names.insert(one.name);
    poison += one.poison ? 1 : 0;
    for (const RowRange& slice : one.slices) {
      CHECK(slice.start >= 0);
      CHECK(slice.length >= 1);
      CHECK(slice.start + slice.length <= 1024);
    }
  }
  CHECK(names.size() == 53);
  CHECK(poison >= 20);
}

TEST_CASE("fuzz cases stay within their bounds, repeat, and average the work of four prompts of 128") {
  std::int64_t pairs = 0;
  for (std::int32_t i = 0; i < 128; ++i) {
    const AttentionCase one = fuzz_case(kSeed, i);
    CHECK(one.slices.size() >= 1);
    CHECK(one.slices.size() <= 16);
    for (const RowRange& slice : one.slices) {
      CHECK(slice.length >= 1);
      CHECK(slice.length <= 257);
      CHECK(slice.start <= 767);
    }
    pairs += causal_pairs(one.slices);
    CHECK(fuzz_case(kSeed, i).seed == one.seed);
    CHECK(fuzz_case(kSeed + 1, i).seed != one.seed);
  }
  CHECK(pairs / 128 > 33'024 / 2);
  CHECK(pairs / 128 < 33'024 * 2);
}

TEST_CASE("contents are a function of the seed, and KV groups differ") {
  for (const Profile profile : kProfiles) {
    AttentionCase one = kSmall;
    one.profile = profile;
    const AttentionData a = make_data(one), b = make_data(one);
    CHECK(a.sequences[1].q == b.sequences[1].q);
    CHECK(a.sequences[1].k == b.sequences[1].k);
    const auto& v = a.sequences[1].v;
    CHECK(!std::equal(v.begin(), v.begin() + 64, v.begin() + 64));
  }
}

TEST_CASE("the fixture packs slices side by side on pages of their own") {
  const Bench bench("", {kSmall});
  const AttentionData data = make_data(kSmall);
  AttentionFixture& fixture = *bench.session.fixture;
  REQUIRE(fixture.place(data, 1, Unlisted::finite).ok());
  const Part parts[] = {{2, 40, 1}, {1, 16, 2}};
  REQUIRE(fixture.pack(data, parts).ok());
  const sdk::PackedRows& rows = fixture.rows();
  CHECK(rows.num_rows == 3);
  CHECK(rows.num_slices == 2);
  CHECK(std::vector(rows.positions, rows.positions + 3) == std::vector<std::int32_t>{40, 16, 17});
  CHECK(std::vector(rows.row_slice, rows.row_slice + 3) == std::vector<std::int32_t>{0, 1, 1});
  CHECK(rows.slices[1].first_row == 1);
  CHECK(rows.slices[1].first_position == 16);
  CHECK(rows.slices[0].num_pages == 4);  // positions 0..40, and one page more
  CHECK(rows.slices[1].first_page == 4);
  CHECK(std::set(rows.pages, rows.pages + rows.num_pages).size() == static_cast<std::size_t>(rows.num_pages));
}

TEST_CASE("a comparison sees one flipped bit, and a NaN is beyond any tolerance") {
  std::vector<float> wanted(1000, 1.5f), found = wanted;
  CHECK(compare_outputs(found, wanted).bits == 0);
  found[617] = std::bit_cast<float>(std::bit_cast<std::uint32_t>(found[617]) ^ 1u);
  const Difference one = compare_outputs(found, wanted);
  CHECK(one.floats == 1);
  CHECK(one.bits == 1);
  CHECK(one.outside == 0);
  found[0] = std::bit_cast<float>(0x7fc00000u);
  CHECK(compare_outputs(found, wanted).outside == 1);
}

TEST_CASE("the reference passes as an exact variant") {
  Bench bench("", {kSmall}, true);
  bench.check_against_reference(kSmall);
  CHECK(bench.variant().ok());
  CHECK(bench.variant().differing_bits == 0);
  CHECK(bench.variant().poison.done == 1);
}

TEST_CASE("another order of sums is within the tolerance and is no exact variant") {
  Bench inexact("plain", {kSmall}), exact("plain", {kSmall}, true);
  inexact.check_against_reference(kSmall);
  exact.check_against_reference(kSmall);
  CHECK(inexact.variant().ok());
  CHECK(inexact.variant().differing_bits > 0);
  CHECK(!exact.variant().ok());
}

TEST_CASE("writing past a row is caught by the guards") {
  Bench bench("writes_past", {kSmall});
  bench.check_against_reference(kSmall);
  CHECK(bench.variant().stray_writes >= 21);
  CHECK(!bench.variant().ok());
  CHECK(bench.variant().first_failure.find("outside the output's rows") != std::string::npos);
}

TEST_CASE("reading past the causal end is caught by poison, though the values are right") {
  Bench bench("peeks", {kSmall});
  bench.check_against_reference(kSmall);
  CHECK(bench.variant().tensors.failed == 0);
  CHECK(bench.variant().poison.failed == 1);
  CHECK(!bench.variant().ok());
}

TEST_CASE("an output that depends on the neighbours is caught, and the reference's does not") {
  auto cases = invariance_cases(kSeed);
  cases.resize(2);
  Bench dependent("batch_dependent", cases), reference("", cases, true);
  dependent.check_all_arrangements(cases);
  reference.check_all_arrangements(cases);
  CHECK(dependent.variant().composition.failed > 0);
  CHECK(!dependent.variant().ok());
  const VariantReport& sound = reference.variant();
  CHECK(sound.invariance_checks() == 20);
  CHECK(sound.composition.failed + sound.order.failed + sound.pages.failed + sound.chunks.failed == 0);
}

TEST_CASE("golden hashes compare by name, and another seed is refused") {
  AttentionReport report;
  report.seed = 3;
  report.hashes = {{"a", "00"}, {"b", "11"}};
  const auto path = std::filesystem::temp_directory_path() / "tessera_attention_golden_test.json";
  REQUIRE(write_golden(report, path).ok());
  report.hashes["b"] = "12";
  report.hashes["c"] = "22";
  const auto result = compare_golden(report, path);
  REQUIRE(result.ok());
  CHECK(result->compared == 2);
  CHECK(result->differing == std::vector<std::string>{"b"});
  CHECK(result->absent == 1);
  report.seed = 4;
  CHECK(!compare_golden(report, path).ok());
  std::filesystem::remove(path);
}

TEST_CASE("the bench has the 25 published shapes first") {
  const auto shapes = attention_shapes(false);
  REQUIRE(shapes.size() > 25);
  const auto pairs = [&](std::size_t i) { return causal_pairs(shapes[i].slices); };
  CHECK(pairs(9) == 524'800);   // single-1024
  CHECK(pairs(13) == 33'024);   // 4x128
  CHECK(pairs(21) == 254'080);  // history-64-at-960
  CHECK(pairs(23) == 393'728);  // scheduled-4x512-second
  CHECK(shapes[24].name == "heterogeneous");
  CHECK(pairs(24) == 212'282);
}
