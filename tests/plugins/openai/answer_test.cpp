#include <doctest/doctest.h>

#include <limits>

#include "translate.h"

using namespace tessera;
using namespace tessera::openai;
using nlohmann::json;

namespace {

Call call_of(Endpoint endpoint, const std::string& members) {
  Call call;
  const std::string head =
      endpoint == Endpoint::chat ? R"({"messages":[{"role":"user","content":"q"}])" : R"({"prompt":"pq")";
  const auto refusal = parse_call(endpoint, head + members + "}", call);
  REQUIRE_MESSAGE(!refusal, refusal->message);
  return call;
}

Event delta(std::int32_t choice, std::string text, std::vector<TokenRow> tokens = {}) {
  Event event;
  event.kind = sdk::EventKind::delta;
  event.choice = choice;
  event.text = std::move(text);
  event.tokens = std::move(tokens);
  return event;
}

Event done(std::int32_t choice, sdk::FinishReason finish) {
  Event event;
  event.kind = sdk::EventKind::choice_done;
  event.choice = choice;
  event.finish = finish;
  return event;
}

Event finished() {
  Event event;
  event.kind = sdk::EventKind::finished;
  event.usage = {.prompt_tokens = 5, .cached_tokens = 2, .completion_tokens = 3};
  event.seed = 9;
  return event;
}

const Heading kHeading{"id-1", 123, "m", "fp_0123456789ab"};

/// The payloads of SSE text, which must be whole "data: ...\n\n" frames.
std::vector<std::string> frames(const std::string& text) {
  std::vector<std::string> out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find("\n\n", at);
    REQUIRE(end != std::string::npos);
    REQUIRE(text.compare(at, 6, "data: ") == 0);
    out.push_back(text.substr(at + 6, end - at - 6));
    at = end + 2;
  }
  return out;
}

}  // namespace

TEST_CASE("a whole chat answer has choices, usage, fingerprint and logprobs in the documented shape") {
  const Call call = call_of(Endpoint::chat, R"(,"n":2,"logprobs":true,"top_logprobs":1)");
  WholeAnswer answer(call);
  const float low = -std::numeric_limits<float>::infinity();
  answer.add(delta(0, "he", {{{7, -0.5f, "\xe2\x82"}, {{8, low, "x"}}}}));
  answer.add(delta(1, "other"));
  answer.add(delta(0, "llo"));
  answer.add(done(0, sdk::FinishReason::stop));
  answer.add(done(1, sdk::FinishReason::length));
  answer.add(finished());
  const json body = json::parse(answer.body(kHeading));
  CHECK(body["object"] == "chat.completion");
  CHECK(body["id"] == "id-1");
  CHECK(body["system_fingerprint"] == "fp_0123456789ab");
  CHECK(body["choices"][0]["message"]["content"] == "hello");
  CHECK(body["choices"][0]["message"]["role"] == "assistant");
  CHECK(body["choices"][0]["finish_reason"] == "stop");
  CHECK(body["choices"][1]["message"]["content"] == "other");
  CHECK(body["choices"][1]["finish_reason"] == "length");
  const json& token = body["choices"][0]["logprobs"]["content"][0];
  CHECK(token["logprob"] == -0.5);
  CHECK(token["bytes"] == json::array({0xe2, 0x82}));
  CHECK(token["top_logprobs"][0]["logprob"] == -9999.0);
  CHECK(body["usage"]["total_tokens"] == 8);
  CHECK(body["usage"]["prompt_tokens_details"]["cached_tokens"] == 2);
  CHECK(body["seed"] == 9);
}

