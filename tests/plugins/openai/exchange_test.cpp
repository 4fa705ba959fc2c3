// The exchange half against a scripted engine and a recorded client; the real pair is tested in tests/clients.
#include "exchange.h"

#include <doctest/doctest.h>

#include <atomic>
#include <functional>
#include <thread>

using namespace tessera;
using namespace tessera::openai;
using namespace std::chrono_literals;

namespace {

void emit(sdk::EventSink& sink, sdk::EventKind kind, std::string_view text = {},
          sdk::FinishReason finish = sdk::FinishReason::none) {
  sdk::EventView event{};
  event.kind = kind;
  event.text = text;
  event.finish = finish;
  sink.on_event(event);
}

struct Recorded final : sdk::HttpExchange {
  int status = 0;
  int answers = 0;
  std::string text;
  std::string retry_after;
  std::atomic<bool> gone{false};

  std::string_view method() const noexcept override { return "POST"; }
  std::string_view path() const noexcept override { return "/"; }
  std::string_view header(std::string_view) const noexcept override { return ""; }
  std::string_view body() const noexcept override { return ""; }
  bool authorized() const noexcept override { return true; }
  void respond(int code, std::string_view, std::string_view bytes,
               std::span<const sdk::HttpHeader> headers) noexcept override {
    status = code;
    ++answers;
    text += bytes;
    for (const sdk::HttpHeader& header : headers)
      if (header.name == "Retry-After") retry_after = header.value;
  }
  bool begin_stream(int code, std::string_view, std::span<const sdk::HttpHeader>) noexcept override {
    status = code;
    ++answers;
    return true;
  }
  bool write(std::string_view bytes) noexcept override {
    text += bytes;
    return !gone;
  }
  bool client_gone() noexcept override { return gone; }
};

/// Plays `script` on its own thread after each submit; a cancel sets `cancelled`.
struct Scripted final : sdk::Frontend {
  std::function<void(sdk::EventSink&, Scripted&)> script;
  sdk::Status refusal;
  std::atomic<bool> cancelled{false};
  std::atomic<bool> over{false};
  std::thread thread;

  ~Scripted() {
    if (thread.joinable()) thread.join();
  }
  sdk::Status submit(const sdk::RequestView&, sdk::EventSink& sink, std::uint64_t* ticket) noexcept override {
    if (!refusal.ok()) return refusal;
    *ticket = 1;
    thread = std::thread([this, &sink] {
      script(sink, *this);
      over = true;
    });
    return {};
  }
  void cancel(std::uint64_t) noexcept override { cancelled = true; }
  sdk::EngineInfo describe() noexcept override {
    return {sdk::EngineState::ready, "m", "0123456789abcdef", 1, 64, 10, 4, 4, 1};
  }
  void metrics(void (*)(void*, std::string_view), void*) noexcept override {}
};

Call call_of(const char* members) {
  Call call;
  REQUIRE_FALSE(parse_call(Endpoint::completions, std::string(R"({"prompt":"a")") + members + "}", call));
  return call;
}

void wait_for_cancel_then_end(sdk::EventSink& sink, Scripted& engine) {
  while (!engine.cancelled) std::this_thread::sleep_for(1ms);
  std::this_thread::sleep_for(30ms);  // the sink must still be there
  emit(sink, sdk::EventKind::cancelled);
}

}  // namespace

TEST_CASE("a refused submit becomes its own HTTP status, before any stream starts") {
  Scripted engine;
  engine.refusal = sdk::fail(sdk::Code::resource_exhausted, "the queue is full");
  Recorded client;
  Call call = call_of(R"(,"stream":true)");
  run_call(engine, client, call, {});
  CHECK(client.status == 429);
  CHECK(client.retry_after == "1");
  CHECK(client.answers == 1);
}

TEST_CASE("a whole and a streamed answer carry the same text") {
  for (const bool stream : {false, true}) {
    Scripted engine;
    engine.script = [](sdk::EventSink& sink, Scripted&) {
      emit(sink, sdk::EventKind::started);
      for (const char* text : {"x", "y", "z"}) emit(sink, sdk::EventKind::delta, text);
      emit(sink, sdk::EventKind::choice_done, "", sdk::FinishReason::stop);
      emit(sink, sdk::EventKind::finished);
    };
    Recorded client;
    Call call = call_of(stream ? R"(,"stream":true)" : "");
    run_call(engine, client, call, {});
    CHECK(client.status == 200);
    CHECK(client.answers == 1);
    if (stream) {
      CHECK(client.text.ends_with("data: [DONE]\n\n"));
    } else {
      CHECK(client.text.find(R"("text":"xyz")") != std::string::npos);
    }
  }
}

TEST_CASE("a client that leaves has its request cancelled, and the sink outlives the terminal event") {
  for (const bool stream : {false, true}) {
    Scripted engine;
    engine.script = wait_for_cancel_then_end;
    Recorded client;
    client.gone = true;
    Call call = call_of(stream ? R"(,"stream":true)" : "");
    run_call(engine, client, call, {});
    CHECK(engine.cancelled);
    CHECK(client.answers == 1);
  }
}

TEST_CASE("a silent stream is kept alive by comments") {
  Scripted engine;
  engine.script = [](sdk::EventSink& sink, Scripted&) {
    std::this_thread::sleep_for(2500ms);
    emit(sink, sdk::EventKind::finished);
  };
  Recorded client;
  Call call = call_of(R"(,"stream":true)");
  run_call(engine, client, call, {.ping = 1s});
  CHECK(client.text.find(": ping\n\n") == 0);
}
