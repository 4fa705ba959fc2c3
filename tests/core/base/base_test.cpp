#include <doctest/doctest.h>

#include <cmath>
#include <set>

#include "base/nearest.h"
#include "base/random.h"
#include "base/sha256.h"
#include "base/table.h"
#include "tessera/sdk/numerics.h"

using namespace tessera;

TEST_CASE("philox gives the published answers") {  // Random123's known-answer vectors of philox4x32-10
  CHECK(philox({0, 0}, {0, 0, 0, 0}) == std::array<std::uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  constexpr std::uint32_t kOnes = 0xffffffff;
  CHECK(philox({kOnes, kOnes}, {kOnes, kOnes, kOnes, kOnes}) ==
        std::array<std::uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
}

TEST_CASE("a random stream is its seed's and stays within its bounds") {
  Random first(7), again(7), other(8), stream(7, 1);
  std::set<std::uint32_t> seen;
  int equal_other = 0, equal_stream = 0;
  for (int i = 0; i < 1000; ++i) {
    const std::uint32_t bits = first.bits();
    CHECK(bits == again.bits());
    equal_other += bits == other.bits() ? 1 : 0;
    equal_stream += bits == stream.bits() ? 1 : 0;
    seen.insert(first.below(10));
    again.below(10);
    const float real = first.real(-2.0f, 3.0f);
    again.real(-2.0f, 3.0f);
    CHECK(real >= -2.0f);
    CHECK(real < 3.0f);
  }
  CHECK(seen.size() == 10);
  CHECK(*seen.rbegin() == 9);
  CHECK(equal_other < 3);
  CHECK(equal_stream < 3);
}

TEST_CASE("sha-256 gives the standard's digests, in one piece or in several") {
  const std::string abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
  CHECK(to_hex(Sha256().add("abc").finish()) == abc);
  CHECK(to_hex(Sha256().add("a").add("").add("bc").finish()) == abc);
  CHECK(to_hex(Sha256().finish()) == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

TEST_CASE("the nearest name is offered when it is near, and nothing when none is") {
  const std::vector<std::string> known{"pages", "memory_fraction", "prefix_cache"};
  CHECK(nearest("pagse", known) == "pages");
  CHECK(nearest("memory_fractoin", known) == "memory_fraction");
  CHECK(nearest("listen", known).empty());
  CHECK(nearest("", known).empty());
  CHECK(nearest("x", {}).empty());
}

TEST_CASE("a table sets names to the left and numbers to the right") {
  Table table({"name", "ms"});
  table.add({"a", "1.5"});
  table.add({"longer", "10"});
  CHECK(table.text() == "name     ms\n-----------\na       1.5\nlonger   10\n");
}

TEST_CASE("the exponential is exact at 0, ends where it should and is within 2 ulp between") {
  CHECK(sdk::exp_f32(0.0f) == 1.0f);
  CHECK(sdk::exp_f32(-200.0f) == 0.0f);
  CHECK(std::isinf(sdk::exp_f32(200.0f)));
  CHECK(std::isnan(sdk::exp_f32(std::nanf(""))));
  double worst = 0;
  for (float x = -87.0f; x < 88.7f; x += 0.0137f) {
    const double wanted = std::exp(static_cast<double>(x));
    const double ulp = std::ldexp(1.0, std::ilogb(wanted) - 23);
    worst = std::max(worst, std::abs(static_cast<double>(sdk::exp_f32(x)) - wanted) / ulp);
  }
  CHECK(worst < 2.0);
}

TEST_CASE("half floats widen exactly: zero, subnormals, ones, infinities") {
  CHECK(sdk::widen_f16(0x0000) == 0.0f);
  CHECK(std::signbit(sdk::widen_f16(0x8000)));
  CHECK(sdk::widen_f16(0x0001) == 0x1p-24f);
  CHECK(sdk::widen_f16(0x3c00) == 1.0f);
  CHECK(sdk::widen_f16(0xc000) == -2.0f);
  CHECK(sdk::widen_f16(0x7bff) == 65504.0f);
  CHECK(std::isinf(sdk::widen_f16(0x7c00)));
  CHECK(std::isnan(sdk::widen_f16(0x7e00)));
  CHECK(sdk::widen_bf16(0x3f80) == 1.0f);
}
