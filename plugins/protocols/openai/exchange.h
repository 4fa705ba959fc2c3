// The thin half: one accepted request, from the engine's events to the client.
#pragma once
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <vector>

#include "tessera/sdk/frontend.h"
#include "tessera/sdk/http.h"
#include "translate.h"

namespace tessera::openai {

/// Between the engine thread, which never waits, and one handler thread.
class EventQueue final : public sdk::EventSink {
 public:
  explicit EventQueue(bool with_tokens) : with_tokens_(with_tokens) {}

  void on_event(const sdk::EventView& event) noexcept override;

  /// Everything queued, after waiting at most `limit` for the first. The terminal event is the last one ever.
  std::vector<Event> take(std::chrono::milliseconds limit);
  /// Blocks until the engine has delivered the terminal event, and so has forgotten this sink.
  void wait_terminal();

 private:
  const bool with_tokens_;
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::vector<Event> events_;
  bool terminal_ = false;
  bool lost_ = false;  // an event could not be copied: the answer is incomplete
};

struct Settings {
  std::chrono::seconds ping{10};
};

void send_error(sdk::HttpExchange& exchange, const Refusal& refusal);

/// Submits `call` and carries its answer, streamed or whole. Returns only after the terminal event (or a refusal); a
/// client that leaves is noticed within 50 ms and its request cancelled.
void run_call(sdk::Frontend& frontend, sdk::HttpExchange& exchange, Call& call, const Settings& settings);

}  // namespace tessera::openai
