#include "engine/service.h"

#include <chrono>
#include <future>
#include <random>

#include "base/log.h"
#include "engine/validate.h"

namespace tessera {

Service::Service(const Config& config)
    : config_(config),
      model_name_(config.model.name.empty() ? std::filesystem::absolute(config.model.path).filename().string()
                                            : config.model.name),
      created_(std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch())
                   .count()) {}

Service::~Service() {
  drain(0);
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

Status Service::load(Registry& registry) {
  auto tokenizer = Tokenizer::load(config_.model.path / "tokenizer.json");
  if (!tokenizer.ok()) return tokenizer.status();
  tokenizer_ = std::move(*tokenizer);
  auto chat = ChatTemplate::load(config_.model.path, *tokenizer_);
  if (!chat.ok()) return chat.status();
  chat_ = std::move(*chat);
  auto runner = Runner::open(config_, registry, {});
  if (!runner.ok()) return runner.status();
  if (tokenizer_->vocab_size() > (*runner)->spec().vocab)
    return fail(Code::invalid_argument, "{}: tokenizer.json has ids up to {} but config.json says vocab_size {}",
                config_.model.path.string(), tokenizer_->vocab_size() - 1, (*runner)->spec().vocab);
  const SchedulerLimits limits = scheduler_limits(config_, **runner);
  metrics_.info(model_name_, (*runner)->fingerprint(), config_.backend.name, (*runner)->attention_descriptor().name,
                config_.attention.option("variant", "auto"));
  engine_ = std::make_unique<Engine>(std::move(*runner), limits, acceptance_of(config_), *tokenizer_, metrics_);
  thread_ = std::thread([this] { run(); });
  state_ = sdk::EngineState::ready;
  log(LogLevel::info, "model {} is ready, fingerprint {}", model_name_, engine_->runner().fingerprint());
  return {};
}

void Service::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    while (!inbox_.empty()) {
      Command command = std::move(inbox_.front());
      inbox_.pop_front();
      lock.unlock();
      command(*engine_);
      lock.lock();
    }
    if (stop_) return;
    idle_ = engine_->idle();
    if (idle_) {
      went_idle_.notify_all();
      wake_.wait(lock, [this] { return stop_ || !inbox_.empty(); });
      continue;
    }
    lock.unlock();
    engine_->step();
    lock.lock();
  }
}

void Service::post(Command command) {
  {
    const std::lock_guard lock(mutex_);
    idle_ = false;
    inbox_.push_back(std::move(command));
  }
  wake_.notify_all();
}

void Service::drain(int seconds) {
  if (state_ == sdk::EngineState::loading) {
    state_ = sdk::EngineState::draining;
    if (engine_ == nullptr) return;
  }
  state_ = sdk::EngineState::draining;
  {
    std::unique_lock lock(mutex_);
    if (went_idle_.wait_for(lock, std::chrono::seconds(seconds), [this] { return idle_ && inbox_.empty(); })) return;
  }
  log(LogLevel::warn, "requests are still running after {} s of draining: cancelling them", seconds);
  post([](Engine& engine) { engine.cancel_all(); });
  std::unique_lock lock(mutex_);
  went_idle_.wait(lock, [this] { return idle_ && inbox_.empty(); });
}

Status Service::submit(const sdk::RequestView& view, sdk::EventSink& sink, std::uint64_t* ticket) noexcept {
  return sdk::guarded([&]() -> Status {
    if (state_ != sdk::EngineState::ready) {
      metrics_.request_refused();
      return fail(Code::unavailable, "the engine is {}; try again later",
                  state_ == sdk::EngineState::loading ? "still loading the model" : "shutting down");
    }
    auto request = resolve(view);
    if (!request.ok()) {
      metrics_.request_refused();
      return request.status();
    }
    *ticket = next_ticket_++;
    auto answer = std::make_shared<std::promise<Status>>();
    auto verdict = answer->get_future();
    post([this, id = *ticket, moved = std::make_shared<Request>(std::move(*request)), &sink, answer](Engine& engine) {
      answer->set_value(state_ == sdk::EngineState::ready
                            ? engine.submit(id, std::move(*moved), sink)
                            : fail(Code::unavailable, "the engine is shutting down; try again later"));
    });
    return verdict.get();
  });
}

void Service::cancel(std::uint64_t ticket) noexcept {
  post([ticket](Engine& engine) { engine.cancel(ticket); });
}

Result<std::vector<std::int32_t>> Service::prompt_tokens(const sdk::RequestView& view) const {
  switch (view.prompt_kind) {
    case sdk::PromptKind::messages: return chat_->render(view.messages, *tokenizer_);
    case sdk::PromptKind::text: return tokenizer_->encode(view.prompt, Tokenizer::Special::stay_text);
    case sdk::PromptKind::tokens: return std::vector<std::int32_t>(view.tokens.begin(), view.tokens.end());
  }
  return fail(Code::invalid_argument, "unknown kind of prompt");
}

Result<Request> Service::resolve(const sdk::RequestView& view) const {
  const Runner& runner = engine_->runner();
  const DecoderSpec& spec = runner.spec();
  const RequestBounds bounds{spec.vocab, runner.max_context(), spec.loops, double{spec.exit_threshold},
                             runner.sparse_from()};
  TESSERA_TRY(validate(view, bounds));
  auto prompt = prompt_tokens(view);
  if (!prompt.ok()) return prompt.status();
  Request request;
  request.prompt = std::move(*prompt);
  TESSERA_TRY(fit_context(request, view.max_tokens, bounds));
  const sdk::SamplingView& s = view.sampling;
  request.sampling = {s.temperature,
                      s.top_k,
                      s.top_p,
                      s.min_p,
                      s.presence_penalty,
                      s.frequency_penalty,
                      s.repetition_penalty,
                      {s.logit_bias.begin(), s.logit_bias.end()},
                      s.seed};
  if (!s.has_seed) {
    std::random_device device;
    request.sampling.seed = (std::uint64_t{device()} << 32 | device()) >> 11;  // exact in a JSON number
  }
  request.num_choices = view.num_choices;
  request.stops.assign(view.stops.begin(), view.stops.end());
  request.top_logprobs = view.top_logprobs;
  request.ignore_eos = view.ignore_eos;
  request.loops = resolve_loops(view, bounds);
  return request;
}

sdk::EngineInfo Service::describe() noexcept {
  sdk::EngineInfo info{};
  info.state = state_;
  info.model_name = model_name_.c_str();
  info.created = created_;
  info.max_choices = kMaxChoices;
  info.max_top_logprobs = kMaxTopLogprobs;
  info.fingerprint = "";
  if (info.state == sdk::EngineState::loading || engine_ == nullptr) return info;
  info.fingerprint = engine_->runner().fingerprint().c_str();
  info.loops = engine_->runner().spec().loops;
  info.max_context = engine_->runner().max_context();
  info.vocab_size = engine_->runner().spec().vocab;
  return info;
}

void Service::metrics(void (*write)(void* context, std::string_view text), void* context) noexcept {
  try {
    write(context, metrics_.text());
  } catch (const std::exception& error) {
    log(LogLevel::error, "metrics: {}", error.what());
  }
}

}  // namespace tessera
