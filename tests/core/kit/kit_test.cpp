#include "kit/kit.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/random.h"
#include "kit/child.h"
#include "kit/elf.h"

using namespace tessera;

namespace {

const std::filesystem::path kFolder = std::filesystem::path(TESSERA_BINARY_DIR) / "bad_plugins";

/// A shell whose $0 is the descriptor to report to.
ChildResult shell(const std::string& script, int seconds = 30) {
  auto result = run_child({"/bin/sh", "-c", script}, std::chrono::seconds(seconds));
  REQUIRE(result.ok());
  return *result;
}

}  // namespace

TEST_CASE("a child's report, last words and exit status come back") {
  const ChildResult child = shell("echo told >&$0; echo first; echo last >&2; exit 3");
  CHECK(child.report == "told\n");
  CHECK(child.last_words() == "last");
  CHECK(child.exit_status == 3);
  CHECK(child.signal == 0);
  CHECK(!child.timed_out);
}

TEST_CASE("a child that is killed is known by its signal, one that hangs is killed, and a missing one is no crash") {
  CHECK(shell("kill -SEGV $$").signal == SIGSEGV);
  const ChildResult hung = shell("sleep 600 & echo waiting >&$0; sleep 600", 1);
  CHECK(hung.timed_out);
  CHECK(hung.report == "waiting\n");
  const auto missing = run_child({"/no/such/program"}, std::chrono::seconds(5));
  REQUIRE(missing.ok());
  CHECK(missing->exit_status == 127);
}

TEST_CASE("output without end does not fill the memory, and its end is kept") {
  const ChildResult child = shell("yes | head -c 3000000; echo the end");
  CHECK(child.output.size() < 100'000);
  CHECK(child.last_words() == "the end");
}

TEST_CASE("exported symbols and search paths are read without loading") {
  const auto plain = read_elf(kFolder / "plain.so"), more = read_elf(kFolder / "exports_more.so");
  REQUIRE(plain.ok());
  REQUIRE(more.ok());
  CHECK(plain->exported == std::vector<std::string>{"tessera_plugin_v6"});
  CHECK(more->exported.size() > 1);
  CHECK(!plain->executable_stack);
  const auto relative = read_elf(kFolder / "relative_path.so");
  REQUIRE(relative.ok());
  CHECK(relative->search_paths.size() >= 1);
  CHECK(!read_elf(kFolder / "not_elf.so").ok());
  CHECK(!read_elf(kFolder / "missing.so").ok());
}

TEST_CASE("a damaged library is read or refused, never more") {
  std::ifstream file(kFolder / "plain.so", std::ios::binary);
  const std::string whole(std::istreambuf_iterator<char>(file), {});
  const auto path = std::filesystem::temp_directory_path() / "tessera_kit_test.so";
  constexpr std::uint64_t kSeed = 11;
  CAPTURE(kSeed);
  Random random(kSeed);
  for (int round = 0; round < 60; ++round) {
    std::string damaged = whole;
    if (round % 2 == 0) damaged.resize(random.below(static_cast<std::uint32_t>(whole.size())));
    for (int i = 0; i < 40 && damaged.size() > 64; ++i)
      damaged[4 + random.below(static_cast<std::uint32_t>(round % 3 == 0 ? 60 : damaged.size() - 4))] =
          static_cast<char>(random.bits());
    std::ofstream(path, std::ios::binary) << damaged;
    const auto facts = read_elf(path);
    if (!facts.ok()) CHECK(facts.status().message[0] != '\0');
  }
  std::filesystem::remove(path);
}

TEST_CASE("every case has a name of its own, a promise, and rests on an earlier one") {
  std::vector<std::string> names{""};
  for (const KitCase* one : all_cases()) {
    CHECK(std::find(names.begin(), names.end(), one->name) == names.end());
    CHECK(std::find(names.begin(), names.end(), one->needs) != names.end());
    CHECK(one->promise[0] != '\0');
    names.push_back(one->name);
  }
  const auto unknown =
      check_plugin({{"libary-loads"}, std::chrono::seconds(30), {"/bin/true"}}, [](const CaseResult&) {});
  REQUIRE(!unknown.ok());
  CHECK(std::string(unknown.status().message).find("did you mean 'library-loads'") != std::string::npos);
}

TEST_CASE("a child that ends well without a verdict has failed, and what rests on its case is skipped") {
  const auto report = check_plugin({{}, std::chrono::seconds(30), {"/bin/true"}}, [](const CaseResult&) {});
  REQUIRE(report.ok());
  CHECK(!report->ok());
  CHECK(report->count(Verdict::passed) == 0);
  CHECK(report->count(Verdict::failed) == 1);
  CHECK(report->cases.front().finding.reason == "ended the process with status 0");
  CHECK(report->count(Verdict::skipped) == static_cast<std::int64_t>(report->cases.size()) - 1);
}
