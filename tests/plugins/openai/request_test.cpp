#include <doctest/doctest.h>

#include "base/random.h"
#include "translate.h"

using namespace tessera;
using namespace tessera::openai;

namespace {

Call parsed(Endpoint endpoint, std::string_view body) {
  Call call;
  const auto refusal = parse_call(endpoint, body, call);
  REQUIRE_MESSAGE(!refusal, refusal->message);
  return call;
}

Refusal refused(Endpoint endpoint, std::string_view body) {
  Call call;
  const auto refusal = parse_call(endpoint, body, call);
  REQUIRE_MESSAGE(refusal, body);
  CHECK(refusal->status == 400);
  CHECK(refusal->type == "invalid_request_error");
  CHECK_FALSE(refusal->message.empty());
  return *refusal;
}

/// `members` inside an otherwise good chat request.
std::string chat(const std::string& members) {
  return R"({"messages":[{"role":"user","content":"hi"}],)" + members + "}";
}

}  // namespace

TEST_CASE("a chat request with every parameter arrives as it was sent") {
  Call call = parsed(Endpoint::chat, R"({"model":"m","messages":[{"role":"developer","content":"be brief"},
    {"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}],
    "temperature":0.5,"top_p":0.9,"top_k":40,"min_p":0.05,"presence_penalty":1,"frequency_penalty":-1,
    "repetition_penalty":1.1,"seed":-1,"n":2,"max_completion_tokens":7,"stop":["x","y"],"logit_bias":{"5":-100},
    "logprobs":true,"top_logprobs":3,"stream":true,"stream_options":{"include_usage":true},"user":"somebody",
    "max_loops":3,"min_loops":2,"exit_threshold":0.8})");
  const sdk::RequestView view = call.view();
  CHECK(view.prompt_kind == sdk::PromptKind::messages);
  REQUIRE(view.messages.size() == 2);
  CHECK(view.messages[0].role == "system");
  CHECK(view.messages[1].content == "ab");
  CHECK(view.sampling.temperature == 0.5);
  CHECK(view.sampling.top_p == 0.9);
  CHECK(view.sampling.top_k == 40);
  CHECK(view.sampling.min_p == 0.05);
  CHECK(view.sampling.presence_penalty == 1.0);
  CHECK(view.sampling.frequency_penalty == -1.0);
  CHECK(view.sampling.repetition_penalty == 1.1);
  CHECK(view.sampling.has_seed);
  CHECK(view.sampling.seed == UINT64_MAX);
  REQUIRE(view.sampling.logit_bias.size() == 1);
  CHECK(view.sampling.logit_bias[0].token == 5);
  CHECK(view.sampling.logit_bias[0].bias == -100.0f);
  CHECK(view.num_choices == 2);
  CHECK(view.max_tokens == 7);
  CHECK(view.top_logprobs == 3);
  REQUIRE(view.stops.size() == 2);
  CHECK(view.stops[1] == "y");
  CHECK(call.stream);
  CHECK(call.include_usage);
  CHECK(view.max_loops == 3);
  CHECK(view.min_loops == 2);
  CHECK(view.exit_threshold == 0.8);
}

TEST_CASE("what is absent or null takes the documented default") {
  Call call =
      parsed(Endpoint::chat, chat(R"("temperature":null,"stop":null,"tools":[],"response_format":{"type":"text"})"));
  CHECK(call.view().sampling.temperature == 1.0);
  CHECK(call.max_tokens == 0);
  CHECK(call.top_logprobs == -1);
  CHECK_FALSE(call.sampling.has_seed);
  CHECK(parsed(Endpoint::completions, R"({"prompt":"a"})").max_tokens == 16);
}

TEST_CASE("a completion prompt is text, one text in an array, or token ids") {
  CHECK(parsed(Endpoint::completions, R"({"prompt":"a"})").prompt == "a");
  CHECK(parsed(Endpoint::completions, R"({"prompt":["a"]})").prompt == "a");
  Call call = parsed(Endpoint::completions, R"({"prompt":[1,2],"logprobs":2})");
  CHECK(call.view().prompt_kind == sdk::PromptKind::tokens);
  CHECK(call.tokens == std::vector<std::int32_t>{1, 2});
  CHECK(call.top_logprobs == 2);
  for (const char* body :
       {R"({"prompt":["a","b"]})", R"({"prompt":[1,-2]})", R"({"prompt":[1,"a"]})", R"({"prompt":[]})",
        R"({"prompt":5})", R"({})", R"({"prompt":[1.5]})", R"({"prompt":[99999999999]})"})
    CHECK(refused(Endpoint::completions, body).param == "prompt");
  CHECK(refused(Endpoint::completions, R"({"prompt":[1],"echo":true})").param == "echo");
  CHECK(refused(Endpoint::completions, R"({"prompt":"a","echo":true,"logprobs":1})").param == "echo");
}

