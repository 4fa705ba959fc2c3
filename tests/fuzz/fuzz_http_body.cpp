// Any bytes as a request body: parsed or refused with a sentence, never a crash; what parses gives a usable view.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "translate.h"

using namespace tessera;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  for (const auto endpoint : {openai::Endpoint::completions, openai::Endpoint::chat}) {
    openai::Call call;
    if (const auto refusal = openai::parse_call(endpoint, body, call)) {
      if (refusal->message.empty() || refusal->status != 400) std::abort();
      if (openai::error_body(*refusal).empty()) std::abort();
      continue;
    }
    const sdk::RequestView view = call.view();
    if (view.messages.size() != call.messages.size() || view.stops.size() > openai::kMaxStops) std::abort();
    if (view.num_choices < 1 || view.max_tokens < 0) std::abort();
  }
  (void)openai::percent_decoded(body);
  return 0;
}
