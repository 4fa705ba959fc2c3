// The engine behind its one thread: the Frontend that protocol adapters and the command line use.
#pragma once
#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "base/status.h"
#include "config/config.h"
#include "engine/engine.h"
#include "engine/metrics.h"
#include "registry/registry.h"
#include "tessera/sdk/frontend.h"
#include "text/chat.h"
#include "text/tokenizer.h"

namespace tessera {

/// Starts in state `loading`; `load` makes it ready; `drain` refuses new requests and lets the running ones finish.
class Service final : public sdk::Frontend {
 public:
  explicit Service(const Config& config);
  ~Service();

  /// [control] Loads tokenizer, model and plugins and starts the engine thread.
  Status load(Registry& registry);
  /// [control] Refuses new requests, waits until idle or for `seconds`, then cancels what is left. Idempotent.
  void drain(int seconds);

  Status submit(const sdk::RequestView& request, sdk::EventSink& sink, std::uint64_t* ticket) noexcept override;
  void cancel(std::uint64_t ticket) noexcept override;
  sdk::EngineInfo describe() noexcept override;
  void metrics(void (*write)(void* context, std::string_view text), void* context) noexcept override;

 private:
  using Command = std::function<void(Engine&)>;
  void run();
  void post(Command command);
  Result<Request> resolve(const sdk::RequestView& view) const;
  Result<std::vector<std::int32_t>> prompt_tokens(const sdk::RequestView& view) const;

  Config config_;
  std::string model_name_;
  std::int64_t created_;
  Metrics metrics_;
  std::optional<Tokenizer> tokenizer_;
  std::optional<ChatTemplate> chat_;
  std::unique_ptr<Engine> engine_;
  std::atomic<sdk::EngineState> state_{sdk::EngineState::loading};
  std::atomic<std::uint64_t> next_ticket_{1};

  std::mutex mutex_;
  std::condition_variable wake_;       // the engine thread: a command, or stop
  std::condition_variable went_idle_;  // drain
  std::deque<Command> inbox_;
  bool idle_ = true;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace tessera