TEST_CASE("a wrong type names the parameter, what was found and what was wanted") {
  const struct {
    const char* members;
    const char* param;
  } cases[] = {{R"("temperature":"hot")", "temperature"},
               {R"("top_p":[])", "top_p"},
               {R"("top_k":1.5)", "top_k"},
               {R"("n":0)", "n"},
               {R"("n":"2")", "n"},
               {R"("n":99999999999999999999)", "n"},
               {R"("max_tokens":0)", "max_tokens"},
               {R"("max_tokens":-9223372036854775808)", "max_tokens"},
               {R"("seed":1.5)", "seed"},
               {R"("seed":"a")", "seed"},
               {R"("stop":5)", "stop"},
               {R"("stop":[5])", "stop"},
               {R"("stop":"")", "stop"},
               {R"("stream":1)", "stream"},
               {R"("stop":["1","2","3","4","5","6","7","8","9","a","b","c","d","e","f","g","h"])", "stop"},
               {R"("logit_bias":[])", "logit_bias"},
               {R"("logit_bias":{"x":1})", "logit_bias"},
               {R"("logit_bias":{"1":101})", "logit_bias"},
               {R"("logit_bias":{"1":"a"})", "logit_bias"},
               {R"("logprobs":5)", "logprobs"},
               {R"("top_logprobs":2)", "top_logprobs"},
               {R"("model":7)", "model"},
               {R"("stream_options":{"include_usage":true})", "stream_options"},
               {R"("stream":true,"stream_options":{"include_usage":1})", "stream_options.include_usage"},
               {R"("max_tokens":1,"max_completion_tokens":2)", "max_completion_tokens"},
               {R"("tools":[{"type":"function"}])", "tools"},
               {R"("response_format":{"type":"json_object"})", "response_format"},
               {R"("response_format":"text")", "response_format"},
               {R"("suffix":"z")", "suffix"},
               {R"("best_of":3)", "best_of"},
               {R"("modalities":["audio"])", "modalities"},
               {R"("tool_choice":"required")", "tool_choice"}};
  for (const auto& entry : cases) {
    CAPTURE(entry.members);
    CHECK(refused(Endpoint::chat, chat(entry.members)).param == entry.param);
  }
  const std::string message = refused(Endpoint::chat, chat(R"("temperature":"hot")")).message;
  CHECK(message == R"('temperature' is the string "hot"; wanted a number)");
}

TEST_CASE("messages are refused by the index of the bad one") {
  CHECK(refused(Endpoint::chat, "{}").param == "messages");
  CHECK(refused(Endpoint::chat, R"({"messages":[]})").param == "messages");
  CHECK(refused(Endpoint::chat, R"({"messages":[5]})").param == "messages[0]");
  CHECK(
      refused(Endpoint::chat, R"({"messages":[{"role":"user","content":"a"},{"role":"tool","content":"a"}]})").param ==
      "messages[1].role");
  CHECK(refused(Endpoint::chat, R"({"messages":[{"role":"user"}]})").param == "messages[0].content");
  CHECK(refused(Endpoint::chat, R"({"messages":[{"role":"user","content":[{"type":"image_url"}]}]})").param ==
        "messages[0].content[0].type");
}

TEST_CASE("hostile JSON is refused: syntax, encoding, depth, repeated keys") {
  for (const std::string& body : {std::string(), std::string("{"), std::string("[]"), std::string("nul"),
                                  std::string("{}{}"), std::string("{\"prompt\":\"\xff\"}"),
                                  std::string("{\"prompt\":\"\xed\xa0\x80\"}"), std::string(R"({"prompt":"\ud800"})"),
                                  std::string(R"({"prompt":1e999})"), std::string(1 << 20, '['), std::string("\0", 1)})
    refused(Endpoint::completions, body);
  std::string deep = R"({"prompt":"a","x":)" + std::string(63, '[') + std::string(63, ']') + "}";
  CHECK(parsed(Endpoint::completions, deep).prompt == "a");
  deep = R"({"prompt":"a","x":)" + std::string(64, '[') + std::string(64, ']') + "}";
  CHECK(refused(Endpoint::completions, deep).message.find("64") != std::string::npos);
  const Refusal twice = refused(Endpoint::completions, R"({"prompt":"a","prompt":"b"})");
  CHECK(twice.param == "prompt");
  CHECK(twice.message.find("twice") != std::string::npos);
}

TEST_CASE("a body with any bytes changed is parsed or refused, never worse") {
  constexpr std::uint64_t kSeed = 20240601;
  MESSAGE("seed " << kSeed);
  Random random(kSeed);
  const std::string good = chat(R"("temperature":0.5,"stop":["a"],"logit_bias":{"5":1},"seed":7,"logprobs":true)");
  for (int round = 0; round < 5000; ++round) {
    std::string body = good;
    for (std::uint32_t change = 0; change <= random.below(4); ++change)
      body[random.below(static_cast<std::uint32_t>(body.size()))] = static_cast<char>(random.below(256));
    Call call;
    if (const auto refusal = parse_call(Endpoint::chat, body, call)) {
      CHECK_FALSE(refusal->message.empty());
      CHECK(nlohmann::json::accept(error_body(*refusal)));
    }
  }
}

TEST_CASE("percent escapes are undone and malformed ones kept") {
  CHECK(percent_decoded("a%2Fb%20c") == "a/b c");
  CHECK(percent_decoded("%zz%2") == "%zz%2");
}