TEST_CASE("a whole completion echoes its prompt and counts text offsets in characters") {
  Call call = call_of(Endpoint::completions, R"(,"echo":true)");
  WholeAnswer echoed(call);
  echoed.add(delta(0, "!"));
  echoed.add(finished());
  const json echo = json::parse(echoed.body(kHeading));
  CHECK(echo["choices"][0]["text"] == "pq!");
  CHECK(echo["choices"][0]["logprobs"].is_null());
  call = call_of(Endpoint::completions, R"(,"logprobs":1)");
  WholeAnswer answer(call);
  answer.add(delta(0, "\xc3\xa9", {{{1, -1.0f, "\xc3\xa9"}, {{1, -1.0f, "\xc3\xa9"}}}}));
  answer.add(delta(0, "a", {{{2, -2.0f, "a"}, {{3, -1.5f, "\xff"}}}}));
  answer.add(finished());
  const json body = json::parse(answer.body(kHeading));
  CHECK(body["object"] == "text_completion");
  const json& logprobs = body["choices"][0]["logprobs"];
  CHECK(logprobs["tokens"] == json::array({"\xc3\xa9", "a"}));
  CHECK(logprobs["text_offset"] == json::array({0, 1}));
  CHECK(logprobs["token_logprobs"] == json::array({-1.0, -2.0}));
  CHECK(logprobs["top_logprobs"][1]["bytes:\\xff"] == -1.5);
}

TEST_CASE("a chat stream opens with the role, ends with finish, usage and DONE, and says nothing afterwards") {
  const Call call = call_of(Endpoint::chat, R"(,"stream":true,"stream_options":{"include_usage":true})");
  StreamAnswer stream(call, kHeading);
  std::string text = stream.on(Event{});
  text += stream.on(delta(0, "a"));
  text += stream.on(delta(0, ""));
  text += stream.on(delta(0, "b"));
  text += stream.on(done(0, sdk::FinishReason::stop));
  text += stream.on(delta(0, "late"));
  text += stream.on(finished());
  const auto parts = frames(text);
  REQUIRE(parts.size() == 6);
  CHECK(json::parse(parts[0])["choices"][0]["delta"]["role"] == "assistant");
  CHECK(json::parse(parts[1])["choices"][0]["delta"] == json{{"content", "a"}});
  CHECK(json::parse(parts[1])["object"] == "chat.completion.chunk");
  CHECK(json::parse(parts[1])["usage"].is_null());
  CHECK(json::parse(parts[2])["choices"][0]["delta"]["content"] == "b");
  CHECK(json::parse(parts[3])["choices"][0]["finish_reason"] == "stop");
  CHECK(json::parse(parts[3])["choices"][0]["delta"].empty());
  CHECK(json::parse(parts[4])["choices"].empty());
  CHECK(json::parse(parts[4])["usage"]["completion_tokens"] == 3);
  CHECK(parts[5] == "[DONE]");
  CHECK(stream.on(finished()).empty());
}

TEST_CASE("a stream that fails ends with one error event and no DONE") {
  const Call call = call_of(Endpoint::completions, R"(,"stream":true,"n":2)");
  StreamAnswer stream(call, kHeading);
  std::string text = stream.on(delta(1, "a"));
  Event failed;
  failed.kind = sdk::EventKind::failed;
  failed.status = sdk::fail(sdk::Code::internal, "the device is gone");
  text += stream.on(failed);
  text += stream.on(finished());
  const auto parts = frames(text);
  REQUIRE(parts.size() == 2);
  CHECK(json::parse(parts[0])["choices"][0]["index"] == 1);
  CHECK(json::parse(parts[0])["choices"][0]["text"] == "a");
  CHECK(json::parse(parts[1])["error"]["message"] == "the device is gone");
  CHECK(json::parse(parts[1])["error"]["type"] == "server_error");
}

TEST_CASE("every refusal of the engine has its HTTP status, parameter and code") {
  const auto of = [](sdk::Code code, const char* text) { return refusal_of(sdk::fail(code, text)); };
  const Refusal context = of(sdk::Code::invalid_argument, "the prompt has 9 tokens but the context is 8");
  CHECK(context.status == 400);
  CHECK(context.code == "context_length_exceeded");
  CHECK(of(sdk::Code::invalid_argument, "top_p is 7; wanted 0 to 1").param == "top_p");
  CHECK(of(sdk::Code::invalid_argument, "top_p is 7; wanted 0 to 1").code.empty());
  CHECK(of(sdk::Code::resource_exhausted, "full").status == 429);
  CHECK(of(sdk::Code::unavailable, "loading").status == 503);
  CHECK(of(sdk::Code::internal, "bug").status == 500);
  const json body = json::parse(error_body(of(sdk::Code::internal, "bug")));
  CHECK(body["error"]["param"].is_null());
  CHECK(body["error"]["code"] == "internal_error");
}
