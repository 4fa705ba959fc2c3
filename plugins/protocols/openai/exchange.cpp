#include "exchange.h"

#include <algorithm>
#include <array>
#include <ctime>
#include <random>

namespace tessera::openai {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kPoll{50};

bool terminal(sdk::EventKind kind) {
  return kind == sdk::EventKind::finished || kind == sdk::EventKind::failed || kind == sdk::EventKind::cancelled;
}

std::string hex(std::uint64_t value) {
  std::string text(16, '0');
  for (std::size_t i = 16; i-- > 0; value >>= 4) text[i] = "0123456789abcdef"[value & 15];
  return text;
}

/// Tickets name a submission within this process; the salt tells processes apart.
std::string answer_id(Endpoint endpoint, std::uint64_t ticket) {
  static const std::uint64_t salt = [] {
    std::random_device device;
    return (std::uint64_t{device()} << 32) | device();
  }();
  return (endpoint == Endpoint::chat ? "chatcmpl-" : "cmpl-") + hex(salt) + hex(ticket);
}

/// Ends the request in every way out: the sink on the handler's stack must outlive the engine's interest in it.
class Submission {
 public:
  Submission(sdk::Frontend& frontend, EventQueue& queue, std::uint64_t ticket)
      : frontend_(frontend), queue_(queue), ticket_(ticket) {}
  ~Submission() {
    frontend_.cancel(ticket_);  // no effect after the terminal event
    queue_.wait_terminal();
  }
  Submission(const Submission&) = delete;
  Submission& operator=(const Submission&) = delete;

 private:
  sdk::Frontend& frontend_;
  EventQueue& queue_;
  std::uint64_t ticket_;
};

/// Looks for a departed client at most every 50 ms, however busy the stream is.
class ClientWatch {
 public:
  explicit ClientWatch(sdk::HttpExchange& exchange) : exchange_(exchange) {}
  bool gone() {
    if (Clock::now() < next_) return false;
    next_ = Clock::now() + kPoll;
    return exchange_.client_gone();
  }

 private:
  sdk::HttpExchange& exchange_;
  Clock::time_point next_{};
};

void run_whole(sdk::HttpExchange& exchange, const Call& call, const Heading& heading, EventQueue& queue) {
  WholeAnswer answer(call);
  ClientWatch watch(exchange);
  for (;;) {
    for (const Event& event : queue.take(kPoll)) {
      answer.add(event);
      if (event.kind == sdk::EventKind::finished) {
        exchange.respond(200, "application/json", answer.body(heading), {});
      } else if (event.kind == sdk::EventKind::failed) {
        send_error(exchange, refusal_of(event.status));
      } else if (event.kind == sdk::EventKind::cancelled) {
        send_error(exchange, refusal_of(sdk::fail(sdk::Code::cancelled, "the request was cancelled by the server")));
      }
      if (terminal(event.kind)) return;
    }
    if (watch.gone()) {
      exchange.respond(503, "application/json", "", {});  // nobody reads it; it says that the exchange is over
      return;
    }
  }
}

void run_stream(sdk::HttpExchange& exchange, const Call& call, const Heading& heading, EventQueue& queue,
                const Settings& settings) {
  StreamAnswer answer(call, heading);
  ClientWatch watch(exchange);
  const std::array<sdk::HttpHeader, 2> headers{{{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}}};
  if (!exchange.begin_stream(200, "text/event-stream; charset=utf-8", headers)) return;
  auto ping_at = Clock::now() + settings.ping;
  for (;;) {
    std::string bytes;
    bool ended = false;
    for (const Event& event : queue.take(kPoll)) {
      bytes += answer.on(event);
      ended = ended || terminal(event.kind);
    }
    if (bytes.empty() && Clock::now() >= ping_at) bytes = ": ping\n\n";
    if (!bytes.empty()) {
      if (!exchange.write(bytes)) return;
      ping_at = Clock::now() + settings.ping;
    }
    if (ended || watch.gone()) return;
  }
}

}  // namespace

void EventQueue::on_event(const sdk::EventView& event) noexcept {
  const std::lock_guard lock(mutex_);
  try {
    if (!lost_) events_.push_back(copy_event(event, with_tokens_));
  } catch (...) {
    lost_ = true;  // out of memory: told to the client at the terminal event
  }
  terminal_ = terminal_ || terminal(event.kind);
  arrived_.notify_all();  // under the lock: once it is released the waiter may destroy this object
}

std::vector<Event> EventQueue::take(std::chrono::milliseconds limit) {
  std::unique_lock lock(mutex_);
  arrived_.wait_for(lock, limit, [&] { return !events_.empty() || terminal_; });
  std::vector<Event> taken = std::exchange(events_, {});
  if (terminal_ && lost_ && (taken.empty() || !terminal(taken.back().kind))) {
    Event& event = taken.emplace_back();
    event.kind = sdk::EventKind::failed;
    event.status = sdk::fail(sdk::Code::resource_exhausted, "out of host memory while collecting the answer");
  }
  return taken;
}

void EventQueue::wait_terminal() {
  std::unique_lock lock(mutex_);
  arrived_.wait(lock, [&] { return terminal_; });
}

void send_error(sdk::HttpExchange& exchange, const Refusal& refusal) {
  const sdk::HttpHeader retry{"Retry-After", "1"};
  const bool later = refusal.status == 429 || refusal.status == 503;
  exchange.respond(refusal.status, "application/json", error_body(refusal), std::span(&retry, later ? 1 : 0));
}

void run_call(sdk::Frontend& frontend, sdk::HttpExchange& exchange, Call& call, const Settings& settings) {
  EventQueue queue(call.top_logprobs >= 0);
  std::uint64_t ticket = 0;
  if (const sdk::Status status = frontend.submit(call.view(), queue, &ticket); !status.ok())
    return send_error(exchange, refusal_of(status));
  const Submission submission(frontend, queue, ticket);
  const sdk::EngineInfo info = frontend.describe();
  Heading heading;
  heading.id = answer_id(call.endpoint, ticket);
  heading.created = static_cast<std::int64_t>(std::time(nullptr));
  heading.model = info.model_name;
  heading.system_fingerprint = "fp_" + std::string(info.fingerprint).substr(0, 12);
  if (call.stream) {
    run_stream(exchange, call, heading, queue, settings);
  } else {
    run_whole(exchange, call, heading, queue);
  }
}

}  // namespace tessera::openai
