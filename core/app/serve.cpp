// tessera serve: the HTTP surfaces until SIGTERM or SIGINT.
#include <pthread.h>
#include <signal.h>

#include <thread>

#include "app/common.h"
#include "base/log.h"
#include "engine/service.h"
#include "http/listener.h"
#include "tessera/sdk/protocol.h"

namespace tessera::app {
namespace {

struct Options {
  ConfigOptions config;
  std::string host;
  std::optional<int> port;
  std::vector<std::string> api_keys;
};

/// Blocked in every thread started afterwards, so that only sigwait sees them.
sigset_t block_stop_signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  return set;
}

LogLevel parse_level(const std::string& name) {
  if (name == "debug") return LogLevel::debug;
  if (name == "warn") return LogLevel::warn;
  return name == "error" ? LogLevel::error : LogLevel::info;
}

Status start_protocols(const Config& config, Registry& registry, Service& service, Listener& listener,
                       std::vector<PluginPtr<sdk::Protocol>>& protocols) {
  for (const PluginConfig& wanted : config.protocols) {
    auto protocol = registry.create<sdk::Protocol>(wanted, sdk::Device::any);
    if (!protocol.ok()) return protocol.status();
    TESSERA_TRY((*protocol)->start(service, listener));
    protocols.push_back(std::move(*protocol));
  }
  return {};
}

int serve(const Options& options) {
  auto config = options.config.load();
  if (!config.ok()) return report(config.status());
  if (!options.host.empty()) config->server.host = options.host;
  if (options.port) config->server.port = static_cast<std::uint16_t>(*options.port);
  for (const std::string& key : options.api_keys) config->server.api_keys.push_back(key);
  set_log_level(parse_level(config->log_level));

  const sigset_t stop_signals = block_stop_signals();
  Registry registry = make_registry(*config);
  Service service(*config);
  auto listener = Listener::open(config->server);
  if (!listener.ok()) return report(listener.status());
  std::vector<PluginPtr<sdk::Protocol>> protocols;
  if (Status status = start_protocols(*config, registry, service, **listener, protocols); !status.ok())
    return report(status);
  (*listener)->start();
  log(LogLevel::info, "listening on http://{}:{}", config->server.host, (*listener)->port());

  Status status = service.load(registry);
  if (status.ok()) {
    int signal = 0;
    sigwait(&stop_signals, &signal);
    log(LogLevel::info, "stopping: no new requests, up to {} s for the running ones", config->server.drain_seconds);
  }
  service.drain(config->server.drain_seconds);
  (*listener)->stop();
  for (auto& protocol : protocols) protocol->stop();
  return status.ok() ? 0 : report(status);
}

}  // namespace

void add_serve(CLI::App& root, int& exit_code) {
  auto* command = root.add_subcommand("serve", "Serve a model over HTTP until SIGTERM");
  auto options = std::make_shared<Options>();
  options->config.add_to(*command);
  command->add_option("--host", options->host, "Address to listen on (default: server.listen)");
  command->add_option("--port", options->port, "Port to listen on; 0 picks a free one")->check(CLI::Range(0, 65535));
  command->add_option("--api-key", options->api_keys, "Require this key (repeatable)");
  command->callback([options, &exit_code] { exit_code = serve(*options); });
}

}  // namespace tessera::app
