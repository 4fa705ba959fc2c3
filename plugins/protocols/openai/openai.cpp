// The OpenAI-compatible surface: routes, authorization, and which half answers what.
#include <array>
#include <string>

#include "exchange.h"
#include "tessera/sdk/protocol.h"
#include "tessera/sdk/register.h"
#include "translate.h"

namespace tessera::openai {
namespace {

constexpr std::string_view kModels = "/v1/models";
constexpr std::string_view kCompletions = "/v1/completions";
constexpr std::string_view kChat = "/v1/chat/completions";

class OpenAi final : public sdk::Protocol, public sdk::HttpHandler {
 public:
  OpenAi(sdk::Host& host, sdk::Status& status) {
    std::int64_t ping = 10;
    status = host.option_int("ping_seconds", 10, 1, 3600, &ping);
    settings_.ping = std::chrono::seconds(ping);
  }

  sdk::Status start(sdk::Frontend& frontend, sdk::Router& router) noexcept override {
    frontend_ = &frontend;
    struct Route {
      const char* method;
      std::string_view path;
    };
    constexpr std::array<Route, 5> kRoutes{
        {{"GET", kModels}, {"POST", kCompletions}, {"POST", kChat}, {"GET", "/health"}, {"GET", "/metrics"}}};
    for (const Route& route : kRoutes)
      if (sdk::Status status = router.add(route.method, route.path.data(), *this); !status.ok()) return status;
    return router.add_fallback("/v1/", *this);  // also finds /v1/models/{id}
  }

  void stop() noexcept override {}  // handlers wait for their own terminal event; nothing else runs

  void handle(sdk::HttpExchange& exchange) noexcept override {
    try {
      dispatch(exchange);
    } catch (const std::exception& error) {
      Refusal refusal = refusal_of(sdk::fail(sdk::Code::internal, error.what()));
      try {
        send_error(exchange, refusal);  // does nothing when an answer has begun
      } catch (...) {
      }
    }
  }

 private:
  void dispatch(sdk::HttpExchange& exchange) {
    const std::string_view path = exchange.path();
    if (path == "/health") return health(exchange);
    if (!exchange.authorized()) {
      const bool missing = exchange.header("authorization").empty() && exchange.header("x-api-key").empty();
      return send_error(exchange, {.status = 401,
                                   .message = missing ? "no API key was given; send 'Authorization: Bearer KEY'"
                                                      : "the API key given is not one of this server's keys",
                                   .type = "invalid_request_error",
                                   .param = "",
                                   .code = "invalid_api_key"});
    }
    const bool get = exchange.method() == "GET", post = exchange.method() == "POST";
    const bool one_model = path.size() > kModels.size() + 1 && path.starts_with(kModels) && path[kModels.size()] == '/';
    if (path == "/metrics") return metrics(exchange);
    if (path == kModels || one_model) {
      if (!get) return wrong_method(exchange, "GET");
      if (one_model) return model(exchange, percent_decoded(path.substr(kModels.size() + 1)));
      return exchange.respond(200, "application/json", models_body(frontend_->describe()), {});
    }
    if (path == kCompletions || path == kChat) {
      if (!post) return wrong_method(exchange, "POST");
      return generate(exchange, path == kChat ? Endpoint::chat : Endpoint::completions);
    }
    send_error(exchange, {.status = 404,
                          .message = "unknown URL: " + std::string(exchange.method()) + " " + std::string(path),
                          .type = "invalid_request_error",
                          .param = "",
                          .code = "unknown_url"});
  }

  void health(sdk::HttpExchange& exchange) {
    const sdk::EngineState state = frontend_->describe().state;
    if (state == sdk::EngineState::ready) return exchange.respond(200, "application/json", R"({"status":"ok"})", {});
    const sdk::HttpHeader retry{"Retry-After", "1"};
    exchange.respond(503, "application/json",
                     state == sdk::EngineState::loading ? R"({"status":"loading"})" : R"({"status":"draining"})",
                     {&retry, 1});
  }

  void metrics(sdk::HttpExchange& exchange) {
    std::string text;
    frontend_->metrics([](void* out, std::string_view part) { static_cast<std::string*>(out)->append(part); }, &text);
    exchange.respond(200, "text/plain; version=0.0.4; charset=utf-8", text, {});
  }

  void wrong_method(sdk::HttpExchange& exchange, std::string_view allowed) {
    const sdk::HttpHeader allow{"Allow", allowed};
    Refusal refusal;
    refusal.message = std::string(exchange.path()) + " does not take " + std::string(exchange.method()) + "; use " +
                      std::string(allowed);
    refusal.code = "method_not_allowed";
    exchange.respond(405, "application/json", error_body(refusal), {&allow, 1});
  }

  void model(sdk::HttpExchange& exchange, const std::string& id) {
    const sdk::EngineInfo info = frontend_->describe();
    if (id != info.model_name) return unknown_model(exchange, id, info);
    exchange.respond(200, "application/json", model_body(info), {});
  }

  void unknown_model(sdk::HttpExchange& exchange, const std::string& id, const sdk::EngineInfo& info) {
    send_error(exchange, {.status = 404,
                          .message = "the model '" + id + "' is not served here; this server has '" +
                                     std::string(info.model_name) + "'",
                          .type = "invalid_request_error",
                          .param = "model",
                          .code = "model_not_found"});
  }

  void generate(sdk::HttpExchange& exchange, Endpoint endpoint) {
    Call call;
    if (const auto refusal = parse_call(endpoint, exchange.body(), call)) return send_error(exchange, *refusal);
    const sdk::EngineInfo info = frontend_->describe();
    if (!call.model.empty() && call.model != info.model_name) return unknown_model(exchange, call.model, info);
    run_call(*frontend_, exchange, call, settings_);
  }

  sdk::Frontend* frontend_ = nullptr;
  Settings settings_;
};

}  // namespace

TESSERA_REGISTER_PLUGIN(sdk::Protocol, OpenAi, sdk::Device::any, "openai", "0.1.0", sdk::Traits{})

}  // namespace tessera::openai
