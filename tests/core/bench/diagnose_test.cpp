#include "bench/diagnose.h"

#include <doctest/doctest.h>

using namespace tessera;

namespace {

Result<Diagnosis> diagnosis_of(const std::string& attention, const DiagnoseOptions& options) {
  Config config;
  config.model.path = std::string(TESSERA_SOURCE_DIR) + "/models/tessera-dense";
  config.cache.pages = 64;
  if (!attention.empty()) {
    config.attention.name = attention;
    config.attention.path = std::string(TESSERA_BINARY_DIR) + "/bad_plugins/" + attention + ".so";
  }
  Registry registry({std::filesystem::path(TESSERA_BINARY_DIR) / "plugins"});
  return diagnose(config, registry, options);
}

const DiagnoseOptions kFew{.generations = 2, .prompt = 20, .max_tokens = 8};

}  // namespace

TEST_CASE("the reference beside itself has equal logits at every step") {
  const auto result = diagnosis_of("", kFew);
  REQUIRE(result.ok());
  CHECK(result->steps == 16);
  CHECK(result->steps_with_other_logits == 0);
  CHECK(result->divergences.empty());
}

TEST_CASE("another order of sums moves logits, and any token it moves is explained by that") {
  const auto result = diagnosis_of("plain", kFew);
  REQUIRE(result.ok());
  CHECK(result->steps_with_other_logits > 0);
  CHECK(result->largest_logit_difference > 0);
  CHECK(result->largest_logit_difference < 0.1);
  for (const Divergence& divergence : result->divergences) CHECK(divergence.logits_differ);
}

TEST_CASE("the first token that differs is shown with both candidates as both see them") {
  const auto result = diagnosis_of("drifts", {.generations = 10, .prompt = 20, .max_tokens = 16});
  REQUIRE(result.ok());
  REQUIRE(!result->divergences.empty());
  for (const Divergence& d : result->divergences) {
    CHECK(d.reference.token != d.variant.token);
    CHECK(d.logits_differ);
    CHECK(d.differed_before == (d.step > 0));
    CHECK(d.largest_logit_difference > 0);
    CHECK(d.uniform < 1);
    CHECK(d.verdict().find("attention drift") == 0);
  }
}

TEST_CASE("equal logits with other tokens are not blamed on attention") {
  Divergence divergence{};
  CHECK(!divergence.drift_explains());
  CHECK(divergence.verdict().find("not attention") == 0);
  divergence.logits_differ = true;
  CHECK(divergence.drift_explains());
}

TEST_CASE("generations that do not fit the pool are refused with the numbers") {
  const auto result = diagnosis_of("", {.generations = 1, .prompt = 1000, .max_tokens = 100});
  REQUIRE(!result.ok());
  CHECK(std::string(result.status().message).find("1000 + 100") != std::string::npos);
}
